"""Match probabilities about captions of any other images, and about captions that read like the right ones."""

from __future__ import annotations

from dataclasses import replace
from math import hypot

import numpy as np

from pairsift.arrays import Bools, Ints
from pairsift.trust.heldout import Belief

KEPT = 0.5  # smallest match probability, beside captions of any images, of the pairs that are judged beside near ones
MAX_BELOW_NEAR = 0.1  # largest share of pairs that look worse than 95% of near ones with which these are counted


def count_near(belief: Belief, near: Belief, kept: Ints, in_train: Bools) -> Belief:
    """Return the belief about both kinds of mismatches; about captions of any images where near ones cannot be told.

    A pair that was taken out keeps its probability, and a kept pair has that beside near captions. The rate is the sum
    over both parts, and its interval joins those of both kinds as independent errors. Near captions can be told where
    the belief about them and the joined one have verdicts, and at most a tenth of the kept training pairs look worse
    than 95% of swaps.

    Args:
        belief: Belief of all pairs, about captions of any other images, (n,).
        near: Belief of the kept pairs, about near captions, (k,).
        kept: Row of each kept pair among all pairs, (k,).
        in_train: Whether each pair is a training pair, (n,).
    """
    told = near.verdicts and near.below_near <= MAX_BELOW_NEAR
    found = replace(belief, near_auroc=near.auroc, below_near=near.below_near, counts_near=told)
    if not told:
        return found
    probability = belief.probability.copy()
    probability[kept] = near.probability
    is_kept = np.isin(np.arange(len(probability)), kept)

    def joined(side: Bools, rate: float) -> float:
        out = float((1 - probability[side & ~is_kept]).sum() + rate * (side & is_kept).sum())
        return out / max(1, int(side.sum()))

    rate, others = joined(in_train, near.rate), None
    if near.rate_outside_train is not None or belief.rate_outside_train is not None:
        others = joined(~in_train, near.rate if near.rate_outside_train is None else near.rate_outside_train)
    part = float(is_kept[in_train].mean()) if in_train.any() else 1.0
    below = hypot(part * (near.rate - near.low), belief.rate - belief.low)
    above = hypot(part * (near.high - near.rate), belief.high - belief.rate)
    memory = np.zeros(len(probability))
    memory[kept] = near.detectors["memory"]
    both = replace(
        found,
        probability=probability,
        rate=rate,
        low=max(0.0, rate - below),
        high=min(1.0, rate + above),
        rate_outside_train=others,
        detectors={**belief.detectors, "memory": memory},
    )
    return both if both.verdicts else replace(found, counts_near=False)
