"""The combination of several kinds of evidence, weighted by how well each separates pairs from decoys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize

from pairsift.arrays import Reals
from pairsift.detect.contrast import Evidence
from pairsift.detect.crossfit import CrossFit

LARGEST_LOG = 600.0  # largest absolute log-odds, so that the odds are finite and above 0
MOST = 40_000  # from twice this number of decoys on, weights are fitted on a part of them, evenly spaced


def combine(fit: CrossFit, evidence: Sequence[Evidence], rate: float = 0.0) -> Evidence:
    """Combine kinds of evidence by a regression of given pairs against decoys, fitted without each pair's fold.

    Decoys replace labels. Where a share of the given pairs, `rate`, is mismatched, this share of them has evidence x
    distributed like that of decoys, and the rest like that of matching pairs. The odds of a given pair against a decoy
    are then

        o(x) = rate + (1 - rate) exp(w x + c),

    and w x is the logarithm of the odds of a matching against a mismatched pair, up to a constant. With a rate of 0,
    this is logistic regression. Weights are at least 0: no kind of evidence counts against a pair. Half of every
    squared weight is added to the loss, which sums over the given pairs and, with the same total weight, over the
    decoys.

    Args:
        fit: The pairs, their folds and the decoys.
        evidence: At least one kind of evidence.
        rate: Estimated share of mismatched pairs, [0, 1).

    Returns:
        The combined evidence; zeros where there are no decoys to compare with.
    """
    if len(evidence) == 1:
        return evidence[0]
    if not len(fit.decoy_images):
        return Evidence(np.zeros(len(fit)), np.zeros(0))
    sides = ("pairs", "decoys", "near_decoys")
    pairs, decoys, near = (np.stack([getattr(kind, side) for kind in evidence], 1) for side in sides)
    mean, spread = decoys.mean(0), decoys.std(0) + 1e-9
    pairs, decoys, near = ((values - mean) / spread for values in (pairs, decoys, near))
    decoy_fold, near_fold = fit.fold[fit.decoy_images], fit.fold[fit.near_images]
    combined = Evidence(np.zeros(len(pairs)), np.zeros(len(decoys)), np.zeros(len(near)))
    for fold in range(fit.folds):
        inside, decoy_in = fit.fold == fold, decoy_fold == fold
        others = decoys[~decoy_in]
        weights = odds_weights(pairs[~inside], others[:: max(1, len(others) // MOST)], rate)
        combined.pairs[inside], combined.decoys[decoy_in] = pairs[inside] @ weights, decoys[decoy_in] @ weights
        combined.near_decoys[near_fold == fold] = near[near_fold == fold] @ weights
    return combined


def odds_weights(given: Reals, decoys: Reals, rate: float = 0.0) -> Reals:
    """Return non-negative weights that separate matching pairs from decoys, (k,).

    Args:
        given: Evidence of given pairs in units of the decoys' standard deviations, (n, k).
        decoys: Evidence of decoys, (m, k).
        rate: Share of mismatched pairs among the given pairs, [0, 1).
    """
    if not len(given) or not len(decoys):
        return np.ones(given.shape[1])
    rows, n = np.concatenate([given, decoys]), len(given)
    weight = np.repeat([0.5, 0.5 * n / len(decoys)], [n, len(decoys)])

    def loss(theta: Reals) -> tuple[float, Reals]:
        matching = (1 - rate) * np.exp(np.clip(rows @ theta[:-1] + theta[-1], -LARGEST_LOG, LARGEST_LOG))
        odds = rate + matching
        # Cross-entropy and its gradient, as if every row were a decoy; then corrected for the n rows of pairs.
        surprise, pull = np.log1p(odds), matching / (1 + odds)
        surprise[:n] -= np.log(odds[:n])
        pull[:n] -= matching[:n] / odds[:n]
        pull *= weight
        return float(weight @ surprise + (theta[:-1] ** 2).sum() / 2), np.append(pull @ rows + theta[:-1], pull.sum())

    bounds = [(0.0, None)] * given.shape[1] + [(None, None)]
    start = np.append(np.full(given.shape[1], 0.1), 0.0)
    weights = np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x[:-1])
    return weights if weights.any() else np.full(given.shape[1], 1e-3)
