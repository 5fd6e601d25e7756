"""Several kinds of evidence as one number, weighed by how well each tells given pairs from decoys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from pairsift.trust.contrast import Evidence
from pairsift.trust.crossfit import CrossFit, Reals

MOST = 40_000  # decoys that weights are fitted on at most


def combine(fit: CrossFit, kinds: Sequence[Evidence]) -> Evidence:
    """Weigh kinds of evidence by a logistic regression of given pairs against decoys, fitted without each pair's fold.

    The odds of a given pair against a decoy rise with those of a matching against a mismatched one, so decoys stand in
    for labels. Weights are at least 0: no kind counts against a pair. Half a squared weight is added to the loss, which
    sums over the given pairs and, with the same total weight, over the decoys.

    Args:
        fit: The pairs, their folds and the decoys.
        kinds: At least one kind of evidence.

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
        weights = logistic(pairs[~own], known[:: max(1, len(known) // MOST)])
        found.pairs[own], found.decoys[theirs] = pairs[own] @ weights, decoys[theirs] @ weights
    return found


def logistic(given: Reals, decoys: Reals) -> Reals:
    """Return non-negative weights that tell given pairs from decoys, (k,).

    Args:
        given: Evidence of given pairs in units of the decoys' deviations, (n, k).
        decoys: Evidence of decoys, (m, k).
    """
    if not len(given) or not len(decoys):
        return np.ones(given.shape[1])
    rows = np.concatenate([given, -decoys])
    sign = np.concatenate([np.ones(len(given)), -np.ones(len(decoys))])
    weight = np.concatenate([np.ones(len(given)), np.full(len(decoys), len(given) / len(decoys))]) / 2

    def loss(theta: Reals) -> tuple[float, Reals]:
        score = rows @ theta[:-1] + sign * theta[-1]
        pull = -weight * expit(-score)
        value = float((weight * np.logaddexp(0, -score)).sum() + (theta[:-1] ** 2).sum() / 2)
        return value, np.concatenate([rows.T @ pull + theta[:-1], [(sign * pull).sum()]])

    bounds = [(0.0, None)] * given.shape[1] + [(None, None)]
    start = np.append(np.full(given.shape[1], 0.1), 0.0)
    weights = np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x[:-1])
    return weights if weights.any() else np.full(given.shape[1], 1e-3)
