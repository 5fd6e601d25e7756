"""The papers' figures of finished runs: what each run's method thought of its pairs, epoch by epoch and at the end.

    python benchmarks/figures.py runs/pc2 runs/pcsr runs/npc runs/gsc --out figures

For each run, as far as its method has what they show:

- RUN_histograms.png: every array that the method keeps for its pairs (loss, trust), its means for each epoch and its
  distribution in some epochs, for matching and mismatched pairs (PC2 Fig. 2, GSC Fig. 5). What the method had before it
  first looked at the pairs is left out.
- RUN_consistency.png: the pseudo-label consistency score at the end, by network (PCSR Fig. 3 shows its extremes).
- RUN_bank.png: matching and mismatched pairs among those that reach a threshold, by the last clean probabilities, and
  the purity of the memory bank in each epoch (NPC Fig. 3).
- RUN_weights.png: the weights w of the last epoch, and their means over the epochs (NPC Fig. 5 shows such means of
  single pairs; the file method_state.parquet has all of them).
- RUN_structure.png: the agreement of the intra-modal structures, with the two fitted Gaussians (GSC Fig. 5 b).
- RUN_classes.png: training images of ten pseudo-classes of the last pass in the plane, by t-SNE of the vectors of
  network 0 as it was kept (PC2 supplement Fig. 2, which shows it during the training as well).
- RUN_planted.png, with `--planted RATE`, of runs on pairs without planted noise: similarity and agreement of the
  structures on the training pairs after noise was planted in them, by networks that never saw it (GSC Fig. 2).

And of all runs together:

- stability.png: R@1 over the share of planted noise, a line for each method and matcher with several shares, and
  the variance of its points (NPC Fig. 4).
- discrimination.png: the share of training pairs that the method puts on the right side, epoch by epoch (GSC gives this
  number beside its Fig. 5). A method that divides pairs does so by its own division, GSC by its label and NPC by its
  clean probability, both at one half.

Epochs are counted from 1. Where the truth is not known there are histograms of all pairs alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter, ScalarFormatter
from numpy.typing import NDArray
from sklearn.manifold import TSNE

from pairsift.errors import InputError, writing
from pairsift.files import replacing
from pairsift.methods.gsc import structure_agreement
from pairsift.methods.parts.division import Gaussians, fit_mixture
from pairsift.noise.planted import plant_noise
from pairsift.retrieve.bank import evaluation_mode
from pairsift.retrieve.gallery import Gallery
from pairsift.run_folder import CONFIG, LOG, METHOD_STATE, METRICS, require_finished
from pairsift.runs.run import open_run
from pairsift.search.index import Index

Values = NDArray[np.float64]
Groups = dict[str, Values]  # by `matching` and `mismatched`, or `all` where the truth is not known
NAMES = {
    "clean_probability": "clean probability",
    "cross_modal": "cross-modal label",
    "intra_modal": "intra-modal label",
    "consistency": "consistency score",
    "weight": "weight w",
    "mean_weight": "mean weight w",
    "structure": "agreement of structures",
}
GROUPS = ("matching", "mismatched", "all")
HISTOGRAMS = 4  # in the course of an array over the epochs
BINS = 20
CLASSES, IMAGES = 10, 2000  # in the plane: pseudo-classes, and images at most
BLOCK = 1024  # pairs whose structures are compared
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
COLOURS = {"matching": "#0072b2", "mismatched": "#d55e00", "all": "#4d4d4d"}
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("--planted", type=float, metavar="RATE", help="share of the captions to move, in [0, 1]")
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder for the pictures")
    chosen = parser.parse_args(words)
    try:
        for line in draw_all(read_runs(chosen.runs), chosen.out, chosen.planted):
            print(line)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


class Lacking(Exception):
    """A run does not have what a figure shows; the message says what."""


@dataclass(frozen=True)
class FinishedRun:
    """What a finished run left for figures.

    Attributes:
        folder: Where it lies.
        name: Of its folder; no two runs of a picture have the same.
        title: Its method, its noise and its matcher.
        epochs: The lines of its log, one for each epoch, in order.
        state: What the method thought of each training pair at the end, by column; empty where it keeps nothing.
        config: Its options.
        metrics: Its metrics.
    """

    folder: Path
    name: str
    title: str
    epochs: list[dict[str, Any]]
    state: Mapping[str, NDArray[Any]]
    config: Mapping[str, Any]
    metrics: Mapping[str, Any]


@dataclass(frozen=True)
class Histogram:
    """How the values of an array lay in one epoch.

    Attributes:
        epoch: Counted from 1.
        edges: Of the bins, ascending.
        shares: For each group the share of its values in each bin.
    """

    epoch: int
    edges: Values
    shares: Groups


@dataclass(frozen=True)
class Course:
    """An array of the method's state over the epochs.

    Attributes:
        epochs: Those with means, counted from 1.
        means: For each group, one mean an epoch.
        histograms: The histograms of at most `HISTOGRAMS` epochs.
    """

    epochs: list[int]
    means: Groups
    histograms: list[Histogram]


@dataclass(frozen=True)
class Bank:
    """How clean NPC's memory bank is.

    Attributes:
        reach: For each group the share of all training pairs that are in it and reach each of `THRESHOLDS`.
        epochs: Those with a bank, counted from 1.
        purity: Share of the bank's entries that match, one an epoch.
        share: Share of the training pairs that the bank takes, one an epoch.
    """

    reach: Groups
    epochs: list[int]
    purity: Values
    share: Values


def read_runs(folders: Sequence[Path]) -> list[FinishedRun]:
    """Read the runs, each with a name of its own.

    Raises:
        InputError: There is none, or a folder holds no finished run.
    """
    if not folders:
        raise InputError("name at least one folder of a finished run: python benchmarks/figures.py runs/mine")
    names = [folder.resolve().name for folder in folders]
    seen: Counter[str] = Counter()
    for row, name in enumerate(names):
        seen[name] += 1
        names[row] = name if seen[name] == 1 else f"{name}-{seen[name]}"
    return [read_run(folder, name) for folder, name in zip(folders, names, strict=True)]


def read_run(folder: Path, name: str) -> FinishedRun:
    """Read one run. A run whose method keeps nothing has no state."""
    require_finished(folder)
    config = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))
    metrics = json.loads((folder / METRICS).read_text(encoding="utf-8"))
    rate = (metrics["noise"] or {}).get("rate")
    noise = "no planted noise" if rate is None else f"{rate:.0%} noise"
    lines = [json.loads(line) for line in (folder / LOG).read_text(encoding="utf-8").splitlines()]
    last = {line["epoch"]: line for line in lines if "epoch" in line}  # of an epoch that was resumed
    state: dict[str, NDArray[Any]] = {}
    if (folder / METHOD_STATE).exists():
        table = pq.read_table(folder / METHOD_STATE)
        state = {column: table[column].to_numpy() for column in table.column_names}
    title = f"{config['method']}, {noise}, {config['matcher']}"
    return FinishedRun(folder, name, title, [last[epoch] for epoch in sorted(last)], state, config, metrics)


def estimated(summary: Mapping[str, Any]) -> bool:
    """Whether an array has been estimated; before, all its values are the same."""
    return np.count_nonzero(summary["all"]["counts"]) > 1


def courses(run: FinishedRun) -> dict[str, Course]:
    """Every array of the method's state over the epochs, from its first estimate on.

    Raises:
        Lacking: The method keeps none, or never looked at its pairs.
    """
    by_array = {}
    for name in dict.fromkeys(name for line in run.epochs for name in line.get("state", {})):
        with_it = [line for line in run.epochs if name in line.get("state", {})]
        with_it = list(dropwhile(lambda line: not estimated(line["state"][name]), with_it))  # noqa: B023
        if not with_it:
            continue
        groups = [group for group in GROUPS if group in with_it[0]["state"][name]]
        groups = [group for group in groups if group != "all"] or ["all"]
        means = {
            group: np.array([line["state"][name][group]["mean"] for line in with_it], float)  # None becomes nan
            for group in groups
        }
        places = np.unique(np.linspace(0, len(with_it) - 1, HISTOGRAMS).round().astype(int))
        histograms = [histogram(with_it[place], name, groups) for place in places]
        by_array[name] = Course([line["epoch"] + 1 for line in with_it], means, histograms)
    if not by_array:
        raise Lacking("its log holds no values of pairs (plain and crossfit keep none, nor does a warm-up)")
    return by_array


def histogram(line: Mapping[str, Any], name: str, groups: Sequence[str]) -> Histogram:
    """How an array's values lay in the epoch of a line of the log."""
    summary = line["state"][name]
    counts = {group: np.array(summary[group]["counts"], float) for group in groups}
    shares = {group: count / max(1.0, count.sum()) for group, count in counts.items()}
    return Histogram(line["epoch"] + 1, np.array(summary["edges"], float), shares)


def final(run: FinishedRun, name: str) -> list[Groups]:
    """The last values of an array, for each network by group.

    Raises:
        Lacking: The run does not keep it.
    """
    networks = [column for column in run.state if column.rpartition("_")[0] == name]
    if not networks:
        raise Lacking(f"it keeps no {NAMES.get(name, name)}")
    truth = run.state.get("truly_matching")
    groups = {"all": np.ones(len(run.state[networks[0]]), bool)}
    if truth is not None:
        matched = truth.astype(bool)
        groups = {"matching": matched, "mismatched": ~matched}
    return [{group: run.state[column][rows].astype(float) for group, rows in groups.items()} for column in networks]


def spread(values: Groups, edges: Values) -> Groups:
    """For each group the share of its values in each bin."""
    return {group: np.histogram(each, edges)[0] / max(1, len(each)) for group, each in values.items()}


def bins(networks: Sequence[Groups]) -> Values:
    """Edges that hold all values: the first bin's middle is 0, the last one's 1 or the largest value."""
    largest = max((float(each.max()) for values in networks for each in values.values() if len(each)), default=1.0)
    return (np.arange(BINS + 2) - 0.5) * max(1.0, largest) / BINS


def threshold(run: FinishedRun) -> float | None:
    """PCSR's last tau, or None before there is one."""
    taus = [line["tau"] for line in run.epochs if line.get("tau") is not None]
    return float(taus[-1]) if taus else None


def discrimination(run: FinishedRun) -> tuple[list[int], Values]:
    """Epochs, counted from 1, and in each the share of pairs on the right side, from the method's first look on.

    Raises:
        Lacking: The log does not have it.
    """
    lines = [
        line for line in run.epochs if "discrimination" in line and any(map(estimated, line.get("state", {}).values()))
    ]
    if not lines:
        raise Lacking("its log has no discrimination (that needs planted noise, and a method that judges pairs)")
    return [line["epoch"] + 1 for line in lines], np.array([line["discrimination"] for line in lines], float)


def bank(run: FinishedRun) -> Bank:
    """How clean the pairs above a threshold are at the end, and the bank in each epoch.

    Raises:
        Lacking: The run has no bank, or does not know the truth.
    """
    lines = [line for line in run.epochs if "bank_purity" in line]
    if not lines:
        raise Lacking("its log has no bank_purity (that needs npc, and planted noise)")
    networks = final(run, "clean_probability")
    total = sum(len(each) for values in networks for each in values.values())
    reach = {
        group: np.array([sum(int((v[group] >= tau).sum()) for v in networks) / total for tau in THRESHOLDS])
        for group in networks[0]
    }
    purity, share = (np.array([line[name] for line in lines], float) for name in ("bank_purity", "bank_share"))
    return Bank(reach, [line["epoch"] + 1 for line in lines], purity, share)


def in_plane(run: FinishedRun) -> tuple[Values, NDArray[Any]]:
    """Places in the plane, (n, 2), of training images of some pseudo-classes, and their classes, (n,).

    Raises:
        Lacking: The run has no pseudo-classes.
    """
    if "pseudo_class_0" not in run.state:
        raise Lacking("it keeps no pseudo-classes (pc2 and pcsr do, after a first pass)")
    index, rng = Index.load(run.folder), np.random.default_rng(0)
    place = dict(zip(index.captions.pairs.tolist(), index.captions.images.tolist(), strict=True))
    known = [(place[pair], c) for pair, c in zip(run.state["pair"], run.state["pseudo_class_0"], strict=True)]
    images, classes = np.array(sorted(set(known))).T  # all pairs of an image have its class
    shown = rng.permutation(np.unique(classes))[:CLASSES]
    rows = rng.permutation(np.flatnonzero(np.isin(classes, shown)))[:IMAGES]
    vectors = index.vectors[0].float().numpy()[images[rows]]
    tsne = TSNE(init="pca", perplexity=min(30.0, max(1.0, (len(rows) - 1) / 3)), random_state=0)
    return tsne.fit_transform(vectors), classes[rows]


def planted_scores(run: FinishedRun, ratio: float) -> dict[str, Groups]:
    """Similarity and agreement of structures of the training pairs by group, with noise planted in them.

    Raises:
        Lacking: The run was trained with planted noise.
    """
    if run.metrics["noise"] is not None:
        raise Lacking("it was trained with planted noise")
    opened = open_run(run.folder, progress=False)
    pairs = plant_noise(opened.prepared.pairs.only("train"), ratio, 0)
    ids, rows = pairs.ids("train"), pairs.images("train")
    gallery = Gallery.encode(opened.matchers, opened.prepared.features, rows, ids)
    owner, matcher = np.searchsorted(rows, pairs.image_of[ids]), opened.matchers[0]
    agreement = np.empty(len(ids))
    order = np.random.default_rng(0).permutation(len(ids))
    for block in np.array_split(order, -(-len(ids) // BLOCK)):
        sides = gallery.images[0].select(owner[block]), gallery.texts[0].select(block)
        with evaluation_mode(matcher):
            images, texts = (matcher.intra_similarity(side).float() for side in sides)
        agreement[block] = structure_agreement(images, texts, images.new_ones(len(block))).cpu().numpy()
    scores = {"similarity": gallery.pairs(owner, np.arange(len(ids))), "agreement of structures": agreement}
    wrong = pairs.mismatched()[ids]
    return {name: {"matching": each[~wrong], "mismatched": each[wrong]} for name, each in scores.items()}


def over_noise(runs: Sequence[FinishedRun], measure: str) -> dict[str, tuple[Values, Values]]:
    """By method and matcher, the shares of planted noise of its runs and the mean measure of each share."""
    found: dict[str, dict[float, list[float]]] = {}
    for run in runs:
        if measure in (view := run.metrics.get("test", {}).get("ensemble", {})):
            name, noise = f"{run.config['method']}, {run.config['matcher']}", run.metrics["noise"] or {}
            found.setdefault(name, {}).setdefault(noise.get("ratio", 0.0), []).append(view[measure])
    return {
        name: (np.array(sorted(shares)), np.array([np.mean(shares[share]) for share in sorted(shares)]))
        for name, shares in found.items()
        if len(shares) > 1
    }


def draw_all(runs: Sequence[FinishedRun], out: Path, planted: float | None = None) -> list[str]:
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
        "structure": draw_structure,
        "classes": draw_classes,
    }
    if planted is not None:
        figures["planted"] = lambda run: draw_planted(run, planted)
    messages = []
    for run in runs:
        for kind, draw in figures.items():
            try:
                messages.append(save(draw(run), out / f"{run.name}_{kind}.png"))
            except Lacking as why:
                messages.append(f"{run.name}: no figure of its {kind}: {why}")
    known = []
    for run in runs:
        try:
            known.append((run, *discrimination(run)))
        except Lacking as why:
            messages.append(f"{run.name}: not in the figure of discrimination: {why}")
    if over_noise(runs, "i2t_r1"):
        messages.append(save(draw_stability(runs), out / "stability.png"))
    return [*messages, save(draw_discrimination(known), out / "discrimination.png")] if known else messages


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
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
        panel.set_axisbelow(True)
        panel.grid(axis="y", color="#e5e5e5", linewidth=0.8)
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
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_ylim(bottom=0)


def draw_histograms(run: FinishedRun) -> Figure:
    """A row for each array: its means, then its distribution in some epochs."""
    by_array = courses(run)
    figure, axes = canvas(f"{run.title}: what the method thinks of its pairs", len(by_array), HISTOGRAMS + 1, width=2.7)
    for row, (name, course) in zip(axes, by_array.items(), strict=True):
        lines(row[0], course.epochs, course.means)
        shown = NAMES.get(name, name.replace("_", " "))
        label(row[0], f"mean {shown}", "epoch", "")
        low, high = (end(each.edges[at] for each in course.histograms) for end, at in ((min, 0), (max, -1)))
        if name != "loss" and low >= 0 and high <= 1:
            low, high = 0, 1
        for panel, each in zip(row[1:], course.histograms, strict=False):
            overlaid(panel, each.edges, each.shares)
            panel.set_xlim(low, high)
            label(panel, f"epoch {each.epoch}", shown, "")
        for panel in row[1 + len(course.histograms) :]:
            panel.set_visible(False)
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
    for k, (panel, values) in enumerate(zip(axes[0], networks, strict=True)):
        bars(panel, edges, spread(values, edges))
        if tau is not None:
            panel.axvline(tau, color="#4d4d4d", linestyle="--", linewidth=1.2, label="threshold, mean of the networks")
        label(panel, f"network {k}", "consistency score of the image (PCS)", "share of the group" if k == 0 else "")
    axes[0, 0].legend(fontsize=8, frameon=False)
    return figure


def draw_bank(run: FinishedRun) -> Figure:
    """The pairs above each threshold, and the bank's purity and share over the epochs."""
    state = bank(run)
    figure, axes = canvas(f"{run.title}: memory bank", 1, 2, width=4.2, height=2.9)
    left, right = axes[0]
    places, below = np.arange(len(THRESHOLDS)), np.zeros(len(THRESHOLDS))
    for group, reach in state.reach.items():
        left.bar(places, reach, bottom=below, width=0.7, color=COLOURS[group], label=group)
        below = below + reach
    for place, wrong, all_of_it in zip(places, state.reach["mismatched"], below, strict=True):
        share = f"{wrong / all_of_it:.1%}" if all_of_it else "none"
        left.annotate(share, (place, all_of_it), (0, 2), textcoords="offset points", ha="center", fontsize=7)
    left.set_xticks(places, [f"{tau:g}" for tau in THRESHOLDS])
    left.set_ylim(0, max(1.3 * float(below.max()), 0.01))
    left.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    label(left, "pairs that reach a threshold; above: mismatched of them", "threshold", "share of all pairs")
    left.legend(fontsize=8, frameon=False, ncols=2, loc="upper right")
    lines(right, state.epochs, {"purity": state.purity, "share of the pairs in it": state.share})
    right.set_ylim(0, 1.05)
    right.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    label(right, "bank in each epoch", "epoch", "")
    right.legend(fontsize=8, frameon=False, loc="best")
    return figure


def draw_weights(run: FinishedRun) -> Figure:
    """Histograms of the last weights and of their means over the epochs, for each network."""
    shown = {"last epoch": final(run, "weight"), "mean over the epochs": final(run, "mean_weight")}
    columns = len(shown["last epoch"])
    figure, axes = canvas(f"{run.title}: weights", len(shown), columns, width=4.6, height=2.6)
    for row, (when, networks) in zip(axes, shown.items(), strict=True):
        edges = bins(networks)
        for k, (panel, values) in enumerate(zip(row, networks, strict=True)):
            bars(panel, edges, spread(values, edges))
            label(panel, f"network {k}, {when}", "weight w of the pair", "share of the group" if k == 0 else "")
    axes[0, 0].legend(fontsize=8, frameon=False)
    return figure


def draw_structure(run: FinishedRun) -> Figure:
    """Densities of S_IM, by group and of the two fitted Gaussians, each times its share of the pairs."""
    networks = final(run, "structure")
    figure, axes = canvas(f"{run.title}: agreement of structures", 1, len(networks), width=4.6, height=2.8)
    for k, (panel, values) in enumerate(zip(axes[0], networks, strict=True)):
        every = np.concatenate(list(values.values()))
        edges = np.linspace(every.min(), every.max(), 2 * BINS + 1)
        scale = len(every) * (edges[1] - edges[0])
        overlaid(panel, edges, {group: np.histogram(each, edges)[0] / scale for group, each in values.items()})
        panel.yaxis.set_major_formatter(ScalarFormatter())
        mixture, grid = fit_mixture(1 - every, run.config["seed"]), np.linspace(edges[0], edges[-1], 400)
        if isinstance(mixture, Gaussians) and mixture.has_two_components:
            for m, d, w in zip(mixture.means, mixture.deviations, mixture.weights, strict=True):
                density = w * np.exp(-(((1 - grid - m) / d) ** 2) / 2) / (d * np.sqrt(2 * np.pi))
                panel.plot(grid, density, "--", color="#4d4d4d", linewidth=1.4)
        label(panel, f"network {k}; dashed: fitted Gaussians", "agreement of structures", "density" if k == 0 else "")
    axes[0, 0].legend(fontsize=8, frameon=False)
    return figure


def draw_classes(run: FinishedRun) -> Figure:
    """The images of some pseudo-classes in the plane, a colour for each class."""
    points, classes = in_plane(run)
    figure, axes = canvas(f"{run.title}: images of {len(np.unique(classes))} pseudo-classes", 1, 1, 4.6, 4.2)
    panel = axes[0, 0]
    panel.scatter(*points.T, c=np.unique(classes, return_inverse=True)[1], cmap="tab10", vmin=-0.5, vmax=9.5, s=9)
    panel.set_axis_off()
    return figure


def draw_planted(run: FinishedRun, ratio: float) -> Figure:
    """Histograms of the similarity and of the agreement of structures, with noise that no network was trained on."""
    scores = planted_scores(run, ratio)
    figure, axes = canvas(f"{run.title}, then {ratio:.0%} planted", 1, len(scores), width=4.6, height=2.8)
    for panel, (name, values) in zip(axes[0], scores.items(), strict=True):
        every = np.concatenate(list(values.values()))
        edges = np.linspace(every.min(), every.max(), 2 * BINS + 1)
        overlaid(panel, edges, spread(values, edges))
        label(panel, "", f"{name} of the pair", "share of the group")
    axes[0, 0].legend(fontsize=8, frameon=False)
    return figure


def draw_stability(runs: Sequence[FinishedRun]) -> Figure:
    """R@1 over the share of planted noise, a line and a variance for each method and matcher."""
    ways = {"i2t_r1": "image to text", "t2i_r1": "text to image"}
    figure, axes = canvas("R@1 by planted noise", 1, 2, width=4.6, height=3.2)
    for panel, (measure, way) in zip(axes[0], ways.items(), strict=True):
        for row, (name, (shares, values)) in enumerate(over_noise(runs, measure).items()):
            text = f"{name} (variance {values.var():.2f})"
            panel.plot(shares, values, "o-", color=LINES[row % len(LINES)], label=text, markersize=4, linewidth=1.6)
        panel.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        label(panel, way, "share of planted noise", "R@1")
        panel.legend(fontsize=8, frameon=False)
    return figure


def draw_discrimination(known: Sequence[tuple[FinishedRun, list[int], Values]]) -> Figure:
    """A line for each run."""
    figure, axes = canvas("Training pairs that the method puts on the right side", 1, 1, width=6.4, height=3.4)
    panel = axes[0, 0]
    titles = Counter(run.title for run, _, _ in known)
    for row, (run, epochs, values) in enumerate(known):
        name = run.title if titles[run.title] == 1 else f"{run.title} ({run.name})"
        style = ("-", "--", ":")[row // len(LINES) % 3]
        panel.plot(epochs, values, f"o{style}", color=LINES[row % len(LINES)], label=name, markersize=4, linewidth=1.6)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.yaxis.set_major_formatter(PercentFormatter(1))
    label(panel, "", "epoch", "discrimination accuracy")
    panel.legend(fontsize=8, frameon=False)
    return figure


if __name__ == "__main__":
    sys.exit(main())
