"""The agreement of match probabilities with the truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from pairsift.arrays import Bools, Ints, Reals

BINS = 10  # of match probability; a bin holds its lower end, and the last one holds 1 too


@dataclass(frozen=True)
class Reliability:
    """The share of matching pairs beside the match probability, in bins; bins without pairs are left out.

    Attributes:
        mean: Mean match probability of the pairs in each bin, ascending, (b,).
        share: Share of these pairs that truly match, (b,).
        low: Lower end of the 95% interval of the share, by Wilson, (b,).
        high: Upper end of the interval, (b,).
        pairs: Number of pairs in each bin, (b,).
    """

    mean: Reals
    share: Reals
    low: Reals
    high: Reals
    pairs: Ints

    @property
    def error(self) -> float:
        """The expected calibration error, [0, 1]: the gap of `share` and `mean`, averaged over the pairs."""
        return float(np.average(np.abs(self.share - self.mean), weights=self.pairs))


def reliability(probability: Reals, matching: Bools) -> Reliability:
    """Compare match probabilities with the truth in ten bins of equal width.

    Args:
        probability: Match probability of each pair, [0, 1], (n,), n > 0.
        matching: Whether each pair truly matches, (n,).
    """
    number = np.searchsorted(np.arange(1, BINS) / BINS, probability, side="right")
    pairs, matches, sums = (np.bincount(number, weights, BINS) for weights in (None, matching, probability))
    filled = pairs > 0
    pairs, matches, sums = pairs[filled].astype(np.int64), matches[filled], sums[filled]
    ends = [binomtest(int(k), int(n)).proportion_ci(0.95, "wilson") for k, n in zip(matches, pairs, strict=True)]
    low, high = np.array(ends).T
    return Reliability(sums / pairs, matches / pairs, low, high, pairs)
