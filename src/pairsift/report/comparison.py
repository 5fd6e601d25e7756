"""The page of runs side by side: a single HTML file that needs no other file, no script and no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pairsift.files import write_text
from pairsift.report.html import Tree, render

LONGEST = 48  # characters of a run's name
MEASURES = ("auroc", "precision", "recall")


def write_comparison(path: Path, comparison: Tree) -> None:
    """Write runs side by side as a self-contained HTML file; a failed write keeps the old file.

    Args:
        path: Path of the file, in an existing folder.
        comparison: The comparison as plain values, from `Comparison.tree`.
    """
    runs = comparison["runs"]
    facts = {
        "longest": LONGEST,
        "measures": [name for name in MEASURES if any(name in run["detection"] for run in runs)],
        "sums": _scale(runs, "recall"),
        "differences": _scale(runs[1:], "difference"),
    }
    write_text(path, render("comparison.html", **comparison, **facts))


def _scale(runs: Sequence[Tree], kind: str) -> dict[str, Any]:
    """Return where the rSum of each run and its interval lie on a common scale, in percent of its width.

    The scale of differences includes 0.
    """
    estimates = [(run["run"], run[kind]["rsum"]) for run in runs]
    ends: list[float] = [one[end] for _, one in estimates for end in ("low", "high", "value")] + [0.0] * (
        kind == "difference"
    )
    margin = 0.08 * (max(ends) - min(ends)) or 1.0
    start, width = min(ends) - margin, max(ends) - min(ends) + 2 * margin

    def place(value: float) -> float:
        return 100 * (value - start) / width

    bars = [
        {
            "run": name,
            "estimate": one,
            "start": place(one["low"]),
            "place": place(one["value"]),
            "width": 100 * (one["high"] - one["low"]) / width,
        }
        for name, one in estimates
    ]
    return {"bars": bars, "zero": place(0.0) if kind == "difference" else None}
