"""What was mended in a source since the pairs of its run were judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from pairsift.arrays import Bools, Ints, Reals
from pairsift.detect.judgement import Judgement
from pairsift.files import write_parquet
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.stored import file_mark
from pairsift.review import Decision, Decisions
from pairsift.table import PAIRS_FILE, read_pairs, storable

# In the metrics: how many suspects were mended or removed since the first judgement, and decisions cleared in the last.
MENDED, LAPSED = FACTS = ("mended_suspects", "lapsed_decisions")
FIRST = "first_suspects.parquet"  # the suspects of the last judgement before any of them was mended
AUDIT = "pairsift audit"  # the reviewer who clears decisions


@dataclass(frozen=True)
class Mending:
    """The differences between the pairs that were judged and the source as it is.

    Attributes:
        suspects: Number of suspects that were mended or removed since the judgement that is kept in `FIRST`.
        left: Ids of its suspects that are as they were and that nobody decided to keep, ascending; empty where none was
            mended, (n,).
        probability: Their match probabilities in that judgement, below 0.5, (n,).
        captions: Ids of the pairs whose caption has changed since the last judgement, (m,).
    """

    suspects: int
    left: Ints
    probability: Reals
    captions: Ints

    def facts(self, folder: Path, ids: Ints) -> dict[str, int]:
        """Clear the decisions on captions that have changed since, and return for the metrics what was mended.

        Args:
            folder: The run's folder.
            ids: Ids of the run's pairs that can be decided on, (n,).
        """
        decisions = Decisions(folder, ids)
        pairs = np.intersect1d(decisions.decided(), np.intersect1d(self.captions, ids)).tolist()
        if pairs:
            decisions.decide([Decision(pair, "clear") for pair in pairs], AUDIT)
        return {name: n for name, n in zip(FACTS, (self.suspects, len(pairs)), strict=True) if n}

    def applied(self, judgement: Judgement, ids: Ints, in_train: Bools) -> Judgement:
        """Return a judgement in which suspects that nobody mended stay suspects.

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
        found = replace(judgement, probability=probability, rate=rate, high=max(judgement.high, rate))
        return found if found.verdicts else replace(judgement, probability=probability)

    def remember(self, folder: Path, table: pa.Table, pairs: Pairs) -> None:
        """Keep the suspects of a judgement for the next one, unless suspects of an earlier one were mended.

        Args:
            folder: The run's folder.
            table: The table of judged pairs.
            pairs: The pairs.
        """
        if self.suspects:
            return
        found = table.filter(table["is_mismatch"]).select(["pair", "given_caption", "match_probability"])
        marks = pa.array(_marks(pairs, found["pair"].to_numpy()), pa.string())
        write_parquet(folder / FIRST, found.append_column("image", marks).sort_by("pair"))


def mending(folder: Path, pairs: Pairs) -> Mending:
    """Return what was mended since the pairs in a run's folder were judged.

    A suspect was mended where its caption or its image file is another one, or where it is gone from the source. Image
    files are known again by their content, wherever they lie.

    Args:
        folder: The run's folder.
        pairs: The pairs as they are now, by the ids of the run.
    """
    captions = _changed_captions(folder, pairs)
    nothing = Mending(0, np.zeros(0, np.int64), np.zeros(0), captions)
    if not (folder / FIRST).exists():
        return nothing
    first = pyarrow.parquet.read_table(folder / FIRST)
    ids = first["pair"].to_numpy()
    here = np.isin(ids, pairs.ids())
    gone = np.zeros(len(ids), np.bool_) if pairs.source_rows is None else pairs.source_rows[ids] < 0
    was = zip(ids.tolist(), first["given_caption"].to_pylist(), strict=True)
    edited = np.array([storable(pairs.captions[pair]) != caption for pair, caption in was], np.bool_)
    replaced = np.array(_marks(pairs, ids), object) != np.array(first["image"].to_pylist(), object)
    mended = gone | (here & (edited | replaced))
    if not mended.any():
        return nothing
    decided = Decisions(folder, ids).of_pairs(ids.tolist())
    kept = np.array([decided.get(pair, {}).get("decision") == "keep" for pair in ids.tolist()], np.bool_)
    left = here & ~mended & ~kept
    return Mending(int(mended.sum()), ids[left], first["match_probability"].to_numpy()[left], captions)


def _changed_captions(folder: Path, pairs: Pairs) -> Ints:
    """Return the ids of the pairs whose caption has changed since the last judgement, ascending, (m,)."""
    if not (folder / PAIRS_FILE).exists():
        return np.zeros(0, np.int64)
    table = read_pairs(folder).select(["pair", "given_caption"])
    here = set(pairs.ids().tolist())
    was = zip(table["pair"].to_pylist(), table["given_caption"].to_pylist(), strict=True)
    changed = [pair for pair, caption in was if pair in here and storable(pairs.captions[pair]) != caption]
    return np.array(sorted(changed), np.int64)


def _marks(pairs: Pairs, ids: Ints) -> list[str]:
    """Return texts by which the image files of pairs are known again; empty where there is no file, (n,)."""
    if pairs.features is not None:
        return [""] * len(ids)
    return [file_mark(pairs.paths[row]) if row >= 0 else "" for row in pairs.image_of[ids].tolist()]
