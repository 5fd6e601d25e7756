"""The verb `compare`: runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairsift.cli.shared import OVERWRITE, QUIET
from pairsift.cli.summary import KEYS
from pairsift.errors import InputError
from pairsift.files import write_json
from pairsift.run_folder import require_finished

if TYPE_CHECKING:
    from pairsift.retrieve.bootstrap import Estimate
    from pairsift.runs.compare import ComparedRun, Comparison

Rows = list[list[str]]
LONGEST = 36  # characters of a run's name; the end of the path tells runs apart


@click.command()
@click.argument("runs", metavar="RUN RUN...", nargs=-1, required=True)
@click.option("--split", default="test", show_default=True, help="train, dev or test.")
@click.option("--samples", type=click.IntRange(1), default=1000, show_default=True, help="Number of resamples.")
@click.option("--json", "file", type=Path, metavar="FILE", help="Also write the numbers to this file.")
@click.option("--html", "page", type=Path, metavar="FILE", help="Also write a page to this file.")
@click.option(
    "--train-on", "export", type=Path, metavar="EXPORT", help="First train on an export of the run, by its options."
)
@click.option("--out", type=Path, metavar="FOLDER", help="Folder of that training; by default RUN-cleaned.")
@click.option("--resume", is_flag=True, help="Continue that training where it was stopped.")
@OVERWRITE
@QUIET
def compare(
    runs: tuple[str, ...],
    split: str,
    samples: int,
    file: Path | None,
    page: Path | None,
    quiet: bool,
    export: Path | None,
    **training: Any,
) -> None:
    """Put finished runs side by side, and give the differences to the first.

    All runs are measured on the pairs that all of them have in the split: the same image name and the same caption.
    Intervals come from a bootstrap over the images. With --train-on, an export of the first run is trained on by
    the options of this run, and put beside it: before and after cleaning.
    """
    if export is None and (given := next((name for name, value in training.items() if value), None)):
        raise InputError(f"--{given} goes with --train-on EXPORT")
    if export is None and len(runs) < 2:
        raise InputError(f"{runs[0]} alone cannot be compared: give at least two runs, or --train-on EXPORT")
    for run in runs:
        require_finished(Path(run))
    from pairsift.runs.compare import compare as compare_runs
    from pairsift.runs.run import Run

    opened = [Run(run, progress=not quiet) for run in runs]
    if export is not None:
        from pairsift.runs.cleaned import fit_cleaned

        opened.append(fit_cleaned(opened[0], export, **training))
    comparison = compare_runs(opened, split, samples)
    print(comparison_text(comparison))
    if file:
        write_json(file, comparison.tree())
    if page:
        from pairsift.report.comparison import write_comparison

        write_comparison(page, comparison.tree())


def comparison_text(comparison: Comparison) -> str:
    """Return the recall with its intervals, the differences to the first run, and what the audits say, as tables."""
    head = (
        f"{comparison.split}: {comparison.images:,} images and {comparison.captions:,} captions; intervals hold "
        f"{comparison.level:.0%} of {comparison.samples:,} resamples of the images (seed {comparison.seed})"
    )
    rows: Rows = [["", *(key.replace("_r", " R@").replace("rsum", "rSum") for key in KEYS)]]
    for run in comparison.runs:
        rows += _recall_rows(_short(run.run), run.recall, "")
    differences: Rows = [["minus " + _short(comparison.runs[0].run), *[""] * len(KEYS)]]
    for run in comparison.runs[1:]:
        differences += _recall_rows(_short(run.run), run.difference, "+")
    lines = [*_aligned([*rows, *differences]), "", *_aligned(_audit_rows(comparison.runs))]
    lines.insert(len(rows), "")
    return "\n".join([head, *(f"note: {note}" for note in comparison.notes), "", *lines])


def _recall_rows(name: str, recall: dict[str, Estimate], sign: str) -> Rows:
    """Return a row of numbers and, below it, a row of their intervals."""
    estimates = [recall[key] for key in KEYS]
    intervals = [f"[{one.low:{sign}.1f},{one.high:{sign}.1f}]" for one in estimates]
    return [[name, *(f"{one.value:{sign}.1f}" for one in estimates)], ["", *intervals]]


def _audit_rows(runs: Sequence[ComparedRun]) -> Rows:
    """Return a row for each run: the share of mismatched training pairs, the suspects, and their detection."""
    measures = [name for name in ("auroc", "precision", "recall") if any(name in run.detection for run in runs)]
    titles = {"auroc": "AUROC", "precision": "precision", "recall": "recall"}
    rows = [["", "noise rate [90%]", "suspects", *(titles[name] for name in measures)]]
    for run in runs:
        cells = [_short(run.run), _rate(run.noise_rate), _suspects(run)]
        for name in measures:
            one = run.detection.get(name)
            cells.append("-" if one is None else f"{one.value:.3f} [{one.low:.3f},{one.high:.3f}]")
        rows.append(cells)
    return rows


def _rate(rate: dict[str, float | None]) -> str:
    estimated, low, high = (rate.get(name) for name in ("estimated", "low", "high"))
    if estimated is None:
        return "-"
    interval = "" if low is None or high is None else f" [{100 * low:.1f},{100 * high:.1f}]"
    return f"{estimated:.1%}{interval}"


def _suspects(run: ComparedRun) -> str:
    return "-" if run.suspects is None else f"{run.suspects:,} of {run.judged:,}"


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}"


def _aligned(rows: Rows) -> list[str]:
    """Return the rows as lines: the first column to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
