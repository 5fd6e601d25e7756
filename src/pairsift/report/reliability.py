"""The agreement of match probabilities with the truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pairsift.arrays import Bools, Ints, Reals

BINS = 10  # of match probability; a bin holds its lower end, and the last one holds 1 too
Z = 1.959964  # quantile of the normal distribution for intervals that hold the true share 95 times in 100


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
    inner_edges = np.arange(1, BINS) / BINS
    number = np.searchsorted(inner_edges, probability, side="right")
    pairs = np.bincount(number, minlength=BINS)
    filled = pairs > 0
    matches = np.bincount(number[matching], minlength=BINS)[filled].astype(np.float64)
    sums, pairs = np.bincount(number, probability, BINS)[filled], pairs[filled].astype(np.int64)
    return Reliability(sums / pairs, matches / pairs, *wilson(matches, pairs), pairs)


def wilson(matches: Reals, pairs: Ints) -> tuple[Reals, Reals]:
    """Return the ends of the 95% interval of a share (Wilson, 1927), each (b,), in [0, 1].

    Args:
        matches: Number of matching pairs, (b,).
        pairs: Number of pairs, at least 1, (b,).
    """
    share, scale = matches / pairs, 1 + Z**2 / pairs
    middle = (share + Z**2 / (2 * pairs)) / scale
    half = Z * np.sqrt(share * (1 - share) / pairs + Z**2 / (4 * pairs**2)) / scale
    return np.clip(middle - half, 0, share), np.clip(middle + half, share, 1)
