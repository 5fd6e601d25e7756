"""From clean probabilities to subsets, and whose probabilities a network believes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pairsift.trust.mixture import Floats


def divide(
    clean_probability: Floats, threshold: float = 0.5, least: float = 0.01, most: float = 1.0
) -> NDArray[np.bool_]:
    """Which pairs are taken as clean: clean probability above the threshold (co-dividing of NCR).

    Neither side of two or more pairs is left empty: where fewer than `least` of them (or half, if that is less) fall on
    one side, the most extreme ones are put there (ties by position). Where more than `most` would be noisy, those of
    them with the highest clean probability are taken as clean; this comes last.

    Args:
        clean_probability: (n,), in [0, 1].
        threshold: In [0, 1].
        least: Smallest share of each side, [0, 0.5].
        most: Largest share of noisy pairs, [0, 1].

    Returns:
        True at clean pairs, (n,).
    """
    n = len(clean_probability)
    clean = clean_probability > threshold
    few = min(int(np.ceil(least * n)), n // 2)
    order = np.argsort(clean_probability, kind="stable")
    if clean.sum() < few:
        clean[order[n - few :]] = True
    if n - clean.sum() < few:
        clean[order[:few]] = False
    surplus = int((~clean).sum() - np.floor(most * n))
    if surplus > 0:
        noisy = order[~clean[order]]
        clean[noisy[len(noisy) - surplus :]] = True
    return clean


def peer(network: int, networks: int) -> int:
    """The network whose trust this one trains by: the other of two (co-teaching), itself where it is alone."""
    return (network + 1) % networks


def oscillation(now: Floats, before: Floats) -> Floats:
    """KL(now || before) of each row's class prediction (PC2 Eq. 7), (n,), at least 0.

    Args:
        now: Predictions of this epoch, (n, K), rows summing to 1.
        before: Predictions of the epoch before, (n, K).
    """
    tiny = np.float32(1e-12)
    ratio = np.log(np.maximum(now, tiny)) - np.log(np.maximum(before, tiny))
    return np.asarray(np.maximum((now * ratio).sum(1), 0), np.float32)
