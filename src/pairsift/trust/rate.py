"""The share of mismatched pairs, and each pair's probability, from evidence beside that of known mismatches."""

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
LOWEST, HIGHEST = 0.1, 0.6  # quantiles of the decoys between which the largest rate is sought
MANY = 1000  # number of pairs of which the two estimates of the density weigh the same
STEEPNESS = 0.5  # log(a - 1) that is likeliest beforehand, where a is the first number of the beta density
WIDTH = 1.5  # deviation of the logit of b beforehand
DROP = 1.353  # of the logarithm of the likelihood, at which a profile's interval holds nine of ten
ERRORS = 1.645  # standard errors that one of twenty counts exceeds
HALVINGS = 12  # of the range in which an end of a profile's interval lies
TAIL = 0.05  # largest share of the matching pairs whose evidence is hardly better than that of mismatched ones
TAIL_PRIOR = 2.0  # logarithm of how much likelier the largest tail is beforehand than none
BOUNDS = ((-8.0, 8.0), (-3.0, 5.0), (-6.0, 6.0), (0.0, TAIL))  # of rate's logit, log(a - 1), b's logit, and tail


@dataclass(frozen=True)
class Calibration:
    """What evidence says of pairs, by groups of pairs that may differ in their rate.

    Attributes:
        rates: Share of mismatched pairs in each group, [0, 1], (groups,).
        low: Lower end of each rate's interval, (groups,).
        high: Upper end, (groups,).
        probability: Probability that each pair matches, [0, 1], (n,), never falling with the evidence in a group.
        auroc: At which, by this model, the evidence tells matching from mismatched pairs, [0.5, 1].
    """

    rates: Reals
    low: Reals
    high: Reals
    probability: Reals
    auroc: float


def calibrate(evidence: Evidence, group: Ints, seed: int, resamples: int = 60) -> Calibration:
    """Estimate rates and probabilities from the evidence of given pairs and of decoys.

    Evidence becomes u, the share of decoys below it. Mismatched pairs then have u uniform on [0, 1], as p-values have
    under the null hypothesis. u of matching pairs is modelled by a rising density (a beta-uniform mixture with a tail):

        f(u) = rate + (1 - rate) h(u),    h(u) = (1 - t) Beta(u; a, b) + t * 2u,    a >= 1 >= b,    t <= 0.05.

    a, b and t are those of greatest likelihood over all pairs; t is 0.05 where nothing speaks against it. A group's
    rate is that of greatest likelihood too, or less: at most the smallest, over q from 0.1 to 0.6, of (share of the
    group's pairs with u < q and one standard error) / q, which is the largest share of mismatches that the small u
    leave room for. The probability is the posterior 1 - rate / f(u). Of many pairs a rising density without a form is
    known better than this one, so the posterior by isotonic regression of pairs against decoys counts by
    n / (n + 1000), this one's by the rest.

    The interval of a rate holds the quantiles from 5% to 95% over resampled pairs, and every rate whose likelihood at
    its best shape is at most exp(1.35) times smaller than the greatest (a profile likelihood, 90%) and that the small u
    leave room for, within 1.645 standard errors. Resampling tells nothing where no pair looks mismatched; the
    likelihood then still tells how many could have been missed.

    Where there are no decoys, or their evidence is all the same, nothing is known: every pair is believed, and the
    interval of a rate is [0, 1].

    Args:
        evidence: Of the pairs, (n,), and of decoys.
        group: Group of each pair, 0 and up, (n,); rates differ between groups, the model does not.
        seed: Seed of the resampling.
        resamples: Number of resampled collections for the intervals; with 0 there are none, and they hold the rates
            alone.
    """
    groups = int(group.max(initial=0)) + 1
    if not len(evidence.decoys) or np.ptp(evidence.decoys) == 0:
        return Calibration(np.zeros(groups), np.zeros(groups), np.ones(groups), np.ones(len(group)), 0.5)
    u = decoy_quantile(evidence)
    centres = (np.arange(BINS) + 0.5) / BINS
    bins = np.minimum((u * BINS).astype(np.int64), BINS - 1)
    counts = np.stack([np.bincount(bins[group == one], minlength=BINS) for one in range(groups)])
    shape = _shape(counts.sum(0), centres)
    rates = np.array([_rate(count, centres, shape) for count in counts])
    low, high = _interval(counts, centres, shape, rates, np.random.default_rng((seed, 11)), resamples)
    density = _density(np.clip(u, 0.5 / BINS, 1 - 0.5 / BINS), shape)
    free = _rising(evidence, float(rates[group].mean()) if len(u) else 0.0)
    share, own = len(u) / (len(u) + MANY), np.maximum(rates, 0.1 / max(1, len(u)))[group]
    probability = share * _posterior(free, own) + (1 - share) * _posterior(density, own)
    return Calibration(rates, low, high, probability, _auroc(shape))


def decoy_quantile(evidence: Evidence) -> Reals:
    """Return the share of decoys whose evidence is no higher than each pair's, in (0, 1), (n,)."""
    known = np.sort(evidence.decoys)
    return np.asarray((np.searchsorted(known, evidence.pairs, side="right") + 0.5) / (len(known) + 1))


def largest_rate(counts: NDArray[np.int64], errors: float = 1.0, variance: float = 0.0) -> float:
    """Return the largest share of uniform values that these counts leave room for, [0, 1].

    Args:
        counts: Values in equal bins of [0, 1], (bins,).
        errors: Number of standard errors that are added.
        variance: Added to that of a count; with 1 also counts of 0 leave some room.
    """
    total = max(1, int(counts.sum()))
    edges = np.arange(int(LOWEST * len(counts)), int(HIGHEST * len(counts)) + 1, max(1, len(counts) // 20))
    below = np.cumsum(counts)[edges - 1]
    error = np.sqrt(below * (1 - below / total) + variance)
    return float(np.clip(((below + errors * error) / total * len(counts) / edges).min(), 0, 1))


def _density(u: Reals, shape: Reals) -> Reals:
    """h(u)."""
    a, b, tail = shape
    return np.asarray((1 - tail) * np.exp((a - 1) * np.log(u) + (b - 1) * np.log1p(-u) - betaln(a, b)) + tail * 2 * u)


def _shape(counts: NDArray[np.int64], centres: Reals, near: Reals | None = None) -> Reals:
    """Return a, b and t of greatest likelihood, with a weak prior at a = 2.6, b = 0.5 and the largest t, (3,)."""
    if near is None:
        starts = [np.array([start, STEEPNESS, 0.0, TAIL]) for start in (-3.0, -0.5, 1.0)]
    else:
        starts = [_theta(expit(-1.0), near)]
    found = [minimize(_misfit, start, (counts, centres), "L-BFGS-B", jac=True, bounds=BOUNDS) for start in starts]
    return _shaped(min(found, key=lambda one: float(one.fun)).x)


def _misfit(theta: Reals, counts: NDArray[np.int64], centres: Reals) -> tuple[float, Reals]:
    """Negative logarithm of likelihood and prior, and its slope, in the four numbers that `BOUNDS` holds."""
    rate, shape, log_u, log_v = expit(theta[0]), _shaped(theta), np.log(centres), np.log1p(-centres)
    a, b, tail = shape
    density = _density(centres, shape)
    beta = _density(centres, np.array([a, b, 0.0]))
    whole = rate + (1 - rate) * density
    weight = counts / whole
    by_a, by_b = log_u + digamma(a + b) - digamma(a), log_v + digamma(a + b) - digamma(b)
    slope = [
        rate * (1 - rate) * (1 - density) @ weight,
        (1 - rate) * (1 - tail) * (a - 1) * (beta * by_a) @ weight,
        (1 - rate) * (1 - tail) * b * (1 - b) * (beta * by_b) @ weight,
        (1 - rate) * (2 * centres - beta) @ weight,
    ]
    prior = np.array([0.0, theta[1] - STEEPNESS, theta[2] / WIDTH**2, -TAIL_PRIOR / TAIL])
    value = (theta[1] - STEEPNESS) ** 2 / 2 + (theta[2] / WIDTH) ** 2 / 2 - TAIL_PRIOR * tail / TAIL
    return float(value - (counts * np.log(whole)).sum()), prior - np.array(slope)


def _interval(
    counts: NDArray[np.int64],
    centres: Reals,
    shape: Reals,
    rates: Reals,
    rng: np.random.Generator,
    resamples: int,
) -> tuple[Reals, Reals]:
    """Return the wider of two intervals, of resampled and of likely rates; the rate alone without resamples."""
    if not resamples:
        return rates, rates
    drawn = np.empty((resamples, len(rates)))
    for sample in range(resamples):
        again = np.stack([rng.multinomial(count.sum(), count / max(1, count.sum())) for count in counts])
        moved = _shape(again.sum(0), centres, shape)
        drawn[sample] = [_rate(count, centres, moved) for count in again]
    low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
    likely = np.array([_profile(count, centres, shape, rate) for count, rate in zip(counts, rates, strict=True)])
    return np.minimum(rates, np.minimum(low, likely[:, 0])), np.maximum(rates, np.maximum(high, likely[:, 1]))


def _profile(counts: NDArray[np.int64], centres: Reals, shape: Reals, rate: float) -> tuple[float, float]:
    """Return the ends of the rates whose profile likelihood is near the greatest, at most the largest possible rate."""
    start = _theta(rate, shape)

    def misfit(place: float) -> float:
        def at(theta: Reals) -> tuple[float, Reals]:
            value, slope = _misfit(np.array([place, *theta]), counts, centres)
            return value, slope[1:]

        return float(minimize(at, start[1:], jac=True, method="L-BFGS-B", bounds=BOUNDS[1:]).fun)

    best = minimize(_misfit, start, (counts, centres), "L-BFGS-B", jac=True, bounds=BOUNDS)
    ends = []
    for end in BOUNDS[0]:
        inside, outside = float(best.x[0]), end
        for _ in range(HALVINGS if misfit(end) > best.fun + DROP else 0):
            middle = (inside + outside) / 2
            inside, outside = (inside, middle) if misfit(middle) > best.fun + DROP else (middle, outside)
        ends.append(float(expit(outside)))
    return ends[0], min(ends[1], largest_rate(counts, ERRORS, 1.0))


def _theta(rate: float, shape: Reals) -> Reals:
    """Logit of the rate, log(a - 1), logit of b and tail, within their bounds, (4,)."""
    theta = np.array([logit(rate), np.log(max(shape[0] - 1, 1e-9)), logit(shape[1]), shape[2]])
    return np.asarray(np.clip(theta, *np.transpose(BOUNDS)))


def _shaped(theta: Reals) -> Reals:
    return np.array([1 + np.exp(theta[1]), expit(theta[2]), theta[3]])


def _rate(counts: NDArray[np.int64], centres: Reals, shape: Reals, steps: int = 300) -> float:
    """Return the rate of greatest likelihood by EM, at most `largest_rate`."""
    density, rate, total = _density(centres, shape), 0.3, max(1, int(counts.sum()))
    for _ in range(steps):
        before, rate = rate, float((counts * rate / (rate + (1 - rate) * density)).sum() / total)
        if abs(rate - before) < 1e-6:
            break
    return min(rate, largest_rate(counts))


def _rising(evidence: Evidence, rate: float) -> Reals:
    """Density of matching pairs over that of decoys at each pair, at least 0, never falling with the evidence, (n,)."""
    pairs, decoys = len(evidence.pairs), len(evidence.decoys)
    values = np.concatenate([evidence.pairs, evidence.decoys])
    order = np.argsort(values, kind="stable")
    label = np.concatenate([np.ones(pairs), np.zeros(decoys)])
    weight = np.concatenate([np.full(pairs, 1 / max(1, pairs)), np.full(decoys, 1 / max(1, decoys))])
    given = np.empty(len(values))
    given[order] = isotonic_regression(label[order], sample_weight=weight[order])
    ratio = given[:pairs] / np.maximum(1 - given[:pairs], 1e-6)
    return np.asarray(np.maximum(ratio - rate, 0) / max(1 - rate, 1e-6))


def _posterior(ratio: Reals, rate: Reals) -> Reals:
    """Probability of a match from the density of matching pairs over that of mismatched ones, (n,)."""
    matched = (1 - rate) * ratio
    return np.asarray(matched / np.maximum(matched + rate, 1e-12))


def _auroc(shape: Reals) -> float:
    """Mean of h: the probability that a matching pair's u exceeds a uniform one."""
    a, b, tail = shape
    return float((1 - tail) * a / (a + b) + tail * 2 / 3)
