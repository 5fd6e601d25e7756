"""The share of mismatched pairs and each pair's match probability, from the evidence of pairs and of decoys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import betaln, digamma, expit, logit
from sklearn.isotonic import isotonic_regression

from pairsift.arrays import Ints, Reals
from pairsift.trust.contrast import Evidence

BINS = 400
CENTRES = (np.arange(BINS) + 0.5) / BINS
LOWEST, HIGHEST = 0.1, 0.6  # quantiles of the decoys between which the largest rate is sought
EQUAL_WEIGHT_PAIRS = 1000  # number of pairs at which the two estimates of the probability have the same weight
STEEPNESS = 0.5  # prior mean of log(a - 1), where a is the first parameter of the beta density
WIDTH = 1.5  # prior standard deviation of the logit of b
DROP = 1.353  # drop of the log-likelihood at the ends of a 90% profile interval
ERRORS = 1.645  # number of standard errors that 5% of counts exceed
HALVINGS = 12  # number of bisection steps for an end of a profile interval
TAIL = 0.05  # largest share of matching pairs whose evidence is hardly better than that of mismatched pairs
TAIL_PRIOR = 2.0  # log of the prior density of the largest tail divided by that of no tail
BOUNDS = ((-8.0, 8.0), (-3.0, 5.0), (-6.0, 6.0), (0.0, TAIL))  # of rate's logit, log(a - 1), b's logit, and tail


@dataclass(frozen=True)
class Calibration:
    """The rates and match probabilities by evidence, for groups of pairs that may differ in their rate.

    Attributes:
        rates: Share of mismatched pairs in each group, [0, 1], (groups,).
        low: Lower end of each rate's interval, (groups,).
        high: Upper end, (groups,).
        probability: Probability that each pair matches, [0, 1], (n,), never falling with the evidence in a group.
        auroc: AUROC with which the evidence separates matching from mismatched pairs, by this model, [0.5, 1].
    """

    rates: Reals
    low: Reals
    high: Reals
    probability: Reals
    auroc: float


def calibrate(evidence: Evidence, group: Ints, seed: int, resamples: int = 60) -> Calibration:
    """Estimate rates and match probabilities from the evidence of pairs and of decoys.

    Evidence is converted to u, the share of decoys with lower evidence. For mismatched pairs, u is uniform on [0, 1],
    like a p-value under the null hypothesis. For matching pairs, u has a rising density (a beta-uniform mixture with a
    tail):

        f(u) = rate + (1 - rate) h(u),    h(u) = (1 - t) Beta(u; a, b) + t * 2u,    a >= 1 >= b,    t <= 0.05.

    a, b and t maximise the likelihood over all pairs; t is 0.05 unless the pairs contradict it. A group's rate
    maximises the likelihood too, but has an upper limit: the smallest value, over q from 0.1 to 0.6, of (share of the
    group's pairs with u < q, plus one standard error) / q. A larger share of mismatches would need more pairs with
    small u. The posterior 1 - rate / f(u) is the match probability. For many pairs, a rising density without a
    parametric form is more accurate. The result is therefore a mean of two posteriors: that of isotonic regression of
    pairs against decoys, with weight n / (n + 1000), and that of f, with the rest.

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
    """
    groups = int(group.max(initial=0)) + 1
    if not _informative(evidence):
        return Calibration(np.zeros(groups), np.zeros(groups), np.ones(groups), np.ones(len(group)), 0.5)
    u = decoy_quantile(evidence)
    counts = _counts(u, group)
    shape = _shape(counts.sum(0))
    rates = np.array([_rate(count, shape) for count in counts])
    low, high = _interval(counts, shape, rates, np.random.default_rng((seed, 11)), resamples)
    density = _density(np.clip(u, 0.5 / BINS, 1 - 0.5 / BINS), shape)
    isotonic = _isotonic_ratio(evidence, float(rates[group].mean()) if len(u) else 0.0)
    share, pair_rates = len(u) / (len(u) + EQUAL_WEIGHT_PAIRS), np.maximum(rates, 0.1 / max(1, len(u)))[group]
    probability = share * _posterior(isotonic, pair_rates) + (1 - share) * _posterior(density, pair_rates)
    return Calibration(rates, low, high, probability, _auroc(shape))


def rates_differ(evidence: Evidence, group: Ints, seed: int, resamples: int) -> bool:
    """Return whether the intervals of the rates of two groups are disjoint.

    The intervals are those of `calibrate`. Resampling can only widen them, so it is left out where the profile
    likelihood of one group's rate already includes the rate of the other group.

    Args:
        evidence: Evidence of the pairs, (n,), and of decoys.
        group: Group of each pair, 0 or 1, (n,).
        seed: Seed of the resampling.
        resamples: Number of resampled collections for the intervals.
    """
    if not _informative(evidence):
        return False
    counts = _counts(decoy_quantile(evidence), group)
    shape = _shape(counts.sum(0))
    rates = np.array([_rate(count, shape) for count in counts])
    if any(_Profile(counts[k], shape, rates[k]).includes(rates[1 - k]) for k in (0, 1)):
        return False
    low, high = _interval(counts, shape, rates, np.random.default_rng((seed, 11)), resamples)
    return bool(low[0] > high[1] or low[1] > high[0])


def decoy_quantile(evidence: Evidence) -> Reals:
    """Return the share of decoys whose evidence is no higher than each pair's, in (0, 1), (n,)."""
    decoys = np.sort(evidence.decoys)
    return np.asarray((np.searchsorted(decoys, evidence.pairs, side="right") + 0.5) / (len(decoys) + 1))


def largest_rate(counts: NDArray[np.int64], errors: float = 1.0, variance: float = 0.0) -> float:
    """Return the largest share of uniform values that is compatible with these counts, [0, 1].

    Args:
        counts: Number of values in equal bins of [0, 1], (bins,).
        errors: Number of standard errors that are added to a count.
        variance: Variance that is added to that of a count; with 1, a count of 0 also has a standard error.
    """
    total = max(1, int(counts.sum()))
    edges = np.arange(int(LOWEST * len(counts)), int(HIGHEST * len(counts)) + 1, max(1, len(counts) // 20))
    below = np.cumsum(counts)[edges - 1]
    error = np.sqrt(below * (1 - below / total) + variance)
    return float(np.clip(((below + errors * error) / total * len(counts) / edges).min(), 0, 1))


def _density(u: Reals, shape: Reals) -> Reals:
    """Return h(u), the density of u for matching pairs."""
    a, b, tail = shape
    return np.asarray((1 - tail) * np.exp((a - 1) * np.log(u) + (b - 1) * np.log1p(-u) - betaln(a, b)) + tail * 2 * u)


def _shape(counts: NDArray[np.int64], start_shape: Reals | None = None) -> Reals:
    """Return a, b and t of greatest likelihood, (3,), with a weak prior at a = 2.6, b = 0.5 and the largest t.

    The search starts from `start_shape`, by default from several standard shapes.
    """
    if start_shape is None:
        starts = [np.array([start, STEEPNESS, 0.0, TAIL]) for start in (-3.0, -0.5, 1.0)]
    else:
        starts = [_theta(expit(-1.0), start_shape)]
    fits = [minimize(_misfit, start, (counts,), "L-BFGS-B", jac=True, bounds=BOUNDS) for start in starts]
    return _shaped(min(fits, key=lambda fit: float(fit.fun)).x)


def _misfit(theta: Reals, counts: NDArray[np.int64]) -> tuple[float, Reals]:
    """Return the negative logarithm of likelihood times prior, and its gradient, in the four parameters of `BOUNDS`."""
    rate, shape, log_u, log_v = expit(theta[0]), _shaped(theta), np.log(CENTRES), np.log1p(-CENTRES)
    a, b, tail = shape
    density = _density(CENTRES, shape)
    beta = _density(CENTRES, np.array([a, b, 0.0]))
    mixture = rate + (1 - rate) * density
    weight = counts / mixture
    by_a, by_b = log_u + digamma(a + b) - digamma(a), log_v + digamma(a + b) - digamma(b)
    slope = [
        rate * (1 - rate) * (1 - density) @ weight,
        (1 - rate) * (1 - tail) * (a - 1) * (beta * by_a) @ weight,
        (1 - rate) * (1 - tail) * b * (1 - b) * (beta * by_b) @ weight,
        (1 - rate) * (2 * CENTRES - beta) @ weight,
    ]
    prior = np.array([0.0, theta[1] - STEEPNESS, theta[2] / WIDTH**2, -TAIL_PRIOR / TAIL])
    value = (theta[1] - STEEPNESS) ** 2 / 2 + (theta[2] / WIDTH) ** 2 / 2 - TAIL_PRIOR * tail / TAIL
    return float(value - (counts * np.log(mixture)).sum()), prior - np.array(slope)


def _interval(
    counts: NDArray[np.int64],
    shape: Reals,
    rates: Reals,
    rng: np.random.Generator,
    resamples: int,
) -> tuple[Reals, Reals]:
    """Return the interval that covers resampled rates and likely rates; without resamples, only the rate."""
    if not resamples:
        return rates, rates
    resampled = np.empty((resamples, len(rates)))
    for sample in range(resamples):
        sample_counts = np.stack([rng.multinomial(count.sum(), count / max(1, count.sum())) for count in counts])
        sample_shape = _shape(sample_counts.sum(0), shape)
        resampled[sample] = [_rate(count, sample_shape) for count in sample_counts]
    low, high = np.quantile(resampled, [0.05, 0.95], axis=0)
    likely = np.array([_Profile(count, shape, rate).interval() for count, rate in zip(counts, rates, strict=True)])
    return np.minimum(rates, np.minimum(low, likely[:, 0])), np.maximum(rates, np.maximum(high, likely[:, 1]))


class _Profile:
    """The profile likelihood of a rate: for each rate, the likelihood with the best shape.

    Args:
        counts: Number of pairs in each bin of u, (bins,).
        shape: The shape that the search starts from.
        rate: The rate that the search starts from.
    """

    def __init__(self, counts: NDArray[np.int64], shape: Reals, rate: float) -> None:
        self.counts = counts
        self.start = _theta(rate, shape)
        best = minimize(_misfit, self.start, (counts,), "L-BFGS-B", jac=True, bounds=BOUNDS)
        self.best, self.limit = float(best.x[0]), float(best.fun) + DROP

    def unlikely(self, rate_logit: float) -> bool:
        """Return whether the likelihood at this rate is more than exp(1.35) times smaller than the greatest."""

        def conditional(theta: Reals) -> tuple[float, Reals]:
            value, slope = _misfit(np.array([rate_logit, *theta]), self.counts)
            return value, slope[1:]

        fit = minimize(conditional, self.start[1:], jac=True, method="L-BFGS-B", bounds=BOUNDS[1:])
        return float(fit.fun) > self.limit

    def largest(self) -> float:
        """Return the upper limit of the rate by the counts of small u."""
        return largest_rate(self.counts, ERRORS, 1.0)

    def includes(self, rate: float) -> bool:
        """Return whether a rate lies in the interval."""
        return rate <= self.largest() and not self.unlikely(float(np.clip(logit(rate), *BOUNDS[0])))

    def interval(self) -> tuple[float, float]:
        """Return the lower and the upper end of the interval."""
        ends = []
        for end in BOUNDS[0]:
            inside, outside = self.best, end
            for _ in range(HALVINGS if self.unlikely(end) else 0):
                middle = (inside + outside) / 2
                inside, outside = (inside, middle) if self.unlikely(middle) else (middle, outside)
            ends.append(float(expit(outside)))
        return ends[0], min(ends[1], self.largest())


def _informative(evidence: Evidence) -> bool:
    """Return whether there are decoys with different evidence."""
    return bool(len(evidence.decoys) and np.ptp(evidence.decoys) > 0)


def _counts(u: Reals, group: Ints) -> NDArray[np.int64]:
    """Return the number of pairs in each bin of u, by group, (groups, bins)."""
    bins = np.minimum((u * BINS).astype(np.int64), BINS - 1)
    groups = int(group.max(initial=0)) + 1
    return np.stack([np.bincount(bins[group == number], minlength=BINS) for number in range(groups)])


def _theta(rate: float, shape: Reals) -> Reals:
    """Return the logit of the rate, log(a - 1), the logit of b and the tail, within their bounds, (4,)."""
    theta = np.array([logit(rate), np.log(max(shape[0] - 1, 1e-9)), logit(shape[1]), shape[2]])
    return np.asarray(np.clip(theta, *np.transpose(BOUNDS)))


def _shaped(theta: Reals) -> Reals:
    """Return a, b and t of the parameters from `_theta`, (3,)."""
    return np.array([1 + np.exp(theta[1]), expit(theta[2]), theta[3]])


def _rate(counts: NDArray[np.int64], shape: Reals, steps: int = 300) -> float:
    """Return the rate of greatest likelihood by EM, at most `largest_rate`."""
    density, rate, total = _density(CENTRES, shape), 0.3, max(1, int(counts.sum()))
    for _ in range(steps):
        before, rate = rate, float((counts * rate / (rate + (1 - rate) * density)).sum() / total)
        if abs(rate - before) < 1e-6:
            break
    return min(rate, largest_rate(counts))


def _isotonic_ratio(evidence: Evidence, rate: float) -> Reals:
    """Return the ratio of the density of matching pairs to that of decoys at each pair, by isotonic regression, (n,).

    It is at least 0 and never falls with the evidence.
    """
    pairs, decoys = len(evidence.pairs), len(evidence.decoys)
    values = np.concatenate([evidence.pairs, evidence.decoys])
    order = np.argsort(values, kind="stable")
    label = np.concatenate([np.ones(pairs), np.zeros(decoys)])
    weight = np.concatenate([np.full(pairs, 1 / max(1, pairs)), np.full(decoys, 1 / max(1, decoys))])
    fitted = np.empty(len(values))
    fitted[order] = isotonic_regression(label[order], sample_weight=weight[order])
    ratio = fitted[:pairs] / np.maximum(1 - fitted[:pairs], 1e-6)
    return np.asarray(np.maximum(ratio - rate, 0) / max(1 - rate, 1e-6))


def _posterior(ratio: Reals, rate: Reals) -> Reals:
    """Return the match probability from the ratio of the densities of matching and of mismatched pairs, (n,)."""
    matched = (1 - rate) * ratio
    return np.asarray(matched / np.maximum(matched + rate, 1e-12))


def _auroc(shape: Reals) -> float:
    """Return the mean of h, the probability that a matching pair's u exceeds a uniform value."""
    a, b, tail = shape
    return float((1 - tail) * a / (a + b) + tail * 2 / 3)
