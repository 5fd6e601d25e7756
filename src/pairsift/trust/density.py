"""The density of matching pairs over quantiles of decoys, fitted together with the share of mismatched pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import beta, expit, logit

from pairsift.arrays import Reals

EQUAL_WIDTH = 400  # inverse width of the bins below 0.95
EDGES = np.concatenate([np.arange(0, 380) / EQUAL_WIDTH, 1 - 0.05 * 2.0 ** -(np.arange(44) / 4), [1.0]])
WIDTHS = np.diff(EDGES)  # of the bins; above 0.95, each is 0.84 times as wide as the one before
BINS = len(WIDTHS)
LOG_EDGES = np.log(EDGES[1:-1])
STEEPNESS = 0.5  # prior mean of log(a - 1), where a is the first parameter of the first component
WIDTH = 1.5  # prior standard deviation of the logit of b, the second one
BOUNDS = ((-8.0, 8.0), (0.0, 8.0), (-6.0, 6.0), (0.0, 1.0), (0.0, 8.0))  # of the parameters; see `_shaped`
STARTS = (  # of the search, in the parameters of `misfit`; from these, no better shape was missed on real collections
    (-1.0, 0.5, 0.0, 0.5, 4.0),
    (-1.0, 1.0, 0.0, 0.5, 6.0),
    (-1.0, 4.0, -1.0, 0.05, 1.0),
    (-1.0, 7.0, 0.0, 0.5, 5.0),
    (0.0, 0.5, 0.5, 0.02, 1.1),
)

Counts = NDArray[np.int64]


def bin_counts(u: Reals) -> Counts:
    """Return the number of values in each bin of [0, 1], (bins,)."""
    bins = np.clip(np.searchsorted(EDGES, u, side="right") - 1, 0, BINS - 1)
    return np.bincount(bins, minlength=BINS)


def density(u: Reals, shape: Reals) -> Reals:
    """Return the density of u for matching pairs, which rises with u.

        h(u) = (1 - s) a b u^(a - 1) (1 - u^a)^(b - 1) + s c u^(c - 1),    a >= 2,    b <= 1,    c >= 2

    The first component is the density of Kumaraswamy, which is like a beta density, with a distribution in closed form.
    The second one, of the same form with b = 1, is that of pairs of another difficulty. One component alone does not
    fit pairs of which most have more evidence than any decoy, and some have hardly more than decoys. Neither is less
    steep than 2u, or it could stand for mismatched pairs, whose u is uniform.

    Args:
        u: Share of decoys with less evidence, (0, 1), (n,).
        shape: a, b, s and c, (4,).
    """
    a, b, share, c = shape
    first = a * b * u ** (a - 1) * (-np.expm1(a * np.log(u))) ** (b - 1)
    return np.asarray((1 - share) * first + share * c * u ** (c - 1))


def mean(shape: Reals) -> float:
    """Return the mean of u for matching pairs, the AUROC with which the evidence separates them from decoys."""
    a, b, share, c = shape
    return float((1 - share) * b * beta(1 + 1 / a, b) + share * c / (c + 1))


def masses(shape: Reals) -> Reals:
    """Return the probability of each bin for a matching pair, (bins,)."""
    (first, _, _), (second, _) = _first(shape[0], shape[1]), _second(shape[3])
    return np.asarray((1 - shape[2]) * first + shape[2] * second)


def fit_shape(counts: Counts, start_shape: Reals | None = None) -> Reals:
    """Return a, b, s and c of greatest likelihood, with a weak prior at a = 2.6 and b = 0.5, (4,).

    Args:
        counts: Number of pairs in each bin of u, (bins,).
        start_shape: The shape that the search starts from; by default several.
    """
    starts = STARTS if start_shape is None else (parameters(expit(-1.0), start_shape),)
    fits = [minimize(misfit, start, (counts,), "L-BFGS-B", jac=True, bounds=BOUNDS) for start in starts]
    return _shaped(min(fits, key=lambda fit: float(fit.fun)).x)


def misfit(theta: Reals, counts: Counts) -> tuple[float, Reals]:
    """Return the negative logarithm of likelihood times prior, and its gradient in the parameters.

    Args:
        theta: Logit of the rate of mismatches, log(a - 1), logit of b, s and log(c - 1), (5,).
        counts: Number of pairs in each bin of u, (bins,).
    """
    rate, (a, b, share, c) = expit(theta[0]), _shaped(theta)
    (first, by_a, by_b), (second, by_c) = _first(a, b), _second(c)
    mass = (1 - share) * first + share * second
    mixture = np.maximum(rate * WIDTHS + (1 - rate) * mass, 1e-300)
    weight = counts / mixture
    slope = [
        rate * (1 - rate) * (WIDTHS - mass) @ weight,
        (1 - rate) * (1 - share) * (a - 1) * by_a @ weight,
        (1 - rate) * (1 - share) * b * (1 - b) * by_b @ weight,
        (1 - rate) * (second - first) @ weight,
        (1 - rate) * share * (c - 1) * by_c @ weight,
    ]
    prior = np.array([0.0, theta[1] - STEEPNESS, theta[2] / WIDTH**2, 0.0, 0.0])
    value = (theta[1] - STEEPNESS) ** 2 / 2 + (theta[2] / WIDTH) ** 2 / 2
    return float(value - (counts * np.log(mixture)).sum()), prior - np.array(slope)


def parameters(rate: float, shape: Reals) -> Reals:
    """Return the parameters of `misfit` for a rate and a shape, within their bounds, (5,)."""
    a, b, share, c = shape
    theta = np.array([logit(rate), np.log(max(a - 1, 1e-9)), logit(b), share, np.log(max(c - 1, 1e-9))])
    return np.asarray(np.clip(theta, *np.transpose(BOUNDS)))


def _shaped(theta: Reals) -> Reals:
    """Return a, b, s and c of the parameters, (4,)."""
    return np.array([1 + np.exp(theta[1]), expit(theta[2]), theta[3], 1 + np.exp(theta[4])])


def _first(a: float, b: float) -> tuple[Reals, Reals, Reals]:
    """Return the probability of each bin in the first component, and its slopes in a and in b, (bins,) each."""
    power = np.exp(a * LOG_EDGES)
    above = np.maximum(-np.expm1(a * LOG_EDGES), 1e-300)
    survival = above**b
    by_a, by_b = -b * survival / above * power * LOG_EDGES, survival * np.log(above)
    return (
        -np.diff(survival, prepend=1.0, append=0.0),
        *(-np.diff(slope, prepend=0.0, append=0.0) for slope in (by_a, by_b)),
    )


def _second(c: float) -> tuple[Reals, Reals]:
    """Return the probability of each bin in the second component, and its slope in c, (bins,) each."""
    power = np.exp(c * LOG_EDGES)
    return np.diff(power, prepend=0.0, append=1.0), np.diff(power * LOG_EDGES, prepend=0.0, append=0.0)
