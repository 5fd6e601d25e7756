"""The density of matching pairs over quantiles of decoys, fitted together with the share of mismatched pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import beta, expit, logit

from pairsift.arrays import Reals

# Bins of u: 1/400 wide up to 0.985, then each 0.84 times as wide as the one before; the last one ends at 1.
EDGES = np.concatenate([np.arange(394) / 400, 1 - 0.015 * 2.0 ** -(np.arange(37) / 4), [1.0]])
BIN_WIDTHS = np.diff(EDGES)
BINS = len(BIN_WIDTHS)
LOG_EDGES = np.log(EDGES[1:-1])
LOG_A_MEAN = 0.5  # prior mean of log(a - 1), with a standard deviation of 1
LOGIT_B_SPREAD = 1.5  # prior standard deviation of the logit of b, with mean 0
# Bounds of the parameters of `misfit`, and what the search starts from: several, since there are local optima.
BOUNDS = ((-8.0, 8.0), (0.0, 8.0), (-6.0, 6.0), (0.0, 1.0), (0.0, 8.0))
STARTS = (
    (-1.0, 0.5, 0.0, 0.5, 4.0),
    (-1.0, 1.0, 0.0, 0.5, 6.0),
    (-1.0, 4.0, -1.0, 0.05, 1.0),
    (-1.0, 7.0, 0.0, 0.5, 5.0),
    (0.0, 0.5, 0.5, 0.02, 1.1),
    (-1.0, 2.0, 0.5, 0.02, 8.0),
)

Counts = NDArray[np.int64]


def bin_counts(u: Reals) -> Counts:
    """Return the number of values in each bin of [0, 1], (bins,)."""
    bins = np.clip(np.searchsorted(EDGES, u, side="right") - 1, 0, BINS - 1)
    return np.bincount(bins, minlength=BINS)


def survival(u: Reals, shape: Reals) -> Reals:
    """Return the probability that a matching pair exceeds u, 1 minus the distribution function, (n,).

    The density of u for matching pairs rises with u:

        h(u) = (1 - s) a b u^(a - 1) (1 - u^a)^(b - 1) + s c u^(c - 1),    a >= 2,    b <= 1,    c >= 2

    The first component is the density of Kumaraswamy, which is like a beta density, with a distribution in closed form.
    The second one, of the same form with b = 1, is that of pairs of another difficulty. One component alone does not
    fit pairs of which most have more evidence than any decoy, and some have hardly more than decoys. Neither is less
    steep than 2u, or it could stand for mismatched pairs, whose u is uniform.

    Args:
        u: Quantiles of decoys, [0, 1], (n,).
        shape: a, b, s and c, (4,).
    """
    a, b, share, c = shape
    with np.errstate(divide="ignore"):
        log_u = np.log(u)
    return np.asarray((1 - share) * (-np.expm1(a * log_u)) ** b + share * -np.expm1(c * log_u))


def bin_probabilities(shape: Reals) -> Reals:
    """Return the probability of each bin for a matching pair, (bins,)."""
    return -np.diff(survival(EDGES, shape))


def expected_auroc(shape: Reals) -> float:
    """Return the mean of u for matching pairs: the AUROC with which the evidence separates them from decoys."""
    a, b, share, c = shape
    return float((1 - share) * b * beta(1 + 1 / a, b) + share * c / (c + 1))


def fit_shape(counts: Counts, start_shape: Reals | None = None, rate: float | None = None) -> Reals:
    """Return a, b, s and c of greatest likelihood, with a weak prior at a = 2.6 and b = 0.5, (4,).

    Args:
        counts: Number of pairs in each bin of u, (bins,).
        start_shape: The shape that the search starts from; by default several.
        rate: Share of mismatched pairs, (0, 1), if it is known; by default it is fitted too.
    """
    starts = np.array(STARTS) if start_shape is None else search_parameters(expit(-1.0), start_shape)[None]
    bounds = BOUNDS
    if rate is not None:
        starts[:, 0], bounds = logit(rate), ((float(logit(rate)),) * 2, *BOUNDS[1:])
    fits = [minimize(misfit, start, (counts,), "L-BFGS-B", jac=True, bounds=bounds) for start in starts]
    return _shape_of(min(fits, key=lambda fit: float(fit.fun)).x)


def misfit(theta: Reals, counts: Counts) -> tuple[float, Reals]:
    """Return the negative logarithm of likelihood times prior, and its gradient in the parameters.

    Args:
        theta: Logit of the rate of mismatches, log(a - 1), logit of b, s and log(c - 1), (5,).
        counts: Number of pairs in each bin of u, (bins,).
    """
    rate, (a, b, share, c) = expit(theta[0]), _shape_of(theta)
    (first, by_a, by_b), (second, by_c) = _first_component(a, b), _second_component(c)
    matching = (1 - share) * first + share * second
    mixture = rate * BIN_WIDTHS + (1 - rate) * matching
    weight = counts / mixture
    slope = [
        rate * (1 - rate) * (BIN_WIDTHS - matching) @ weight,
        (1 - rate) * (1 - share) * (a - 1) * by_a @ weight,
        (1 - rate) * (1 - share) * b * (1 - b) * by_b @ weight,
        (1 - rate) * (second - first) @ weight,
        (1 - rate) * share * (c - 1) * by_c @ weight,
    ]
    prior = np.array([0.0, theta[1] - LOG_A_MEAN, theta[2] / LOGIT_B_SPREAD**2, 0.0, 0.0])
    value = (theta[1] - LOG_A_MEAN) ** 2 / 2 + (theta[2] / LOGIT_B_SPREAD) ** 2 / 2
    return float(value - (counts * np.log(mixture)).sum()), prior - np.array(slope)


def search_parameters(rate: float, shape: Reals) -> Reals:
    """Return the parameters of `misfit` for a rate and a shape, within their bounds, (5,)."""
    a, b, share, c = shape
    theta = np.array([logit(rate), np.log(a - 1), logit(b), share, np.log(c - 1)])
    return np.asarray(np.clip(theta, *np.transpose(BOUNDS)))


def _shape_of(theta: Reals) -> Reals:
    """Return a, b, s and c of the parameters, (4,)."""
    return np.array([1 + np.exp(theta[1]), expit(theta[2]), theta[3], 1 + np.exp(theta[4])])


def _first_component(a: float, b: float) -> tuple[Reals, Reals, Reals]:
    """Return the probability of each bin in the first component, and its slopes in a and in b, (bins,) each."""
    power = np.exp(a * LOG_EDGES)
    above = -np.expm1(a * LOG_EDGES)
    upper = above**b
    at_edges = _at_edges((1.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    at_edges[:, 1:-1] = upper, -b * upper / above * power * LOG_EDGES, upper * np.log(above)
    first, by_a, by_b = at_edges[:, :-1] - at_edges[:, 1:]
    return first, by_a, by_b


def _second_component(c: float) -> tuple[Reals, Reals]:
    """Return the probability of each bin in the second component, and its slope in c, (bins,) each."""
    power = np.exp(c * LOG_EDGES)
    at_edges = _at_edges((0.0, 0.0), (1.0, 0.0))
    at_edges[:, 1:-1] = power, power * LOG_EDGES
    second, by_c = at_edges[:, 1:] - at_edges[:, :-1]
    return second, by_c


def _at_edges(lowest: tuple[float, ...], highest: tuple[float, ...]) -> Reals:
    """Return values at all edges of bins for some functions, of which only those at 0 and at 1 are set, (k, edges)."""
    values = np.empty((len(lowest), len(EDGES)))
    values[:, 0], values[:, -1] = lowest, highest
    return values
