"""Means over seeds with their intervals, and which method is best beyond them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import mean, stdev
from typing import Any

from scipy.stats import t

from pairsift.bench.grid import Grid

KEYS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
LEVEL = 0.95
SINGLE, ENSEMBLE = "single", "ensemble"
INTERVAL = (
    "Means over the seeds. From three seeds on, ± is half of the 95% interval of the mean by Student's t, which takes "
    "the seeds for independent draws from a normal distribution; with two seeds, half of their difference; with one, "
    "there is none. A number is bold where no other method of the block lies within its ±, nor it within theirs; the "
    "methods that need the truth are left out of that."
)


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
        auroc: AUROC with which the method's last trust tells mismatched training pairs, mean of the networks and of the
            seeds; None for a method without trust and where nothing is mismatched.
        best: Measures in which no other method comes near.
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
    """Return the tables of a grid by the rows that there are; cells without a row are left out.

    Args:
        grid: The grid.
        rows: Rows by the id of the cell.
    """
    found = []
    for matcher in dict.fromkeys(cell.matcher for cell in grid.cells):
        kinds = dict.fromkeys(cell.kind for cell in grid.cells if cell.noise) or {None: None}
        for kind in kinds:
            blocks = [
                Block(noise, lines)
                for noise in sorted({cell.noise for cell in grid.cells})
                if (lines := list(_lines(grid, rows, (matcher, noise, kind if noise else None))))
            ]
            if blocks:
                found.append(Sheet(matcher, kind, blocks))
    return found


def _lines(grid: Grid, rows: Mapping[str, Mapping[str, Any]], place: tuple[str, float, str | None]) -> Iterator[Line]:
    """Yield the lines of a block: a method's single networks, then their ensemble where there are several."""
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
        rivals = [one for one in lines if one.view == line.view and one.method in grid.without_truth]
        yield replace(line, best=_best(line, rivals))


def _auroc(group: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean AUROC of the trust of rows; None unless each has one."""
    found = [row["trust_auroc"] for row in group]
    return None if None in found else mean(found)


def _best(line: Line, rivals: Collection[Line]) -> frozenset[str]:
    """Return the measures in which a line is above all rivals; none if it is not one of them, or alone."""
    others = [one for one in rivals if one is not line]
    if not others or len(others) == len(rivals):
        return frozenset()
    return frozenset(key for key in KEYS if all(line.means[key].above(one.means[key]) for one in others))
