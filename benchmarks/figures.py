"""The papers' figures of finished runs: what each run's method thought of its pairs, epoch by epoch and at the end.

    python benchmarks/figures.py runs/pc2 runs/pcsr runs/npc runs/gsc --out figures

For each run, as far as its method has what they show:

- RUN_histograms.png: every array that the method keeps for its pairs (loss, trust), its means for each epoch and its
  distribution in some epochs, for matching and mismatched pairs (PC2 Fig. 2, GSC Fig. 5). What the method had before it
  first looked at the pairs is left out.
- RUN_consistency.png: the pseudo-label consistency score at the end, by network (PCSR Fig. 3 shows its extremes).
- RUN_bank.png: matching and mismatched pairs among those that reach a threshold, by the last clean probabilities, and
  the purity of the memory bank in each epoch (NPC Fig. 3).
- RUN_weights.png: the weights w of the last epoch (NPC Fig. 5 shows the means over the epochs of single pairs).

And of all runs together, discrimination.png: the share of training pairs that the method puts on the right side, epoch
by epoch (GSC gives this number beside its Fig. 5). A method that divides pairs does so by its own division, GSC by its
label and NPC by its clean probability, both at one half.

Epochs are counted from 1. Where the truth is not known there are histograms of all pairs alone.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from pairsift.errors import InputError, writing
from pairsift.files import replacing
from run_histories import (
    HISTOGRAMS,
    NAMES,
    THRESHOLDS,
    FinishedRun,
    Groups,
    Lacking,
    Values,
    bank,
    bins,
    courses,
    discrimination,
    final,
    read_runs,
    spread,
    threshold,
)

COLOURS = {"matching": "#0072b2", "mismatched": "#d55e00", "all": "#4d4d4d"}
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder for the pictures")
    chosen = parser.parse_args(words)
    try:
        for line in draw_all(read_runs(chosen.runs), chosen.out):
            print(line)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


# ---------------------------------------------------------------- reading


def draw_all(runs: Sequence[FinishedRun], out: Path) -> list[str]:
    """Draw every figure that the runs have; return a line for each: where it is, or whose it is not and why.

    Raises:
        WriteError: A picture cannot be written.
    """
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    figures = {
        "histograms": draw_histograms,
        "consistency": draw_consistency,
        "bank": draw_bank,
        "weights": draw_weights,
    }
    said = []
    for run in runs:
        for kind, draw in figures.items():
            try:
                said.append(save(draw(run), out / f"{run.name}_{kind}.png"))
            except Lacking as why:
                said.append(f"{run.name}: no figure of its {kind}: {why}")
    known = []
    for run in runs:
        try:
            known.append((run, *discrimination(run)))
        except Lacking as why:
            said.append(f"{run.name}: not in the figure of discrimination: {why}")
    return [*said, save(draw_discrimination(known), out / "discrimination.png")] if known else said


def save(figure: Figure, path: Path) -> str:
    """Write a picture, and return its path."""
    with writing(path), replacing(path) as part:
        figure.savefig(part, format="png", dpi=150)
    return str(path)


def canvas(title: str, rows: int, columns: int, width: float = 3.0, height: float = 2.4) -> tuple[Figure, Any]:
    """An empty figure and its axes, (rows, columns)."""
    figure = Figure(figsize=(width * columns + 0.4, height * rows + 0.7), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    figure.suptitle(title, fontsize=11)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(labelsize=8)
        one.set_axisbelow(True)
        one.grid(axis="y", color="#e5e5e5", linewidth=0.8)
    return figure, axes


def label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)


def lines(axes: Axes, epochs: list[int], values: Groups) -> None:
    """One line for each group, or whatever the values are called."""
    for row, (name, each) in enumerate(values.items()):
        colour = COLOURS.get(name) or LINES[row % len(LINES)]
        axes.plot(epochs, each, "o-", color=colour, label=name, markersize=3.5, linewidth=1.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def bars(axes: Axes, edges: Values, shares: Groups) -> None:
    """Histograms side by side, one for each group: most values are few levels, where overlaid ones hide each other."""
    width = np.diff(edges) / len(shares)
    for row, (group, each) in enumerate(shares.items()):
        axes.bar(edges[:-1] + row * width, each, 0.9 * width, align="edge", color=COLOURS[group], label=group)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def overlaid(axes: Axes, edges: Values, shares: Groups) -> None:
    """Histograms over each other, one for each group."""
    for group, each in shares.items():
        axes.stairs(each, edges, fill=True, color=COLOURS[group], alpha=0.45)
        axes.stairs(each, edges, color=COLOURS[group], linewidth=1.2, label=group)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_ylim(bottom=0)


def draw_histograms(run: FinishedRun) -> Figure:
    """A row for each array: its means, then its distribution in some epochs."""
    found = courses(run)
    figure, axes = canvas(f"{run.title}: what the method thinks of its pairs", len(found), HISTOGRAMS + 1, width=2.7)
    for row, (name, course) in zip(axes, found.items(), strict=True):
        lines(row[0], course.epochs, course.means)
        shown = NAMES.get(name, name.replace("_", " "))
        label(row[0], f"mean {shown}", "epoch", "")
        low, high = (end(one.edges[at] for one in course.histograms) for end, at in ((min, 0), (max, -1)))
        if name != "loss" and low >= 0 and high <= 1:
            low, high = 0, 1
        for one, each in zip(row[1:], course.histograms, strict=False):
            overlaid(one, each.edges, each.shares)
            one.set_xlim(low, high)
            label(one, f"epoch {each.epoch}", shown, "")
        for one in row[1 + len(course.histograms) :]:
            one.set_visible(False)
        row[1].set_ylabel("share of the group", fontsize=8)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9, frameon=False
    )
    return figure


def draw_consistency(run: FinishedRun) -> Figure:
    """A histogram of PCS for each network, with the last threshold."""
    networks, tau = final(run, "consistency"), threshold(run)
    edges = bins(networks)
    figure, axes = canvas(f"{run.title}: pseudo-label consistency score", 1, len(networks), width=4.0, height=2.8)
    for k, (one, values) in enumerate(zip(axes[0], networks, strict=True)):
        bars(one, edges, spread(values, edges))
        if tau is not None:
            one.axvline(tau, color="#4d4d4d", linestyle="--", linewidth=1.2, label="threshold, mean of the networks")
        label(one, f"network {k}", "consistency score of the image (PCS)", "share of the group" if k == 0 else "")
    axes[0, 0].legend(fontsize=8, frameon=False)
    return figure


def draw_bank(run: FinishedRun) -> Figure:
    """The pairs above each threshold, and the bank's purity and share over the epochs."""
    found = bank(run)
    figure, axes = canvas(f"{run.title}: memory bank", 1, 2, width=4.2, height=2.9)
    left, right = axes[0]
    places, below = np.arange(len(THRESHOLDS)), np.zeros(len(THRESHOLDS))
    for group, reach in found.reach.items():
        left.bar(places, reach, bottom=below, width=0.7, color=COLOURS[group], label=group)
        below = below + reach
    for place, wrong, all_of_it in zip(places, found.reach["mismatched"], below, strict=True):
        said = f"{wrong / all_of_it:.1%}" if all_of_it else "none"
        left.annotate(said, (place, all_of_it), (0, 2), textcoords="offset points", ha="center", fontsize=7)
    left.set_xticks(places, [f"{tau:g}" for tau in THRESHOLDS])
    left.set_ylim(0, max(1.3 * float(below.max()), 0.01))
    left.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    label(left, "pairs that reach a threshold; above: mismatched of them", "threshold", "share of all pairs")
    left.legend(fontsize=8, frameon=False, ncols=2, loc="upper right")
    lines(right, found.epochs, {"purity": found.purity, "share of the pairs in it": found.share})
    right.set_ylim(0, 1.05)
    right.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    label(right, "bank in each epoch", "epoch", "")
    right.legend(fontsize=8, frameon=False, loc="best")
    return figure


def draw_weights(run: FinishedRun) -> Figure:
    """A histogram of the last weights for each network."""
    networks = final(run, "weight")
    edges = bins(networks)
    figure, axes = canvas(f"{run.title}: weights of the last epoch", 1, len(networks), width=4.6, height=2.8)
    for k, (one, values) in enumerate(zip(axes[0], networks, strict=True)):
        bars(one, edges, spread(values, edges))
        label(one, f"network {k}", "weight w of the pair", "share of the group" if k == 0 else "")
    axes[0, 0].legend(fontsize=8, frameon=False)
    return figure


def draw_discrimination(known: Sequence[tuple[FinishedRun, list[int], Values]]) -> Figure:
    """A line for each run."""
    figure, axes = canvas("Training pairs that the method puts on the right side", 1, 1, width=6.4, height=3.4)
    one = axes[0, 0]
    titles = Counter(run.title for run, _, _ in known)
    for row, (run, epochs, values) in enumerate(known):
        name = run.title if titles[run.title] == 1 else f"{run.title} ({run.name})"
        style = ("-", "--", ":")[row // len(LINES) % 3]
        one.plot(epochs, values, f"o{style}", color=LINES[row % len(LINES)], label=name, markersize=4, linewidth=1.6)
    one.xaxis.set_major_locator(MaxNLocator(integer=True))
    one.yaxis.set_major_formatter(PercentFormatter(1))
    label(one, "", "epoch", "discrimination accuracy")
    one.legend(fontsize=8, frameon=False)
    return figure


if __name__ == "__main__":
    sys.exit(main())
