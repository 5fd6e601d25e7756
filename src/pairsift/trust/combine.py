"""Several kinds of evidence as one number, weighed by how well each tells given pairs from decoys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from pairsift.arrays import Reals
from pairsift.trust.contrast import Evidence
from pairsift.trust.crossfit import CrossFit

MOST = 40_000  # decoys that weights are fitted on at most


def combine(fit: CrossFit, kinds: Sequence[Evidence], rate: float = 0.0) -> Evidence:
    """Weigh kinds of evidence by a regression of given pairs against decoys, fitted without each pair's fold.

    Decoys stand in for labels. Where a share of the given pairs is mismatched, their evidence x is that of decoys with
    this share and that of matching pairs with the rest, so that the odds of a given pair against a decoy are

        o(x) = rate + (1 - rate) exp(w x + c),

    and w x is the logarithm of the odds of a matching against a mismatched pair. With a rate of 0 this is logistic
    regression. Weights are at least 0: no kind counts against a pair. Half a squared weight is added to the loss, which
    sums over the given pairs and, with the same total weight, over the decoys.

    Args:
        fit: The pairs, their folds and the decoys.
        kinds: At least one kind of evidence.
        rate: Share of mismatched pairs, as far as it is known, [0, 1).

    Returns:
        The weighed evidence; zeros where there are no decoys, which leave nothing to compare with.
    """
    if len(kinds) == 1:
        return kinds[0]
    if not len(fit.decoy_images):
        return Evidence(np.zeros(len(fit)), np.zeros(0))
    pairs, decoys = (np.stack([getattr(kind, side) for kind in kinds], 1) for side in ("pairs", "decoys"))
    mean, spread = decoys.mean(0), decoys.std(0) + 1e-9
    pairs, decoys = (pairs - mean) / spread, (decoys - mean) / spread
    decoy_fold = fit.fold[fit.decoy_images]
    found = Evidence(np.zeros(len(pairs)), np.zeros(len(decoys)))
    for fold in range(fit.folds):
        own, theirs = fit.fold == fold, decoy_fold == fold
        known = decoys[~theirs]
        weights = odds_weights(pairs[~own], known[:: max(1, len(known) // MOST)], rate)
        found.pairs[own], found.decoys[theirs] = pairs[own] @ weights, decoys[theirs] @ weights
    return found


def odds_weights(given: Reals, decoys: Reals, rate: float = 0.0) -> Reals:
    """Return non-negative weights that tell matching pairs from decoys, (k,).

    Args:
        given: Evidence of given pairs in units of the decoys' deviations, (n, k).
        decoys: Evidence of decoys, (m, k).
        rate: Share of mismatched pairs among the given ones, [0, 1).
    """
    if not len(given) or not len(decoys):
        return np.ones(given.shape[1])
    rows = np.concatenate([given, decoys])
    own = np.arange(len(rows)) < len(given)
    weight = np.where(own, 0.5, 0.5 * len(given) / len(decoys))

    def loss(theta: Reals) -> tuple[float, Reals]:
        log_matching = np.log1p(-rate) + rows @ theta[:-1] + theta[-1]
        log_odds = np.logaddexp(np.log(rate), log_matching) if rate else log_matching
        pull = weight * (expit(log_odds) - own) * np.exp(log_matching - log_odds)
        value = float((weight * (np.logaddexp(0, log_odds) - own * log_odds)).sum() + (theta[:-1] ** 2).sum() / 2)
        return value, np.append(pull @ rows + theta[:-1], pull.sum())

    bounds = [(0.0, None)] * given.shape[1] + [(None, None)]
    start = np.append(np.full(given.shape[1], 0.1), 0.0)
    weights = np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x[:-1])
    return weights if weights.any() else np.full(given.shape[1], 1e-3)
