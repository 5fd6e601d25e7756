"""The report's plots: inline SVG with the colours and the font of the page."""

from __future__ import annotations

import io
import math
import re
from typing import TYPE_CHECKING, Literal

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from pairsift.report.reliability import Reliability
from pairsift.retrieve.ranks import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Matplotlib draws in these colours, and each becomes the page's variable: plots follow the reader's light or dark.
TONES = ("clean", "bad", "s3", "s4", "s5", "s6", "s7", "s8")
_PAINT = {name: f"#0a0b{20 + row:02x}" for row, name in enumerate((*TONES, "muted", "line", "band", "ink"))}
BINS = 40
SIZE = 9  # font size of all text, in units of a plot that is 403 wide


def histogram(probability: FloatArray, bad: NDArray[np.bool_] | None, threshold: float | None) -> Markup:
    """Draw the distribution of match probabilities, (n,).

    Args:
        probability: Match probability of each pair, in [0, 1], (n,).
        bad: Whether each pair is drawn in the second colour, (n,), or None for a single colour.
        threshold: Match probability below which pairs are flagged; None where no pairs are flagged.
    """
    figure, axes = _canvas()
    edges = np.linspace(0, 1, BINS + 1)
    clean, _ = np.histogram(probability if bad is None else probability[~bad], edges)
    mismatched, _ = np.histogram(probability[:0] if bad is None else probability[bad], edges)
    if threshold is not None:
        axes.axvspan(0, threshold, color=_PAINT["band"], linewidth=0, zorder=0)
        axes.axvline(threshold, color=_PAINT["muted"], linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        _annotate(axes, "◂ flagged", threshold, -5, "right")
    width, middle = 0.86 / BINS, (edges[:-1] + edges[1:]) / 2
    axes.bar(middle, mismatched, width, color=_PAINT["bad"], zorder=2)
    axes.bar(middle, clean, width, bottom=mismatched, color=_PAINT["clean"], zorder=2)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, max(1.0, 1.16 * float((clean + mismatched).max())))
    axes.set_xlabel("match probability (1 fits)")
    axes.set_ylabel("pairs")
    return _svg(figure, "histogram", f"Histogram of the match probabilities of {len(probability)} pairs")


def curves(
    name: str, ylabel: str, epochs: list[int], lines: dict[str, list[float]], phases: list[str], best: int | None
) -> Markup:
    """Draw values per epoch as lines, and phases as bands.

    Args:
        name: Name of the plot, unique on its page.
        ylabel: Label of the y axis.
        epochs: The epochs, ascending, at least one.
        lines: Values of each line by name, one per epoch; a value that is not a number leaves a gap. The lines have
            the colours of `TONES`, in this order.
        phases: Phase of each epoch.
        best: Epoch to mark on the first line, or None.
    """
    from matplotlib.ticker import MaxNLocator

    figure, axes = _canvas()
    _bands(axes, epochs, phases)
    for tone, values in zip(_cycle(len(lines)), lines.values(), strict=True):
        mark = "o" if len(epochs) <= 40 else ""
        axes.plot(epochs, values, color=_PAINT[tone], linewidth=1.8, marker=mark, markersize=3.5, zorder=3)
    first = next(iter(lines.values()), [])
    if best is not None and best in epochs and first and math.isfinite(first[epochs.index(best)]):
        value = first[epochs.index(best)]
        axes.plot([best], [value], "o", markersize=9, markerfacecolor="none", color=_PAINT["ink"], zorder=4)
        axes.annotate(
            f"best {value:.1f}",
            (best, value),
            xytext=(0, -16),
            textcoords="offset points",
            ha="right" if best > epochs[0] + 0.9 * (epochs[-1] - epochs[0]) else "center",
            color=_PAINT["ink"],
        )
    axes.set_xlim(epochs[0] - 0.5, epochs[-1] + 0.5)
    axes.margins(y=0.2)
    axes.set_xlabel("epoch")
    axes.set_ylabel(ylabel)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _svg(figure, name, f"{ylabel} for each epoch")


def reliability(found: Reliability) -> Markup:
    """Draw the share of matching pairs in each bin over the mean match probability, with intervals."""
    figure, axes = _canvas()
    axes.plot([0, 1], [0, 1], color=_PAINT["muted"], linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.vlines(found.mean, found.low, found.high, color=_PAINT["clean"], linewidth=1.6, zorder=2)
    axes.plot(found.mean, found.share, color=_PAINT["clean"], linewidth=1.2, marker="o", markersize=5, zorder=3)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.03, 1.05)
    axes.set_xlabel("mean match probability")
    axes.set_ylabel("share of matching pairs")
    return _svg(figure, "reliability", f"Share of matching pairs over match probability in {len(found.mean)} bins")


def legend(names: list[str]) -> list[tuple[str, str]]:
    """Return the names of lines or bars, each with its tone."""
    return list(zip(names, _cycle(len(names)), strict=True))


def _cycle(n: int) -> list[str]:
    return [TONES[row % len(TONES)] for row in range(n)]


def _bands(axes: Axes, epochs: list[int], phases: list[str]) -> None:
    """Tint the background of every second phase, and write each phase's name where it first begins."""
    starts = [row for row in range(len(epochs)) if row == 0 or phases[row] != phases[row - 1]]
    named: set[str] = set()
    for count, (row, end) in enumerate(zip(starts, [*starts[1:], len(epochs)], strict=True)):
        left, right = epochs[row] - 0.5, epochs[end - 1] + 0.5
        if count % 2 == 0 and len(starts) > 1:
            axes.axvspan(left, right, color=_PAINT["band"], linewidth=0, zorder=0)
        room = 74 * (right - left) / (epochs[-1] - epochs[0] + 1)  # number of characters that fit into the band
        if phases[row] not in named and len(phases[row]) < room:
            _annotate(axes, phases[row], left, 5, "left")
            named.add(phases[row])


def _annotate(axes: Axes, words: str, x: float, shift: float, side: Literal["left", "right"]) -> None:
    """Write words at the top of a plot, beside `x`."""
    axes.annotate(
        words,
        (x, 1),
        xycoords=("data", "axes fraction"),
        xytext=(shift, -4),
        textcoords="offset points",
        ha=side,
        va="top",
        color=_PAINT["muted"],
    )


def _canvas() -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 2.9), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(axis="y", color=_PAINT["line"], linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=_PAINT["muted"], pad=5, labelsize=SIZE)
    axes.tick_params(axis="x", pad=8)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(_PAINT["line"])
    axes.xaxis.label.set_color(_PAINT["muted"])
    axes.yaxis.label.set_color(_PAINT["muted"])
    return figure, axes


def _svg(figure: Figure, name: str, label: str) -> Markup:
    """Return the figure as an `svg` element, the same bytes for the same data, with unique ids and the page's style."""
    import matplotlib
    from matplotlib.text import Text

    out = io.StringIO()
    for text in figure.findobj(Text):
        text.set_fontsize(SIZE)
    with matplotlib.rc_context({"svg.hashsalt": f"pairsift {name}", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    document = out.getvalue()
    view = re.search(r'viewBox="[^"]*"', document)
    content = document[document.index(">", document.index("<svg")) + 1 : document.rindex("</svg>")]
    content = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", content, flags=re.DOTALL)
    content = re.sub(r'\bid="', f'id="{name}-', content)
    content = content.replace("url(#", f"url(#{name}-").replace('xlink:href="#', f'href="#{name}-')
    for tone, paint in _PAINT.items():
        content = content.replace(paint, f"var(--{tone})")
    box = view.group() if view else ""
    return Markup(f'<svg {box} role="img" aria-label="{escape(label)}">{content.strip()}</svg>')
