"""What people decided about pairs: keep, drop, or replace the caption."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pairsift.arrays import Bools, Ints, Reals
from pairsift.errors import InputError, similar
from pairsift.marker import run_id
from pairsift.pairs.text import printable
from pairsift.review.journal import OF_PAIRS, Change, Journal
from pairsift.table import PairRows

DECISIONS_FILE = "decisions.sqlite"
CHOICES = ("keep", "drop", "replace")
CLEAR = "clear"  # takes a pair's decision away, as if it had never been reviewed
REASONS = ("wrong image", "wrong detail", "too vague", "duplicate caption", "other")
MAX_CAPTION = 10_000  # characters of a caption
REVIEWER = "reviewer"
SCHEMA = pa.schema(
    [
        ("pair", pa.int64()),
        ("decision", pa.string()),
        ("new_caption", pa.string()),
        ("from_pair", pa.int64()),
        ("reason", pa.string()),
        ("reviewer", pa.string()),
        ("time", pa.string()),
    ]
)
DECISION_COLUMNS = SCHEMA.names[1:]
CURRENT = """
SELECT current.pair, decision, caption, from_pair, reason, reviewer, time
FROM current JOIN events USING (event)
"""
NEAR = {True: "counted too", False: "mostly not counted", None: "mostly not counted without --mismatches near"}
# What is valid now on the pairs that the entries after a number are about; pairs without a decision have none.
SINCE = """
SELECT DISTINCT changes.pair, current.decision, current.reason, (SELECT max(event) FROM events)
FROM events JOIN changes ON changes.event = coalesce(events.target, events.event)
LEFT JOIN current ON current.pair = changes.pair
WHERE events.event > ?
"""
HISTORY = """
SELECT event, time, reviewer, kind, target, (SELECT count(*) FROM changes WHERE changes.event = events.event)
FROM events ORDER BY event DESC LIMIT ?
"""


@dataclass(frozen=True)
class Decision:
    """A decision on a pair.

    Attributes:
        pair: Id of the pair.
        choice: `keep`, `drop`, `replace`, or `clear`, which takes an earlier decision away.
        caption: The new caption, for `replace` alone.
        from_pair: Id of the pair that has the new caption; None where a person wrote it.
        reason: One of `REASONS`, or None.
    """

    pair: int
    choice: Literal["keep", "drop", "replace", "clear"]
    caption: str | None = None
    from_pair: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Event:
    """An entry of the journal.

    Attributes:
        event: Number of the entry, ascending in time.
        time: UTC time as ISO 8601, to the millisecond.
        reviewer: Who decided.
        kind: `decide`, `undo` or `redo`.
        target: The entry that was undone or redone; None for `decide`.
        pairs: Number of pairs that were decided on; 0 for `undo` and `redo`.
    """

    event: int
    time: str
    reviewer: str
    kind: str
    target: int | None
    pairs: int


class OtherRun(InputError):
    """A decision on pairs of a run that another run has taken the place of.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder} holds another run by now: nothing was recorded; open it again")


class Decisions:
    """The decisions on a run's pairs, kept in `decisions.sqlite` in its folder.

    Nothing is ever removed from the file: an undo is an entry of its own. Several reviewers, processes and browser tabs
    may decide at the same time; on one pair, the last decision counts.

    Args:
        folder: The run's folder.
        ids: Ids of the run's pairs that can be decided on, (n,).

    Attributes:
        run: Id of the run in the folder; no decision is recorded once another run has taken its place there.
    """

    def __init__(self, folder: Path, ids: Ints) -> None:
        self._folder, self.run = folder, run_id(folder)
        self._journal = Journal(folder / DECISIONS_FILE)
        self._rows = PairRows(ids)

    def decide(
        self,
        decisions: Iterable[Decision],
        reviewer: str = REVIEWER,
        key: str | None = None,
        seen: Mapping[int, str | None] | None = None,
        only_undecided: bool = False,
    ) -> int | None:
        """Record decisions as one entry, which one undo takes back, and return the number of its entry.

        Args:
            decisions: At most one for each pair.
            reviewer: Who decides; undo and redo are separate for each reviewer.
            key: Any text. A call with the key of an earlier call does nothing, so that a request can be repeated.
            seen: For pairs, the `time` of the decision that the reviewer saw, None for no decision.
            only_undecided: Whether pairs that have a decision are left out. Without any other nothing is recorded, and
                None is returned.

        Raises:
            DecidedMeanwhile: A pair of `seen` has another decision by now. Then none is recorded.
            InputError: A pair is unknown or decided twice, or a decision is incomplete. Then none is recorded.
            WriteError: The file cannot be written.
        """
        changes = [_change(decision) for decision in decisions]
        pairs, counts = np.unique([change[0] for change in changes], return_counts=True)
        if (counts > 1).any():
            raise InputError(f"pair {pairs[counts > 1][0]} is decided twice at once: decide each pair once")
        self._require_known([change[0] for change in changes])
        self._require_known([change[3] for change in changes if change[3] is not None])
        self._require_same_run()
        return self._journal.decide(changes, _reviewer(reviewer), key, seen, only_undecided)

    def entry_of(self, key: str | None) -> int | None:
        """Return the number of the entry with this key; None where there is none."""
        rows = [] if key is None else self._journal.rows("SELECT event FROM events WHERE key = ?", (key,))
        return int(rows[0][0]) if rows else None

    def time_of(self, event: int | None) -> str | None:
        """Return the UTC time of an entry as ISO 8601, to the millisecond; None for None."""
        return None if event is None else self._journal.rows("SELECT time FROM events WHERE event = ?", (event,))[0][0]

    def undo(self, reviewer: str = REVIEWER, key: str | None = None) -> list[int]:
        """Take back the reviewer's last entry that is still valid, and return its pairs; an empty list if none is."""
        self._require_same_run()
        return self.pairs_of(self._journal.undo(_reviewer(reviewer), key))

    def redo(self, reviewer: str = REVIEWER, key: str | None = None) -> list[int]:
        """Apply again what the reviewer undid last, and return its pairs; an empty list if there is nothing to redo."""
        self._require_same_run()
        return self.pairs_of(self._journal.redo(_reviewer(reviewer), key))

    def table(self) -> pa.Table:
        """Return the valid decisions, by pair.

        The columns are `pair`, `decision`, `new_caption`, `from_pair`, `reason`, `reviewer` and `time`.
        It is a snapshot: decisions that are made while it is read are either all in it or not at all.
        """
        columns = zip(*self._journal.rows(f"{CURRENT} ORDER BY current.pair"), strict=True)
        values = list(columns) or [()] * len(SCHEMA)
        return pa.table([pa.array(column, kind.type) for column, kind in zip(values, SCHEMA, strict=True)], SCHEMA)

    def of_pairs(self, pairs: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return the valid decisions on these pairs, with the columns of `table` after `pair`, by pair."""
        rows = self._journal.rows(CURRENT + OF_PAIRS, (json.dumps(list(pairs)),))
        return {row[0]: dict(zip(DECISION_COLUMNS, row[1:], strict=True)) for row in rows}

    def of_sample(self, pairs: Sequence[int]) -> pa.Table:
        """Return the valid decisions on a sample of pairs, with the columns of `table`.

        Decisions by a filter or a threshold, that is, by entries that are about pairs outside the sample too, are left
        out: nobody has looked at each of their pairs.
        """
        entries = self._journal.rows(f"SELECT pair, event FROM current {OF_PAIRS}", (json.dumps(list(pairs)),))
        inside = {event for event in {event for _, event in entries} if set(pairs).issuperset(self.pairs_of(event))}
        decided = self.of_pairs([pair for pair, event in entries if event in inside])
        return pa.Table.from_pylist([{"pair": pair, **row} for pair, row in sorted(decided.items())], SCHEMA)

    def changes_since(self, event: int) -> tuple[int, dict[str, list[Any]]]:
        """Return the number of the last entry, and what is valid now on the pairs of the entries after `event`.

        Args:
            event: Number of an entry; 0 for all.

        Returns:
            The number, and the columns `pair`, `decision` (None for a pair without one) and `reason`.
        """
        rows = self._journal.rows(SINCE, (event,))
        columns = list(zip(*rows, strict=True))[:3] or [(), (), ()]
        last = rows[0][3] if rows else event
        return last, dict(zip(("pair", "decision", "reason"), map(list, columns), strict=True))

    def history(self, limit: int = 100) -> list[Event]:
        """Return the last entries of the journal, the newest first."""
        return [Event(*row) for row in self._journal.rows(HISTORY, (limit,))]

    def decided(self) -> Ints:
        """Return the ids of the pairs with a valid decision, ascending, (n,)."""
        return np.array([pair for (pair,) in self._journal.rows("SELECT pair FROM current ORDER BY pair")], np.int64)

    def pairs_of(self, event: int | None) -> list[int]:
        """Return the pairs that an entry decided on, ascending; an empty list for None."""
        query = "SELECT pair FROM changes WHERE event = ? ORDER BY pair"
        return [pair for (pair,) in self._journal.rows(query, (event,))]

    def _require_same_run(self) -> None:
        """Raise an error where the folder holds another run by now, whose pairs may have the same ids."""
        if run_id(self._folder) != self.run:
            raise OtherRun(self._folder)

    def _require_known(self, pairs: Sequence[int]) -> None:
        unknown = np.flatnonzero(self._rows.find(pairs) < 0)
        if len(unknown):
            pair = pairs[unknown[0]]
            raise InputError(f"the run has no judged pair {pair}: take ids from the column `pair` of its tables")


def decisions_in_words(folder: Path) -> str | None:
    """Return how many decisions a run's folder holds, such as `90 decisions`; None where nobody ever decided."""
    decisions = Decisions(folder, np.zeros(0, np.int64))
    try:
        if not decisions.history(1):
            return None
        n = len(decisions.decided())
    except InputError:
        return f"decisions that cannot be read ({DECISIONS_FILE})"
    return f"{n:,} decision{'s' * (n != 1)}" if n else "decisions that were undone"


def threshold_table(probability: Reals, thresholds: Sequence[float]) -> pa.Table:
    """Return how many pairs lie below each threshold, and how many of these are expected to match.

    Args:
        probability: Match probability of each pair, [0, 1], (n,).
        thresholds: Thresholds, [0, 1].

    Returns:
        `threshold`, `pairs` (those with a smaller probability), `expected_matching` (the sum of their probabilities)
        and `expected_mismatched`.
    """
    ordered = np.sort(np.asarray(probability, np.float64))
    sums = np.concatenate([np.zeros(1), ordered.cumsum()])
    below = np.searchsorted(ordered, np.asarray(thresholds, np.float64), side="left")
    columns = {"threshold": np.asarray(thresholds, np.float64), "pairs": below, "expected_matching": sums[below]}
    return pa.table({**columns, "expected_mismatched": below - sums[below]})


def note_on_rates(probability: Reals, metrics: Mapping[str, Any]) -> str:
    """Return sentences on the sum of a threshold table's counts beside the estimated rate, and which of them to trust.

    They differ: the rate is about the training pairs, and fits all evidence at once; the probability of each pair
    also depends on where the pair lies, and a spot check may have recalibrated it.

    Args:
        probability: Match probability of each judged pair, [0, 1], (n,).
        metrics: The run's metrics.

    Returns:
        The sentences; empty where no rate is estimated.
    """
    rate = metrics.get("noise_rate") or {}
    if not len(probability) or rate.get("estimated") is None:
        return ""
    expected = float(1 - np.mean(probability))
    interval = "" if rate.get("low") is None else f" ({rate['low']:.1%} to {rate['high']:.1%})"
    line = (
        f"By the probabilities, {expected * len(probability):,.0f} of all {len(probability):,} judged pairs "
        f"({expected:.1%}) are mismatched. The estimated rate, {rate['estimated']:.1%}{interval}, "
    )
    if "spot_check" in metrics:
        return line + "is from before the spot check that recalibrated the probabilities: trust these."
    line += (
        "is estimated separately: for the training pairs alone where their rate clearly differs from the rate "
        "of the other pairs, else for all. For numbers of pairs, trust the "
        "probabilities; for how far both may be wrong, the interval."
    )
    near = (metrics.get("expected_auroc") or {}).get("near")
    if near is None:
        return line
    return line + (
        f" Captions that read much like the right ones are {NEAR[metrics.get('counts_near')]}: such a pair is expected "
        f"to rank below a matching one in at most {near:.0%} of cases. Those with a single wrong word hardly count."
    )


def undecided_below(table: pa.Table, threshold: float, decided: Ints) -> tuple[Ints, Reals]:
    """Return the pairs without a decision whose match probability is below a threshold, and these probabilities, (n,).

    Args:
        table: The table of judged pairs.
        threshold: A probability, [0, 1].
        decided: Ids of the pairs with a decision, (m,).
    """
    ids, probability = table["pair"].to_numpy(), table["match_probability"].to_numpy()
    rows: Bools = (probability < threshold) & ~np.isin(ids, decided)
    return ids[rows].astype(np.int64), probability[rows]


def _change(decision: Decision) -> Change:
    """Return a decision as the journal holds it.

    Raises:
        InputError: It is incomplete, or one of its words is unknown.
    """
    choice, caption, place = decision.choice, decision.caption, f"pair {decision.pair}"
    if choice not in (*CHOICES, CLEAR):
        raise InputError(f"{place}: there is no decision {choice!r}; {similar(str(choice), (*CHOICES, CLEAR))}")
    if decision.reason is not None and decision.reason not in REASONS:
        raise InputError(f"{place}: there is no reason {decision.reason!r}; {similar(decision.reason, REASONS)}")
    if choice != "replace":
        if caption is not None or decision.from_pair is not None:
            raise InputError(f"{place}: has a new caption, and its decision is {choice!r}: only replace has one")
        return decision.pair, None if choice == CLEAR else choice, None, None, decision.reason
    text = printable(caption or "").replace("\r\n", "\n").strip()
    if not text or len(text) > MAX_CAPTION:
        size = f"{len(text):,} characters" if text else "none"
        raise InputError(f"{place}: replace needs a new caption of 1 to {MAX_CAPTION:,} characters; it has {size}")
    return decision.pair, choice, text, decision.from_pair, decision.reason


def _reviewer(name: str) -> str:
    """Return the name of a reviewer without surplus white space.

    Raises:
        InputError: It is empty or has more than 100 characters.
    """
    text = " ".join(name.split())
    if not 0 < len(text) <= 100:
        raise InputError(f"a reviewer's name has 1 to 100 characters, not {len(text)}")
    return text
