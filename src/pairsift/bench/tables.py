"""The tables of a grid: means over seeds with intervals, as Markdown, CSV and LaTeX in the layout of the papers."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy.stats import t

from pairsift.bench.grid import Grid
from pairsift.files import write_text

KEYS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
LEVEL = 0.95
SINGLE, ENSEMBLE = "single", "ensemble"
INTERVAL = (
    "Means over the seeds. From three seeds on, ± is half of the 95% interval of the mean by Student's t, which takes "
    "the seeds for independent draws from a normal distribution; with two seeds, half of their difference; with one, "
    "there is none. A number is bold where no other method of the block lies within its ±, nor it within theirs; the "
    "methods that need the truth are left out of that."
)
HEAD = tuple(key.replace("i2t_r", "i2t R@").replace("t2i_r", "t2i R@").replace("rsum", "rSum") for key in KEYS)
ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
} | {mark: f"\\{mark}" for mark in "&%$#_{}"}


@dataclass(frozen=True)
class Mean:
    """A mean over seeds.

    Attributes:
        value: The mean.
        half: Half the length of the interval around it; None for one seed.
        seeds: Number of seeds.
    """

    value: float
    half: float | None
    seeds: int

    @staticmethod
    def of(values: Sequence[float]) -> Mean:
        """Return the mean of at least one value; `INTERVAL` says what the interval is."""
        n = len(values)
        if n == 1:
            half = None
        elif n == 2:
            half = abs(values[0] - values[1]) / 2
        else:
            half = float(t.ppf((1 + LEVEL) / 2, n - 1)) * stdev(values) / sqrt(n)
        return Mean(mean(values), half, n)

    def above(self, other: Mean) -> bool:
        """Return whether it is higher, and neither mean lies within the interval of the other."""
        if self.half is None or other.half is None:
            return False
        return self.value - other.value > max(self.half, other.half)


@dataclass(frozen=True)
class Line:
    """A line of a table.

    Attributes:
        method: The label of the method.
        view: `single` for the mean of the single networks, `ensemble` for the networks' mean similarity.
        networks: Number of networks that the method trains.
        means: The means by the name of the measure.
        auroc: How well the method's last trust tells mismatched training pairs, a mean over networks and seeds. None
            for a method without trust and where nothing is mismatched.
        best: Measures that no other method comes near in.
    """

    method: str
    view: str
    networks: int
    means: Mapping[str, Mean]
    auroc: float | None = None
    best: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Block:
    """The lines of one noise ratio."""

    noise: float
    lines: list[Line] = field(default_factory=list)


@dataclass(frozen=True)
class Sheet:
    """The table of one matcher and one kind of noise; the blocks without noise are in the tables of all kinds."""

    matcher: str
    kind: str | None
    blocks: list[Block]


def sheets(grid: Grid, rows: Mapping[str, Mapping[str, Any]]) -> list[Sheet]:
    """Return the tables of a grid. Cells without a row are left out.

    Args:
        grid: The grid.
        rows: Rows by the id of the cell.
    """
    tables = []
    for matcher in dict.fromkeys(cell.matcher for cell in grid.cells):
        kinds = dict.fromkeys(cell.kind for cell in grid.cells if cell.noise) or {None: None}
        for kind in kinds:
            blocks = [
                Block(noise, lines)
                for noise in sorted({cell.noise for cell in grid.cells})
                if (lines := list(_lines(grid, rows, (matcher, noise, kind if noise else None))))
            ]
            if blocks:
                tables.append(Sheet(matcher, kind, blocks))
    return tables


def _lines(grid: Grid, rows: Mapping[str, Mapping[str, Any]], place: tuple[str, float, str | None]) -> Iterator[Line]:
    """Yield the lines of a block. A method's single networks come first, then their ensemble."""
    cells = [cell for cell in grid.cells if (cell.matcher, cell.noise, cell.kind) == place and cell.id in rows]
    lines = []
    for method in dict.fromkeys(cell.method for cell in cells):
        group = [rows[cell.id] for cell in cells if cell.method == method]
        networks = max(row["networks"] for row in group)
        views = {SINGLE: "recall_single", ENSEMBLE: "recall"} if networks > 1 else {SINGLE: "recall"}
        for view, name in views.items():
            means = {key: Mean.of([row[name][key] for row in group]) for key in KEYS}
            lines.append(Line(method, view, networks, means, _auroc(group)))
    for line in lines:
        rivals = [other for other in lines if other.view == line.view and other.method in grid.without_truth]
        yield replace(line, best=_best(line, rivals))


def _auroc(group: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean AUROC of rows; None unless each row has one."""
    values = [row["trust_auroc"] for row in group]
    return None if None in values else mean(values)


def _best(line: Line, rivals: Collection[Line]) -> frozenset[str]:
    """Return the measures of a line that are above all rivals.

    There are none for a line that is no rival itself, or the only one.
    """
    others = [other for other in rivals if other is not line]
    if not others or len(others) == len(rivals):
        return frozenset()
    return frozenset(key for key in KEYS if all(line.means[key].above(other.means[key]) for other in others))


def write_tables(folder: Path, sheets: Sequence[Sheet]) -> list[Path]:
    """Write `table.md`, `table.csv` and `table.tex`, and return their paths.

    Raises:
        WriteError: A file cannot be written.
    """
    texts = {"table.md": markdown(sheets), "table.csv": csv_text(sheets), "table.tex": latex(sheets)}
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def markdown(sheets: Sequence[Sheet]) -> str:
    """Return a table for each matcher and kind of noise, and what its intervals are."""
    lines = []
    for sheet in sheets:
        lines += [f"## {_title(sheet)}", "", _bars(["noise", "method", "networks", "seeds", *HEAD, "AUROC"])]
        lines.append(_bars(["---"] * (5 + len(HEAD))))
        for block in sheet.blocks:
            for line in block.lines:
                cells = [
                    f"**{mean_text(mean, '±')}**" if key in line.best else mean_text(mean, "±")
                    for key, mean in line.means.items()
                ]
                cells.append("" if line.auroc is None else f"{line.auroc:.3f}")
                lines.append(_bars([f"{block.noise:.4g}", line.method.replace("|", "\\|"), *_counts(line), *cells]))
        lines.append("")
    return "\n".join([*lines, INTERVAL, ""])


def csv_text(sheets: Sequence[Sheet]) -> str:
    """Return all tables as one, with a column for each mean and one for half of its interval.

    The second is empty where a mean has no interval. The last column is the AUROC of the method's trust. Lines without
    noise, which are in the tables of all kinds, are written once.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    halves = [name for key in KEYS for name in (key, f"{key}_half")]
    writer.writerow(["matcher", "noise_kind", "noise", "method", "view", "networks", "seeds", *halves, "trust_auroc"])
    written = set()
    for sheet in sheets:
        for block in sheet.blocks:
            for line in block.lines:
                numbers = [x for key in KEYS for x in (line.means[key].value, line.means[key].half)]
                counts = [line.networks, line.means["rsum"].seeds]
                kind = sheet.kind if block.noise and sheet.kind else ""  # without noise, all kinds are one
                place = (sheet.matcher, kind, block.noise, line.method, line.view)
                if place not in written:
                    writer.writerow([*place, *counts, *("" if x is None else repr(x) for x in [*numbers, line.auroc])])
                written.add(place)
    return text.getvalue()


def latex(sheets: Sequence[Sheet]) -> str:
    """Return a `tabular` for each matcher and kind of noise; it needs no package."""
    lines = [f"% {INTERVAL}"]
    for sheet in sheets:
        lines += [
            "",
            f"% {_title(sheet)}",
            r"\begin{tabular}{ll" + "r" * (2 + len(KEYS)) + "}",
            r"\hline",
            r" & & & & \multicolumn{3}{c}{Image to text} & \multicolumn{3}{c}{Text to image} & \\",
            r"Noise & Method & Networks & Seeds & R@1 & R@5 & R@10 & R@1 & R@5 & R@10 & rSum \\",
        ]
        for block in sheet.blocks:
            lines.append(r"\hline")
            for number, line in enumerate(block.lines):
                noise = "" if number else escape_latex(f"{100 * block.noise:.4g}%")
                cells = [_latex_cell(mean, key in line.best) for key, mean in line.means.items()]
                lines.append(" & ".join([noise, escape_latex(line.method), *_counts(line), *cells]) + r" \\")
        lines += [r"\hline", r"\end{tabular}"]
    return "\n".join([*lines, ""])


def escape_latex(text: str) -> str:
    """Return a text that LaTeX sets letter by letter."""
    return "".join(ESCAPES.get(letter, letter) for letter in text)


def mean_text(mean: Mean, sign: str) -> str:
    """Return a mean and half of its interval with one digit each."""
    return f"{mean.value:.1f}" if mean.half is None else f"{mean.value:.1f} {sign} {mean.half:.1f}"


def _latex_cell(mean: Mean, best: bool) -> str:
    value = rf"\textbf{{{mean.value:.1f}}}" if best else f"{mean.value:.1f}"
    return value if mean.half is None else rf"{value} $\pm$ {mean.half:.1f}"


def _counts(line: Line) -> list[str]:
    """Return the networks and the seeds of a line, such as `1 of 2` and `3`."""
    networks = str(line.networks) if line.view == ENSEMBLE else "1" if line.networks == 1 else f"1 of {line.networks}"
    return [networks, str(line.means["rsum"].seeds)]


def _title(sheet: Sheet) -> str:
    return sheet.matcher if sheet.kind is None else f"{sheet.matcher}, noise {sheet.kind}"


def _bars(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
