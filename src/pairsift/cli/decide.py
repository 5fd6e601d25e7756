"""The verb `decide`: decisions on pairs in bulk, from a table or by a threshold, with undo and redo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pairsift.cli.shared import QUIET, RUN, in_words
from pairsift.errors import InputError
from pairsift.run_folder import require_finished

if TYPE_CHECKING:
    import pyarrow as pa

    from pairsift.review import Decisions


@click.command()
@RUN
@click.option(
    "--from",
    "file",
    type=Path,
    metavar="PATH",
    help="Record the decisions of a table, or of another run on these pairs.",
)
@click.option(
    "--drop-below", type=click.FloatRange(0, 1), metavar="P", help="Drop all pairs with a smaller match probability."
)
@click.option("--undo", is_flag=True, help="Take back the reviewer's last entry.")
@click.option("--redo", is_flag=True, help="Apply again what the reviewer undid last.")
@click.option("--reason", help="Why: wrong image, wrong detail, too vague, duplicate caption, other.")
@click.option("--reviewer", default="reviewer", show_default=True, help="Who decides; undo is separate for each name.")
@QUIET
def decide(
    run: Path,
    file: Path | None,
    drop_below: float | None,
    undo: bool,
    redo: bool,
    reason: str | None,
    reviewer: str,
    quiet: bool,
) -> None:
    """Keep, drop or rewrite pairs in bulk; without an option, show what is decided.

    A table of decisions has the columns pair and decision (keep, drop, replace or clear), and may have new_caption,
    from_pair and reason. Pairs with a decision are left alone by --drop-below, and by --from with another run.
    """
    if sum((file is not None, drop_below is not None, undo, redo)) > 1:
        raise InputError("--from, --drop-below, --undo and --redo exclude each other: give one of them")
    if reason is not None and drop_below is None:
        raise InputError("--reason goes with --drop-below; a table of decisions has a column reason")
    from pairsift.review import Decisions
    from pairsift.table import read_pairs

    table = read_pairs(run)
    decisions = Decisions(run, table["pair"].to_numpy())
    line = ""
    if file is not None and file.is_dir():
        line = _from_run(decisions, table, file)
    elif file is not None:
        line = _from_file(decisions, table, file, reviewer)
    elif drop_below is not None:
        line = _drop_below(decisions, table, drop_below, reason, reviewer)
    elif undo or redo:
        pairs = decisions.undo(reviewer) if undo else decisions.redo(reviewer)
        verb = "undo" if undo else "redo"
        line = f"{verb}: decision on {in_words(len(pairs))}" if pairs else f"{reviewer} has nothing to {verb}"
    if not quiet:
        print("\n".join(filter(None, (line, _summary(decisions, table.num_rows)))))


def _from_file(decisions: Decisions, table: pa.Table, file: Path, reviewer: str) -> str:
    from pairsift.review import read_decisions

    rows = read_decisions(file, table)
    if not rows:
        raise InputError(f"{file}: no row has a decision: write keep, drop, replace or clear into its column decision")
    before = decisions.of_pairs([row.pair for row in rows])
    changed = [row.pair for row in rows if before.get(row.pair, {}).get("decision", row.choice) != row.choice]
    decisions.decide(rows, reviewer, seen={row.pair: before.get(row.pair, {}).get("time") for row in rows})
    line = f"{file}: decided on {in_words(len(rows))}"
    return f"{line}; {len(changed):,} of them had another decision, which --undo brings back" if changed else line


def _from_run(decisions: Decisions, table: pa.Table, folder: Path) -> str:
    """Take over the decisions of another run on pairs that are undecided here, under their reviewers' names."""
    from pairsift.review.decision_file import decisions_of_run

    require_finished(folder)
    of_reviewers, missing = decisions_of_run(folder, table)
    taken = 0
    for reviewer, rows in of_reviewers.items():
        taken += len(decisions.pairs_of(decisions.decide(rows, reviewer, only_undecided=True)))
    found = sum(map(len, of_reviewers.values()))
    notes = [f"{found - taken:,} on pairs that are decided here"] if found > taken else []
    notes += [f"{missing:,} on pairs that this run does not have"] if missing else []
    left = f"; left out: {', '.join(notes)}" if notes else ""
    return f"{folder}: took over {taken:,} of {in_words(found + missing, 'decision')}{left}"


def _drop_below(decisions: Decisions, table: pa.Table, threshold: float, reason: str | None, reviewer: str) -> str:
    import numpy as np

    from pairsift.review import Decision
    from pairsift.review.decisions import undecided_below
    from pairsift.table import UNKNOWN

    pairs, probability = undecided_below(table, threshold, decisions.decided())
    if not len(pairs):
        return f"no undecided pair has a match probability below {threshold:g}: nothing is dropped"
    drops = [Decision(pair, "drop", reason=reason) for pair in pairs.tolist()]
    kept = np.isin(pairs, decisions.pairs_of(decisions.decide(drops, reviewer, only_undecided=True)))
    pairs, probability = pairs[kept], probability[kept]
    if table["verdict"][0].as_py() == UNKNOWN:
        return f"dropped {in_words(len(pairs))} below {threshold:g}; the run gives no verdicts: check some of them"
    good = f"about {probability.sum():,.0f}" if probability.sum() >= 1 else "fewer than 1"
    return f"dropped {in_words(len(pairs))} below {threshold:g}; {good} of them are expected to match"


def _summary(decisions: Decisions, total: int) -> str:
    from pairsift.review.decisions import CHOICES

    chosen = decisions.table()["decision"].to_pylist()
    counts = {name: chosen.count(name) for name in CHOICES}
    decided = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "nothing"
    return f"decided: {decided}; undecided: {total - len(chosen):,} of {total:,} pairs"
