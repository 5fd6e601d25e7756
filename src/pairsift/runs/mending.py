"""What was mended in a source since the pairs of its run were judged last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pairsift.arrays import Bools, Ints, Reals
from pairsift.audit import Decision, Decisions, read_pairs
from pairsift.audit.table import PAIRS_FILE, storable
from pairsift.pairs.pairs import Pairs
from pairsift.trust.heldout import Belief

# In the metrics: how many suspects were mended or removed in all judgements so far, and decisions cleared in the last.
MENDED, LAPSED = FACTS = ("mended_suspects", "lapsed_decisions")
AUDIT = "pairsift audit"  # the reviewer who clears decisions


@dataclass(frozen=True)
class Mending:
    """The differences between the pairs that were judged last and the source as it is.

    Attributes:
        suspects: Number of suspects that were mended or removed, in this and in earlier judgements.
        left: Ids of the suspects that are as they were; empty where none was mended, (n,).
        probability: Their match probabilities in the last judgement, below 0.5, (n,).
        captions: Ids of the pairs whose caption has changed, (m,).
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

    def applied(self, belief: Belief, ids: Ints, in_train: Bools) -> Belief:
        """Return a judgement in which suspects that nobody mended stay suspects.

        Evidence cannot see them any more: the rate is estimated by the pairs with the least evidence, and these were
        mended. They keep their probability where it was lower, and the rate is at least what the probabilities of the
        training pairs expect.

        Args:
            belief: The judgement of the pairs as they are.
            ids: Ids of the judged pairs, ascending, (n,).
            in_train: Which of them are training pairs, (n,).
        """
        rows = np.searchsorted(ids, self.left)
        if not len(rows) or not belief.verdicts:
            return belief
        probability = belief.probability.copy()
        probability[rows] = np.minimum(probability[rows], self.probability)
        expected = float(1 - probability[in_train].mean()) if in_train.any() else 0.0
        rate = max(belief.rate, expected)
        return replace(belief, probability=probability, rate=rate, high=max(belief.high, rate))


def mending(folder: Path, pairs: Pairs, metrics: Mapping[str, Any]) -> Mending:
    """Return what was mended since the pairs in a run's folder were judged.

    A suspect was mended where its caption is another one, or removed. It is as it was where its image file is not newer
    than the table of judged pairs either; where most of these files are newer, they were copied, and say nothing.

    Args:
        folder: The run's folder.
        pairs: The pairs as they are now, by the ids of the run.
        metrics: The run's metrics.
    """
    path = folder / PAIRS_FILE
    if not path.exists():
        nothing = np.zeros(0, np.int64)
        return Mending(0, nothing, np.zeros(0), nothing)
    table = read_pairs(folder).select(["pair", "given_caption", "match_probability", "is_mismatch"])
    ids, suspect = table["pair"].to_numpy(), table["is_mismatch"].to_numpy()
    here = np.isin(ids, pairs.ids())
    captions = zip(ids.tolist(), table["given_caption"].to_pylist(), here.tolist(), strict=True)
    edited = np.array([present and storable(pairs.captions[k]) != text for k, text, present in captions], np.bool_)
    suspects = int(metrics.get(MENDED, 0)) + int((suspect & (edited | ~here)).sum())
    left = np.flatnonzero(suspect & here & ~edited) if suspects else np.zeros(0, np.int64)
    left = left[np.argsort(ids[left])]
    left = left[~_newer(pairs, ids[left], path)]
    return Mending(suspects, ids[left], table["match_probability"].to_numpy()[left], np.sort(ids[edited]))


def _newer(pairs: Pairs, ids: Ints, table: Path) -> Bools:
    """Return which pairs have an image file that is newer than a table, (n,); none where most have."""
    if pairs.features is not None or not len(ids):
        return np.zeros(len(ids), np.bool_)
    judged = table.stat().st_mtime
    newer = np.array([pairs.paths[row].stat().st_mtime > judged for row in pairs.image_of[ids].tolist()])
    return newer & bool(newer.mean() <= 0.5)
