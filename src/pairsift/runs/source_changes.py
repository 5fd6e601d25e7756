"""The effects of a changed source on a run: kept ids, mended suspects and lapsed decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from pairsift.arrays import Bools, Ints, Reals
from pairsift.detect.judgement import Judgement
from pairsift.errors import InputError
from pairsift.files import read_parquet, write_parquet
from pairsift.pairs.changes import StoredPairs, file_mark, read_stored_pairs, write_known_pairs
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.same_pairs import image_names, without_folders
from pairsift.review import Decision, Decisions
from pairsift.run_folder import KNOWN, PAIRS_FILE, SOURCE
from pairsift.table import read_pairs, storable

# Names in the metrics: suspects that were mended or removed since the first judgement, decisions cleared in the last.
MENDED, LAPSED = "mended_suspects", "lapsed_decisions"
FIRST = "first_suspects.parquet"  # the suspects of the last judgement before any of them was mended
AUDIT = "pairsift audit"  # the reviewer who clears decisions


def known_pairs(folder: Path) -> StoredPairs:
    """Return the pairs with ids in a run: its original pairs, and pairs that a later audit found.

    Args:
        folder: The run's folder.

    Raises:
        InputError: The record of the run's pairs is missing or damaged.
    """
    stored = read_stored_pairs(folder / SOURCE, folder / KNOWN)
    if stored is None:
        raise InputError(f"{folder / SOURCE} is missing: take it from a copy of the run, or fit again")
    return stored


def keep_ids(folder: Path, pairs: Pairs) -> None:
    """Store the ids of a run's pairs, if its source has changed, so that no later change of the source moves them.

    This comes before anything that names pairs by their ids is written into the folder.

    Args:
        folder: The run's folder.
        pairs: The run's pairs, as they are about to be judged.

    Raises:
        InputError: Another call has given more ids meanwhile.
        WriteError: The file cannot be written.
    """
    if pairs.source_rows is None:
        return
    known = known_pairs(folder)
    if len(known.captions) > len(pairs):
        raise InputError(f"{folder} was audited by another call since it was opened: open it again")
    write_known_pairs(pairs, known, folder / KNOWN)


@dataclass(frozen=True)
class MendedSuspects:
    """The suspects of a run that were mended since they were judged, and the others.

    Attributes:
        count: Number of suspects that were mended or removed since the judgement that is kept in `FIRST`.
        left: Ids of its suspects that are as they were and that nobody decided to keep, ascending; empty where none was
            mended, (n,).
        probability: Their match probabilities in that judgement, below 0.5, (n,).
    """

    count: int
    left: Ints
    probability: Reals

    def applied(self, judgement: Judgement, ids: Ints, in_train: Bools) -> Judgement:
        """Return a judgement that keeps suspects which nobody mended.

        Evidence cannot see them any more: the rate is estimated by the pairs with the least evidence, and these were
        mended. They keep their probability where it was lower, and the rate is at least what the probabilities of the
        training pairs expect, unless there would be no verdicts by it.

        Args:
            judgement: The judgement of the pairs as they are.
            ids: Ids of the judged pairs, ascending, (n,).
            in_train: Which of them are training pairs, (n,).
        """
        if not len(self.left) or not judgement.verdicts:
            return judgement
        rows, probability = np.searchsorted(ids, self.left), judgement.probability.copy()
        probability[rows] = np.minimum(probability[rows], self.probability)
        expected = float(1 - probability[in_train].mean()) if in_train.any() else 0.0
        rate = max(judgement.rate, expected)
        raised = replace(judgement, probability=probability, rate=rate, high=max(judgement.high, rate))
        return raised if raised.verdicts else replace(judgement, probability=probability)


def mended_suspects(folder: Path, pairs: Pairs) -> MendedSuspects:
    """Find the suspects that were mended since the pairs in a run's folder were judged.

    A suspect was mended where its caption or its image file is another one, or where it is gone from the source. Image
    files are compared by their content, wherever they lie.

    Args:
        folder: The run's folder.
        pairs: The pairs as they are now, by the ids of the run.
    """
    nothing = MendedSuspects(0, np.zeros(0, np.int64), np.zeros(0))
    if not (folder / FIRST).exists():
        return nothing
    first = read_parquet(folder / FIRST)
    ids = first["pair"].to_numpy()
    here = np.isin(ids, pairs.ids())
    gone = np.zeros(len(ids), np.bool_) if pairs.source_rows is None else pairs.source_rows[ids] < 0
    edited = _differ(first["given_caption"].to_pylist(), [pairs.captions[pair] for pair in ids.tolist()])
    replaced = np.array(_marks(pairs, ids), object) != np.array(first["image"].to_pylist(), object)
    mended = gone | (here & (edited | replaced))
    if not mended.any():
        return nothing
    decided = Decisions(folder, ids).of_pairs(ids.tolist())
    kept = np.array([decided.get(pair, {}).get("decision") == "keep" for pair in ids.tolist()], np.bool_)
    left = here & ~mended & ~kept
    return MendedSuspects(int(mended.sum()), ids[left], first["match_probability"].to_numpy()[left])


def keep_suspects(folder: Path, table: pa.Table, pairs: Pairs) -> None:
    """Keep the suspects of a judgement, for `mended_suspects` after the source has changed.

    Args:
        folder: The run's folder.
        table: The table of judged pairs.
        pairs: The pairs.
    """
    suspects = table.filter(table["is_mismatch"]).select(["pair", "given_caption", "match_probability"])
    marks = pa.array(_marks(pairs, suspects["pair"].to_numpy()), pa.string())
    write_parquet(folder / FIRST, suspects.append_column("image", marks).sort_by("pair"))


def clear_lapsed_decisions(folder: Path, pairs: Pairs) -> int:
    """Clear the decisions on pairs that have another caption or image than in the table in the folder.

    Args:
        folder: The run's folder, before the table of the new judgement is written.
        pairs: The pairs as they are now, by the ids of the run.

    Returns:
        The number of decisions that were cleared.
    """
    if not (folder / PAIRS_FILE).exists():
        return 0
    table = read_pairs(folder).select(["pair", "image", "given_caption"])
    table = table.filter(np.isin(table["pair"].to_numpy(), pairs.ids()))
    ids = table["pair"].to_numpy()
    changed = _differ(table["given_caption"].to_pylist(), [pairs.captions[pair] for pair in ids.tolist()])
    if pairs.row_ids is not None:  # else a pair with another image is another pair
        given, names = table["image"].to_pylist(), [pairs.image_name(pair) for pair in ids.tolist()]
        short = without_folders([sorted(set(given)), sorted(set(names))])
        changed |= _differ(image_names(given, short), image_names(names, short))
    decisions = Decisions(folder, pairs.ids())
    lapsed = np.intersect1d(decisions.decided(), ids[changed]).tolist()
    if lapsed:
        decisions.decide([Decision(pair, "clear") for pair in lapsed], AUDIT)
    return len(lapsed)


def _differ(stored: Sequence[str], now: Sequence[str]) -> Bools:
    """Return which texts differ from those in a table, (n,)."""
    return np.array([storable(new) != old for old, new in zip(stored, now, strict=True)], np.bool_)


def _marks(pairs: Pairs, ids: Ints) -> list[str]:
    """Return the marks of the image files of pairs; empty where there is no file, (n,)."""
    if pairs.features is not None:
        return [""] * len(ids)
    return [file_mark(pairs.paths[row]) if row >= 0 else "" for row in pairs.image_of[ids].tolist()]
