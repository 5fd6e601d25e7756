"""Mismatched pairs whose captions read like the right ones: their share, by decoys of this kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.isotonic import isotonic_regression

from pairsift.arrays import Bools, Ints, Reals
from pairsift.trust.contrast import Evidence
from pairsift.trust.rate import ERRORS, TAIL

LARGEST_RATE = 0.05  # share of other mismatched pairs from which on near ones are not told apart from them
QUANTILES = np.linspace(0.1, 0.6, 11)  # of the near decoys, between which the largest share is sought
ROUNDS = 8  # number of estimates, each of which weights the near decoys by the one before


@dataclass(frozen=True)
class NearMismatches:
    """The estimate of mismatched pairs whose captions read like the right ones.

    Attributes:
        share: Share of such pairs among the training pairs, [0, 1].
        high: Largest share that the evidence leaves room for, [0, 1], at least `share`.
        probability: Match probability of each pair with such mismatches taken into account, [0, 1], (n,).
    """

    share: float
    high: float
    probability: Reals


def near_mismatches(
    evidence: Evidence, given: Ints, in_train: Bools, probability: Reals, rate: float
) -> NearMismatches:
    """Estimate how many pairs are mismatched although their captions read like the right ones.

    Such pairs have more evidence than captions of any other images, so `calibrate` takes them for matching pairs. Near
    decoys have their distribution. With F(q) the share of training pairs, and G(q) that of decoys, that have less
    evidence than the q-quantile of near decoys, the share is at most

        min over q from 0.1 to 0.6 of (F(q) - rate G(q)) / q.

    This is `high`, with 1.645 standard errors of F. Up to one in twenty matching pairs may look like near mismatches;
    `share` leaves this many out, so that it errs on the low side. The match probability is lowered by share f_n / f,
    the ratio of the densities of near decoys and of pairs by isotonic regression. A near decoy is only worth something
    if the caption that it replaces was right: decoys are weighted by the probability of their pair, which the estimate
    itself changes; it is repeated.

    Where other mismatched pairs are frequent (a rate of 0.05 or more), the rest is too little to be told apart, and the
    share is 0.

    Args:
        evidence: Evidence of the pairs, (n,), of decoys, and of near decoys, (k,).
        given: Pair that each near decoy has the image of, (k,).
        in_train: Whether each pair is a training pair, (n,).
        probability: Match probability of each pair by `calibrate`, [0, 1], (n,).
        rate: Share of mismatched training pairs by `calibrate`, [0, 1].
    """
    found = NearMismatches(0.0, 0.0, probability)
    if rate >= LARGEST_RATE or not in_train.any() or not len(evidence.near):
        return found
    n, order = int(in_train.sum()), np.argsort(evidence.near, kind="stable")
    pairs, decoys = np.sort(evidence.pairs[in_train]), np.sort(evidence.decoys)
    for _ in range(ROUNDS):
        weight = found.probability[given]
        cumulative = np.cumsum(weight[order])
        if cumulative[-1] <= 0:
            return found
        limits = evidence.near[order][np.searchsorted(cumulative, QUANTILES * cumulative[-1])]
        below, decoys_below = (np.searchsorted(values, limits) / len(values) for values in (pairs, decoys))
        error = ERRORS * np.sqrt(below * (1 - below) / n)
        room, largest = (((below + more - rate * decoys_below) / QUANTILES).min() for more in (0.0, error))
        share = max(0.0, (float(room) - TAIL * (1 - rate)) / (1 - TAIL))
        lowered = probability - share * _density_ratio(evidence, weight) if share else probability
        found = NearMismatches(share, float(np.clip(largest, share, 1)), np.clip(lowered, 0, 1))
    return found


def _density_ratio(evidence: Evidence, weight: Reals) -> Reals:
    """Return the density of near decoys divided by that of pairs at each pair, by isotonic regression, (n,).

    It is at least 0 and never rises with the evidence.
    """
    values = np.concatenate([evidence.pairs, evidence.near])
    label = np.repeat([0.0, 1.0], [len(evidence.pairs), len(evidence.near)])
    weights = np.concatenate([np.full(len(evidence.pairs), 1 / len(evidence.pairs)), weight / weight.sum()])
    order = np.argsort(values, kind="stable")
    fitted = np.empty(len(values))
    fitted[order] = isotonic_regression(label[order], sample_weight=np.maximum(weights[order], 1e-12), increasing=False)
    ratio = fitted[: len(evidence.pairs)]
    return np.asarray(ratio / np.maximum(1 - ratio, 1e-6))
