"""The verb `spot-check`: a few pairs that a person judges, and what they say about all pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pairsift.cli.shared import RUN

if TYPE_CHECKING:
    from pairsift.review.spot_check import SpotResult


@click.command("spot-check")
@RUN
@click.option("--pairs", type=int, metavar="N", help="Draw a new spot check of 20 to 100 pairs.")
@click.option("--apply", is_flag=True, help="Recalibrate the run's match probabilities by the answers.")
@click.option("--source", metavar="PATH", help="New path of the run's source, if it has moved; for --apply.")
def spot_check(run: Path, pairs: int | None, apply: bool, source: str | None) -> None:
    """Check the match probabilities of a run by a few pairs that you judge.

    The first call draws 50 pairs. Keep, drop or replace each of them, in the browser or in a table; then call again.
    """
    from pairsift.review.spot_check import SpotCheck
    from pairsift.runs.spot_check import is_recalibrated, spot_result
    from pairsift.runs.spot_check import spot_check as draw

    if apply:
        from pairsift.runs.run import Run

        result = Run(run, source=source).recalibrate()
        files = f"{run}/pairs.parquet, suspects.csv, metrics.json and report.html"
        print(f"{summary(result, applied=True)}\nrecalibrated: {files}")
        return
    if pairs is not None or SpotCheck.read(run) is None:
        from pairsift.review.spot_check import write_sheet
        from pairsift.table import read_pairs

        check = draw(run, pairs)
        sheet = write_sheet(check, read_pairs(run), run)
        print(
            f"drew {len(check.pairs)} pairs. Decide on each of them in the browser: pairsift serve {run}\n"
            f"or write keep, drop or replace into the column decision of {sheet}, then: "
            f"pairsift decide {run} --from {sheet}"
        )
        return
    print(summary(spot_result(run), is_recalibrated(run)))


def summary(result: SpotResult, applied: bool) -> str:
    """Return what the answers to a spot check say, in a few lines.

    Args:
        result: What they say.
        applied: Whether the probabilities are recalibrated by them.
    """
    from pairsift.review.spot_check import MIN_ANSWERS

    first = f"{result.answered} of {result.asked} pairs are answered"
    if result.answered:
        first += f"; {result.mismatched} of these do not match"
    if result.rate is None or result.low is None or result.high is None:
        return f"{first}\na result needs {MIN_ANSWERS} answers"
    have = "have" if applied else "would have"
    change = f"{result.flagged_after:,} pairs instead of {result.flagged:,} {have} a match probability below 0.5"
    if applied:
        advice = f"the probabilities are recalibrated by them\n{change}"
    elif result.agrees:
        advice = f"they agree\nthere is no need to recalibrate (--apply); {change}"
    else:
        advice = f"they do not agree\nrecalibrated (--apply), {change}"
    return (
        f"{first}\n"
        f"mismatched pairs: {result.expected:.1%} by the match probabilities, {result.rate:.1%} by the answers "
        f"(90% interval {result.low:.1%} to {result.high:.1%}): {advice}"
    )
