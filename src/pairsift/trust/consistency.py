"""How steadily an image is put into one class, and the threshold that parts the steady from the unsteady (PCSR)."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairsift.trust.mixture import Floats


def tally(counts: NDArray[Any], labels: NDArray[np.integer], decay: float = 1.0) -> NDArray[Any]:
    """The counts Q of every item's classes with one more pass, (n, K), of the type of `counts`.

    Args:
        counts: How often each item was put into each class so far, (n, K).
        labels: Each item's class in the new pass, (n,).
        decay: Factor of the earlier counts; 1 keeps them whole.
    """
    counted = (counts * decay).astype(counts.dtype)
    counted[np.arange(len(counts)), labels] += 1
    return counted


def consistency(counts: NDArray[Any], share: bool = True) -> Floats:
    """PCS = n_max - n_second, the lead of the most frequent class over the next (PCSR Eq. 3), (n,), at least 0.

    Args:
        counts: How often each item was put into each class, (n, K), K at least 2.
        share: Divide by the number of counted passes, which gives [0, 1]; an item never counted has 0.
    """
    top = np.partition(counts, counts.shape[1] - 2, axis=1)[:, -2:].astype(np.float32)
    lead = top[:, 1] - top[:, 0]
    return lead / np.maximum(counts.sum(1, dtype=np.float32), 1e-6) if share else lead


def utilisation(score: Floats, threshold: float) -> float:
    """lambda, the share of noisy pairs whose score reaches the threshold; 0 of none.

    Args:
        score: PCS of the noisy pairs' images, (n,).
        threshold: tau.
    """
    return float((score >= threshold).mean()) if len(score) else 0.0


def target_utilisation(least: float, most: float, done: float) -> float:
    """lambda_target = lambda_min + (lambda_max - lambda_min) t / T (PCSR Eq. 4), with `done` = t / T in [0, 1]."""
    return least + (most - least) * done


def first_threshold(score: Floats, target: float) -> float:
    """The (1 - target)-quantile of the noisy pairs' scores: at least a share `target` of them reaches it.

    The same pass then moves it by Eq. 5 and 6 like any other, since with few levels of the score more than the target
    may reach it.

    Args:
        score: PCS, (n,); where there is none the threshold is 0.5.
        target: lambda_target, [0, 1].
    """
    return float(np.quantile(score, 1 - target, method="lower")) if len(score) else 0.5


def moved_threshold(threshold: float, gap: float, sensitivity: float, rate: float, most: float = inf) -> float:
    """tau after one update (PCSR Eq. 5 and 6), kept in [0, most].

        tau_target = tau - k (lambda_target - lambda),    tau_t = (1 - beta) tau + beta tau_target

    Args:
        threshold: tau of the epoch before.
        gap: lambda_target - lambda.
        sensitivity: k, at least 0.
        rate: beta, [0, 1].
        most: Largest threshold.
    """
    target = threshold - sensitivity * gap
    return min(max((1 - rate) * threshold + rate * target, 0.0), most)
