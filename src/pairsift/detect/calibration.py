"""The share of mismatched pairs and each pair's match probability, from the evidence of pairs and of decoys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import beta, expit, logit
from sklearn.isotonic import isotonic_regression

from pairsift.arrays import Bools, Ints, Reals
from pairsift.detect.evidence import Evidence
from pairsift.detect.folds import pair_counts
from pairsift.detect.options import CalibrationOptions

# Bins of u: 1/400 wide up to 0.985, then each 0.84 times as wide as the one before; the last one ends at 1.
EDGES = np.concatenate([np.arange(394) / 400, 1 - 0.015 * 2.0 ** -(np.arange(37) / 4), [1.0]])
BIN_WIDTHS = np.diff(EDGES)
BINS = len(BIN_WIDTHS)
Groups = NDArray[np.signedinteger[Any]]  # the number of each pair's group
LOG_EDGES = np.log(EDGES[1:-1])
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
# Two of them found 97% of the greatest likelihoods of 400 calibrations, which is enough where no interval is wanted.
FEW_STARTS = (STARTS[0], STARTS[4])

ROWS = 1 << 20  # pairs whose probabilities are computed at once; of more, neighbours are one step of the regression
STEP = 20  # number of bins from one quantile to the next at which the largest possible rate is sought
NO_RATE = 1e-9  # share of mismatched pairs with which a shape is fitted as if there were none
# A 90% interval: the drop of the log-likelihood at its ends, and the number of standard errors that 5% exceed.
DROP, ERRORS = 1.353, 1.645


def bin_counts(u: Reals) -> Ints:
    """Return the number of values in each bin of [0, 1], (bins,)."""
    bins = np.clip(np.searchsorted(EDGES, u, side="right") - 1, 0, BINS - 1)
    return np.bincount(bins, minlength=BINS)


def survival(u: Reals, shape: Reals) -> Reals:
    """Return the probability that a matching pair exceeds u, 1 minus the distribution function, (n,).

    The density of u for matching pairs rises with u:

        h(u) = (1 - s) a b u^(a - 1) (1 - u^a)^(b - 1) + s c u^(c - 1),    a >= 2,    b <= 1,    c >= 2

    The first component is the density of Kumaraswamy, which is like a beta density, with a distribution in closed form.
    The second one, of the same form with b = 1, stands for pairs of another difficulty. One component alone does not
    fit a collection where most pairs have more evidence than any decoy, and some have hardly more. Neither is less
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


def fit_shape(
    counts: Ints,
    options: CalibrationOptions,
    start_shape: Reals | None = None,
    rate: float | None = None,
    few: bool = False,
) -> Reals:
    """Return a, b, s and c of greatest likelihood, with a weak prior at a = 2.6 and b = 0.5, (4,).

    Args:
        counts: Number of pairs in each bin of u, (bins,).
        options: The prior.
        start_shape: The shape that the search starts from; by default several.
        rate: Share of mismatched pairs, (0, 1), if it is known; by default it is fitted too.
        few: Whether the search starts from two shapes.
    """
    starts = np.array(FEW_STARTS if few else STARTS)
    if start_shape is not None:
        starts = search_parameters(expit(-1.0), start_shape)[None]
    bounds = BOUNDS
    if rate is not None:
        starts[:, 0], bounds = logit(rate), ((float(logit(rate)),) * 2, *BOUNDS[1:])
    fits = [minimize(misfit, start, (counts, options), "L-BFGS-B", jac=True, bounds=bounds) for start in starts]
    return _shape_of(min(fits, key=lambda fit: float(fit.fun)).x)


def misfit(theta: Reals, counts: Ints, options: CalibrationOptions) -> tuple[float, Reals]:
    """Return the negative logarithm of likelihood times prior, and its gradient in the parameters.

    Args:
        theta: Logit of the rate of mismatches, log(a - 1), logit of b, s and log(c - 1), (5,).
        counts: Number of pairs in each bin of u, (bins,).
        options: The prior.
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
    mean, spread = options.steepness_mean, options.exponent_spread
    prior = np.array([0.0, theta[1] - mean, theta[2] / spread**2, 0.0, 0.0])
    value = (theta[1] - mean) ** 2 / 2 + (theta[2] / spread) ** 2 / 2
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
    """Allocate values of functions at all edges of bins, set only at 0 and at 1, (k, edges)."""
    values = np.empty((len(lowest), len(EDGES)))
    values[:, 0], values[:, -1] = lowest, highest
    return values


@dataclass(frozen=True)
class Density:
    """The densities of the evidence of matching pairs and of decoys, by which any pair has a match probability.

    Attributes:
        decoys: Evidence of the decoys, ascending, (m,).
        shape: a, b, s and c of the density of u for matching pairs, (4,).
        values: Evidence at which the steps of the isotonic regression begin, ascending, (k,).
        share_of_pairs: The regression from these values on: the share of pairs among as many pairs and decoys, (k,).
        rate: Mean rate of the pairs of the regression.
        rates: Rate of each group of pairs for the posterior, (0, 1], (groups,).
        isotonic_weight: Weight of the isotonic posterior beside the parametric one.
    """

    decoys: Reals
    shape: Reals
    values: Reals
    share_of_pairs: Reals
    rate: float
    rates: Reals
    isotonic_weight: float

    @staticmethod
    def fit(evidence: Evidence, shape: Reals, rates: Reals, group: Groups, options: CalibrationOptions) -> Density:
        """Fit the isotonic regression of pairs against decoys, beside a known shape and known rates of groups."""
        pairs, decoys = len(evidence.pairs), np.sort(evidence.decoys)
        values, fitted = _share_of_pairs(evidence.pairs, decoys)
        share = pairs / (pairs + options.equal_weight_pairs)
        rate = float(np.bincount(group, minlength=len(rates)) @ rates / pairs) if pairs else 0.0
        believed = np.maximum(rates, options.min_mismatches / max(1, pairs))
        return Density(decoys, shape, values, fitted, rate, believed, share)

    def probability(self, evidence: Reals, group: Groups) -> Reals:
        """Return the match probability of pairs, (n,), by their evidence and their groups, (n,) each."""
        found = np.empty(len(evidence))
        for rows in _blocks(len(evidence)):
            found[rows] = self._mean_posterior(evidence[rows], group[rows])
        return found

    def _mean_posterior(self, evidence: Reals, group: Groups) -> Reals:
        """Return the mean of the two posteriors, (n,)."""
        rate = self.rates[np.minimum(group, len(self.rates) - 1)]
        isotonic = _posterior(self._isotonic_ratio(evidence), rate)
        u = quantile_among(evidence, self.decoys)
        parametric = _posterior(_parametric_ratio(u, len(self.decoys), self.shape), rate)
        return self.isotonic_weight * isotonic + (1 - self.isotonic_weight) * parametric

    def _isotonic_ratio(self, evidence: Reals) -> Reals:
        """Return the ratio of the densities of matching pairs and of decoys at each value, (n,), by the regression.

        It is at least 0 and never falls with the evidence.
        """
        place = np.searchsorted(self.values, evidence, side="right") - 1
        fitted = self.share_of_pairs[np.maximum(place, 0)]
        ratio = fitted / np.maximum(1 - fitted, 1e-6)
        return np.asarray(np.maximum(ratio - self.rate, 0) / max(1 - self.rate, 1e-6))


def _share_of_pairs(pairs: Reals, decoys: Reals) -> tuple[Reals, Reals]:
    """Return the isotonic regression of pairs against decoys, both of one weight in all.

    Each pair and each decoy is a step of its own; of more than `ROWS` pairs, several neighbours with the decoys among
    them are one, so that there are at most as many.

    Args:
        pairs: Evidence of the pairs, (n,).
        decoys: Evidence of the decoys, ascending, (m,).

    Returns:
        The values, ascending, and the share of pairs among as many pairs and decoys from each value on, (k,) each.
    """
    of_pair, of_decoy = 1 / max(1, len(pairs)), 1 / max(1, len(decoys))
    if len(pairs) <= ROWS:
        values = np.concatenate([pairs, decoys])
        order = np.argsort(values, kind="stable")
        weight = np.concatenate([np.full(len(pairs), of_pair), np.full(len(decoys), of_decoy)])[order]
        label = (order < len(pairs)).astype(np.float64)
        return values[order], isotonic_regression(label, sample_weight=weight)
    ascending = np.sort(pairs)
    values = np.unique(ascending[:: -(-len(pairs) // ROWS)])
    values[0] = min(values[0], decoys[0])
    both = [np.diff(np.searchsorted(side, values), append=len(side)) for side in (ascending, decoys)]
    weights = [counts * each for counts, each in zip(both, (of_pair, of_decoy), strict=True)]
    return values, isotonic_regression(weights[0] / sum(weights), sample_weight=sum(weights))


@dataclass(frozen=True)
class Calibration:
    """The rates and match probabilities by evidence, for groups of pairs that may differ in their rate.

    Attributes:
        rates: Share of mismatched pairs in each group, [0, 1], (groups,).
        low: Lower end of each rate's interval, (groups,).
        high: Upper end, (groups,).
        probability: Probability that each pair matches, [0, 1], (n,), never falling with the evidence in a group.
        auroc: AUROC with which the evidence separates matching from mismatched pairs, by this model: 0.5 where
            nothing is known, else at least 2/3, which is too high for evidence that is weaker than that.
        density: The densities that the probabilities come from; None where nothing is known.
    """

    rates: Reals
    low: Reals
    high: Reals
    probability: Reals
    auroc: float
    density: Density | None = None

    def of_pairs(self, evidence: Reals, group: Groups) -> Reals:
        """Return the match probability of other pairs without placeholders by their evidence and groups, (n,) each."""
        return np.ones(len(evidence)) if self.density is None else self.density.probability(evidence, group)


def likeliest_shape(evidence: Evidence, options: CalibrationOptions, few: bool = False) -> Reals | None:
    """Return the shape that `calibrate` fits to all pairs, (4,); None without decoys or with equal evidence of all."""
    if not _informative(evidence):
        return None
    return fit_shape(_counts(evidence, np.zeros(len(evidence.pairs), np.int8)).sum(0), options, few=few)


def calibrate(
    evidence: Evidence,
    group: Groups,
    seed: int,
    resamples: int,
    options: CalibrationOptions,
    shape: Reals | None = None,
) -> Calibration:
    """Estimate rates and match probabilities from the evidence of pairs and of decoys.

    Evidence is converted to u, the share of decoys with no more evidence. For mismatched pairs, u is uniform on [0, 1],
    like a p-value under the null hypothesis. For matching pairs, u has a rising density h:

        f(u) = rate + (1 - rate) h(u),    h(u) = (1 - s) K(u; a, b) + s K(u; c, 1),    a >= 2,    b <= 1,    c >= 2

    K is the density of Kumaraswamy (`survival`). The shape a, b, c and the share s are the likeliest
    ones for all pairs, beside a weak prior, so that f can fit pairs of two difficulties. A group's rate maximises the
    likelihood too, but has an upper limit: the smallest value, over q from 0.1 to 0.6, of (share of the group's pairs
    with u < q, plus one standard error) / q. A larger share of mismatches would need more pairs with small u. Where
    the rates say less than one mismatched pair, the shape is fitted again without mismatched pairs.

    The posterior 1 - rate / f(u) is the match probability. For many pairs, a rising density without a parametric form
    is more accurate. The result is therefore a mean of two posteriors: by isotonic regression of pairs against decoys,
    with weight n / (n + 1000), and by f, with the rest.

    The interval of a rate includes the 5% to 95% quantiles over resampled pairs. It also includes every rate whose
    profile likelihood (with the best shape for this rate) is at most exp(1.35) times smaller than the greatest (90%),
    as far as it is below the upper limit above, with 1.645 standard errors. Resampling shows no spread where no pair
    looks mismatched; the likelihood then still shows how many mismatches could have been missed.

    Without decoys, or with equal evidence of all decoys, nothing is known: every probability is 1, and the interval of
    every rate is [0, 1].

    Args:
        evidence: Evidence of the pairs, (n,), and of decoys.
        group: Group of each pair, 0 and up, (n,); groups differ in their rate, but not in the density.
        seed: Seed of the resampling.
        resamples: Number of resampled collections for the intervals; with 0, an interval holds only the rate.
        options: Quantiles, prior and weights.
        shape: The shape of all pairs where it is known, as `likeliest_shape` returns it, (4,).
    """
    groups = int(group.max(initial=0)) + 1
    if not _informative(evidence):
        return Calibration(np.zeros(groups), np.zeros(groups), np.ones(groups), np.ones(len(group)), 0.5)
    counts = _counts(evidence, group)
    shape = fit_shape(counts.sum(0), options) if shape is None else shape
    rates = np.array([_rate(count, shape, options) for count in counts])
    low, high = _interval(counts, shape, rates, np.random.default_rng((seed, 11)), resamples, options)
    if counts.sum(1) @ rates < 1:
        shape = fit_shape(counts.sum(0), options, rate=NO_RATE, few=not resamples)
    density = Density.fit(evidence, shape, rates, group, options)
    return Calibration(rates, low, high, density.probability(evidence.pairs, group), expected_auroc(shape), density)


def rates_differ(evidence: Evidence, group: Groups, options: CalibrationOptions, shape: Reals | None = None) -> bool:
    """Return whether two groups have different rates.

    Rates differ where two of them fit the groups exp(2.7) times better than one, with one shape. This is twice the drop
    of the log-likelihood at the end of a 90% interval; groups with one rate exceed it in 2% of cases.

    Args:
        evidence: Evidence of the pairs, (n,), and of decoys.
        group: Group of each pair, 0 or 1, (n,).
        options: The prior of the shape.
        shape: The shape of all pairs where it is known, as `likeliest_shape` returns it, (4,).
    """
    if not _informative(evidence):
        return False
    counts = _counts(evidence, group)
    mass = bin_probabilities(fit_shape(counts.sum(0), options) if shape is None else shape)

    def fit(counts: Ints) -> float:
        rate = _likeliest_rate(counts, mass)
        return float(counts @ np.log(np.maximum(rate * BIN_WIDTHS + (1 - rate) * mass, np.finfo(np.float64).tiny)))

    return sum(map(fit, counts)) - fit(counts.sum(0)) > 2 * DROP


def decoy_quantile(evidence: Evidence) -> Reals:
    """Return the share of decoys whose evidence is no higher than each pair's, in (0, 1), (n,)."""
    return quantile_among(evidence.pairs, np.sort(evidence.decoys))


def quantile_among(values: Reals, decoys: Reals) -> Reals:
    """Return the share of decoys, in ascending order, that are no higher than each value, in (0, 1), (n,)."""
    return np.asarray((np.searchsorted(decoys, values, side="right") + 0.5) / (len(decoys) + 1))


def largest_rate(counts: Ints, options: CalibrationOptions, errors: float = 1.0, variance: float = 0.0) -> float:
    """Return the largest share of uniform values that is compatible with these counts, [0, 1].

    Args:
        counts: Number of values in each bin, (bins,).
        options: The quantiles at which it is sought.
        errors: Number of standard errors that are added to a count.
        variance: Variance that is added to a count's; with 1, a count of 0 also has a standard error.
    """
    total = max(1, int(counts.sum()))
    first, last = np.searchsorted(EDGES, (options.lowest_quantile, options.highest_quantile))
    ends = np.arange(first, last + 1, STEP)
    below = np.cumsum(counts)[ends - 1]
    error = np.sqrt(below * (1 - below / total) + variance)
    return float(np.clip(((below + errors * error) / total / EDGES[ends]).min(), 0, 1))


def _interval(
    counts: Ints,
    shape: Reals,
    rates: Reals,
    rng: np.random.Generator,
    resamples: int,
    options: CalibrationOptions,
) -> tuple[Reals, Reals]:
    """Return the interval that covers resampled rates and likely rates; without resamples, only the rate."""
    if not resamples:
        return rates, rates
    low, high = _resampled(counts, shape, rates, rng, resamples, options)
    profiles = [_Profile(count, shape, rate, options) for count, rate in zip(counts, rates, strict=True)]
    likely = np.array([profile.interval() for profile in profiles])
    return np.minimum(low, likely[:, 0]), np.maximum(high, likely[:, 1])


def _resampled(
    counts: Ints,
    shape: Reals,
    rates: Reals,
    rng: np.random.Generator,
    resamples: int,
    options: CalibrationOptions,
) -> tuple[Reals, Reals]:
    """Return the 5% and 95% quantiles of the rates over resampled pairs, widened to cover the rates, (groups,) each."""
    resampled = np.empty((resamples, len(rates)))
    for sample in range(resamples):
        sample_counts = np.stack([rng.multinomial(count.sum(), count / max(1, count.sum())) for count in counts])
        sample_shape = fit_shape(sample_counts.sum(0), options, shape)
        resampled[sample] = [_rate(count, sample_shape, options) for count in sample_counts]
    low, high = np.quantile(resampled, [0.05, 0.95], axis=0)
    return np.minimum(rates, low), np.maximum(rates, high)


class _Profile:
    """The profile likelihood of a rate: for each rate, the likelihood with the best shape.

    Args:
        counts: Number of pairs in each bin of u, (bins,).
        shape: The shape that the search starts from.
        rate: The rate that the search starts from.
        options: Quantiles, prior and the number of halvings.
    """

    def __init__(self, counts: Ints, shape: Reals, rate: float, options: CalibrationOptions) -> None:
        self.counts, self.options = counts, options
        self.start = search_parameters(rate, shape)
        best = minimize(misfit, self.start, (counts, options), "L-BFGS-B", jac=True, bounds=BOUNDS)
        self.best, self.limit = float(best.x[0]), float(best.fun) + DROP

    def unlikely(self, rate_logit: float) -> bool:
        """Return whether the likelihood at this rate is more than exp(1.35) times smaller than the greatest."""

        def conditional(theta: Reals) -> tuple[float, Reals]:
            value, slope = misfit(np.array([rate_logit, *theta]), self.counts, self.options)
            return value, slope[1:]

        starts = (self.start[1:], STARTS[0][1:])
        fits = (minimize(conditional, start, jac=True, method="L-BFGS-B", bounds=BOUNDS[1:]) for start in starts)
        return not any(float(fit.fun) <= self.limit for fit in fits)

    def largest(self) -> float:
        """Return the upper limit of the rate by the counts of small u."""
        return largest_rate(self.counts, self.options, ERRORS, 1.0)

    def interval(self) -> tuple[float, float]:
        """Return the lower and the upper end of the interval."""
        ends = []
        for end in BOUNDS[0]:
            inside, outside = self.best, end
            for _ in range(self.options.halvings if self.unlikely(end) else 0):
                middle = (inside + outside) / 2
                inside, outside = (inside, middle) if self.unlikely(middle) else (middle, outside)
            ends.append(float(expit(outside)))
        return ends[0], min(ends[1], self.largest())


def _informative(evidence: Evidence) -> bool:
    """Return whether the decoys have different evidence."""
    return bool(len(evidence.decoys) and np.ptp(evidence.decoys) > 0)


def _blocks(count: int) -> Iterator[slice]:
    """Yield parts of so many pairs, which are computed one after the other to save memory."""
    for start in range(0, count, ROWS):
        yield slice(start, start + ROWS)


def _counts(evidence: Evidence, group: Groups) -> Ints:
    """Return the number of pairs in each bin of their quantiles of decoys, by group, (groups, bins)."""
    counts, decoys = np.zeros((int(group.max(initial=0)) + 1, BINS), np.int64), np.sort(evidence.decoys)
    for rows in _blocks(len(group)):
        u = quantile_among(evidence.pairs[rows], decoys)
        for number, count in enumerate(counts):
            count += bin_counts(u[group[rows] == number])
    return counts


def _rate(counts: Ints, shape: Reals, options: CalibrationOptions) -> float:
    """Return the rate of greatest likelihood, at most `largest_rate`."""
    return min(_likeliest_rate(counts, bin_probabilities(shape)), largest_rate(counts, options))


def _likeliest_rate(counts: Ints, mass: Reals) -> float:
    """Return the rate of greatest likelihood, where the bins' probabilities for a matching pair are known, (bins,)."""

    def slope(rate: float) -> float:
        return float(counts @ ((BIN_WIDTHS - mass) / (rate * BIN_WIDTHS + (1 - rate) * mass)))

    if slope(NO_RATE) <= 0:
        return 0.0
    return float(brentq(slope, NO_RATE, 1.0)) if slope(1.0) < 0 else 1.0


def _parametric_ratio(u: Reals, decoys: int, shape: Reals) -> Reals:
    """Return the ratio of the densities of matching pairs and of decoys at each pair, (n,).

    Each u stands for an interval of the length 1 / (decoys + 1), over which the density h of the shape is averaged.
    """
    half = 0.5 / (decoys + 1)
    low, high = (survival(np.clip(u + step, 0, 1), shape) for step in (-half, half))
    return np.asarray((low - high) * (decoys + 1))


def _posterior(ratio: Reals, rate: Reals) -> Reals:
    """Return the match probability from the ratio of the densities of matching and of mismatched pairs, (n,)."""
    matched = (1 - rate) * ratio
    return np.asarray(matched / np.maximum(matched + rate, 1e-12))


def calibrate_sides(
    evidence: Evidence, in_train: Bools, seed: int, resamples: int, options: CalibrationOptions
) -> tuple[Calibration, int]:
    """Return the calibration, and the group of the training pairs in it: 1 where they have a separate rate, else 0.

    Placeholders are set apart (`with_placeholders`).

    Args:
        evidence: Evidence of the pairs, (n,), and of decoys.
        in_train: Whether each pair is a training pair, (n,).
        seed: Seed of the resampling.
        resamples: Number of resampled collections for the intervals; with 0, an interval holds only the rate, and the
            search is shorter.
        options: What separate rates need, and the options of `calibrate`.
    """
    if len(evidence.placeholder):
        rest = evidence.placeholder < 0
        others = Evidence(evidence.pairs[rest], evidence.decoys)
        calibration, separate = calibrate_sides(others, in_train[rest], seed, resamples, options)
        if not separate and _shares_differ(~rest, in_train, options):
            rates, low, high = (np.repeat(ends, 2) for ends in (calibration.rates, calibration.low, calibration.high))
            calibration, separate = replace(calibration, rates=rates, low=low, high=high), 1
        return with_placeholders(calibration, evidence.placeholder, in_train.astype(np.int64) * separate), separate
    group, shape = in_train.astype(np.int8), likeliest_shape(evidence, options, not resamples)
    enough = min(in_train.sum(), (~in_train).sum()) >= options.min_pairs_of_side
    separate = int(enough and rates_differ(evidence, group, options, shape))
    return calibrate(evidence, group * separate, seed, resamples, options, shape), separate


def _shares_differ(apart: Bools, in_train: Bools, options: CalibrationOptions) -> bool:
    """Return whether training pairs and others, 40 each or more, differ in a share by three standard errors."""
    sides = in_train, ~in_train
    if min(side.sum() for side in sides) < options.min_pairs_of_side:
        return False
    shares, mean = [apart[side].mean() for side in sides], apart.mean()
    error = np.sqrt(mean * (1 - mean) * sum(1 / side.sum() for side in sides))
    return bool(abs(shares[0] - shares[1]) > options.side_errors * error)


def with_placeholders(calibration: Calibration, placeholder: Ints, group: Groups) -> Calibration:
    """Return the calibration of all pairs, where pairs of a placeholder of n pairs have the probability 1 / (n + 2).

    This is the rule of succession for a set where no pair has been seen to match. A group's rate, and the ends of
    its interval, become means over all of its pairs.

    Args:
        calibration: The calibration of the other pairs.
        placeholder: Number of the placeholder of each pair, -1 for the others, (n,).
        group: Group of each pair in the calibration, (n,).
    """
    rest = placeholder < 0
    probability = 1 / (pair_counts(placeholder + 1) + 2)
    probability[rest] = calibration.probability
    groups = [group == number for number in range(len(calibration.rates))]
    share = np.array([rest[inside].mean() for inside in groups])
    mismatched = np.array([((1 - probability) * ~rest)[inside].mean() for inside in groups])
    rates, low, high = (ends * share + mismatched for ends in (calibration.rates, calibration.low, calibration.high))
    return Calibration(rates, low, high, probability, calibration.auroc, calibration.density)
