"""Rates of mismatches and probabilities of matches, from the evidence of pairs and of decoys."""

from itertools import pairwise

import numpy as np
import pytest
from detect_helpers import OPTIONS, drawn_evidence
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from sklearn.metrics import roc_auc_score

from pairsift.detect.calibration import (
    BIN_WIDTHS,
    BINS,
    EDGES,
    Density,
    _parametric_ratio,
    _posterior,
    _Profile,
    bin_counts,
    bin_probabilities,
    calibrate,
    decoy_quantile,
    expected_auroc,
    fit_shape,
    largest_rate,
    likeliest_shape,
    misfit,
    rates_differ,
    search_parameters,
    survival,
)
from pairsift.detect.evidence import Evidence

CALIBRATION = OPTIONS.calibration


def test_the_quantile_is_the_share_of_decoys_no_higher():
    rng = np.random.default_rng(0)
    evidence = Evidence(rng.integers(0, 9, 50) / 2, rng.integers(0, 9, 70) / 2)
    expected = [(sum(d <= e for d in evidence.decoys) + 0.5) / 71 for e in evidence.pairs]
    assert decoy_quantile(evidence) == pytest.approx(np.array(expected))


def test_the_profile_holds_the_rates_that_some_shape_makes_likely():
    rng = np.random.default_rng(0)
    u = np.concatenate([rng.random(40), rng.beta(4, 0.5, 160)])
    counts = bin_counts(u)
    places = np.meshgrid(np.linspace(-1, 4, 11), np.linspace(-3, 3, 11), [0.0, 0.1, 0.5], [0.0, 2.0, 4.0])
    grid = np.stack([place.ravel() for place in places], 1)
    rates = np.arange(0.01, 0.5, 0.02)
    best = np.array(
        [
            min(misfit(np.array([np.log(rate / (1 - rate)), *at]), counts, CALIBRATION)[0] for at in grid)
            for rate in rates
        ]
    )
    likely = rates[best <= best.min() + 1.353]
    low, high = _Profile(counts, fit_shape(counts, CALIBRATION), 0.2, CALIBRATION).interval()
    assert low == pytest.approx(likely[0], abs=0.03)
    assert high == pytest.approx(min(likely[-1], largest_rate(counts, CALIBRATION, 1.645, 1.0)), abs=0.03)
    assert 0 < low < 0.2 < high < 0.6


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.15])
def test_the_rate_among_pairs_of_two_difficulties_is_found(rate):
    rng, held = np.random.default_rng(0), 0
    for seed in range(4):
        evidence, group, matched = drawn_evidence([rate], 4000, apart=6.0, seed=seed)
        hard = matched & (rng.random(4000) < 0.1)
        pairs = np.where(hard, rng.normal(3, 1, 4000), evidence.pairs)
        found = calibrate(Evidence(pairs, evidence.decoys), group, 0, 20, CALIBRATION)
        assert found.rates[0] == pytest.approx(1 - matched.mean(), abs=0.012)
        assert (found.probability[~matched] < 0.5).sum() >= 0.85 * (~matched).sum()
        held += found.low[0] - 1e-9 <= 1 - matched.mean() <= found.high[0]
    assert held >= 3


@pytest.mark.parametrize("rate", [0.0, 0.06, 0.3])
def test_the_interval_holds_the_rate_of_small_collections(rate):
    held = []
    for seed in range(12):
        evidence, group, matched = drawn_evidence([rate], 120, apart=2.0, seed=seed)
        found = calibrate(evidence, group, seed, 20, CALIBRATION)
        held.append(found.low[0] - 1e-9 <= 1 - matched.mean() <= found.high[0])
    assert sum(held) >= 10


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_rate_is_what_the_small_quantiles_leave_room_for(seed):
    rng = np.random.default_rng(seed)
    u = np.concatenate([rng.random(300), rng.beta(6, 0.5, 700)])
    bounds = []
    for q in [0.1 + 0.05 * k for k in range(11)]:
        share = sum(v < q for v in u) / len(u)
        bounds.append((share + (share * (1 - share) / len(u)) ** 0.5) / q)
    assert largest_rate(bin_counts(u), CALIBRATION) == pytest.approx(min(1.0, *bounds))
    assert 0.25 < largest_rate(bin_counts(u), CALIBRATION) < 0.4


def test_the_largest_rate_of_uniform_values_is_one_and_of_none_zero():
    assert largest_rate(bin_counts(np.linspace(0.001, 0.999, 20_000)), CALIBRATION) == pytest.approx(1.0)
    assert largest_rate(np.zeros(BINS, np.int64), CALIBRATION) == 0.0
    assert largest_rate(np.where(EDGES[:-1] < 0.75, 0, 10), CALIBRATION) == 0.0


def naive_isotonic(values, label, weight):
    """Rising means by merging neighbours that fall, after equal values are merged."""
    blocks = []
    for v in sorted(set(values.tolist())):
        rows = [i for i in range(len(values)) if values[i] == v]
        blocks.append([sum(label[i] * weight[i] for i in rows), sum(weight[i] for i in rows), rows])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            last = blocks.pop()
            blocks[-1] = [blocks[-1][k] + last[k] for k in range(3)]
    out = np.empty(len(values))
    for total, size, rows in blocks:
        out[rows] = total / size
    return out


def test_the_free_density_is_isotonic_regression_less_the_mismatches():
    rng = np.random.default_rng(1)
    evidence = Evidence(np.round(rng.normal(1, 1, 60), 1), np.round(rng.normal(0, 1, 150), 1))
    values = np.concatenate([evidence.pairs, evidence.decoys])
    label, weight = np.repeat([1, 0], [60, 150]), np.repeat([1 / 60, 1 / 150], [60, 150])
    share = naive_isotonic(values, label, weight)[:60]
    ratio = share / np.maximum(1 - share, 1e-6)
    shape = np.array([5.0, 0.3, 0.2, 3.0])
    found = Density.fit(evidence, shape, np.array([0.2]), np.zeros(60, np.int64), CALIBRATION)._isotonic_ratio(
        evidence.pairs
    )
    assert found == pytest.approx(np.maximum(ratio - 0.2, 0) / 0.8, rel=1e-6)
    assert (np.diff(found[np.argsort(evidence.pairs)]) >= -1e-12).all()


@pytest.mark.parametrize("tied", [False, True])
def test_many_pairs_are_calibrated_by_parts_as_few_are(monkeypatch, tied):
    """Counts stay the same, and steps of several neighbours move a posterior by little."""
    evidence, group, _ = drawn_evidence([0.3, 0.6], 4000, seed=5)
    if tied:
        evidence = Evidence(np.round(evidence.pairs, 2), np.round(evidence.decoys, 2))
    found = calibrate(evidence, group, 0, 4, CALIBRATION)
    monkeypatch.setattr("pairsift.detect.calibration.ROWS", 1024)
    by_parts = calibrate(evidence, group, 0, 4, CALIBRATION)
    assert (by_parts.rates == found.rates).all() and (by_parts.low == found.low).all()
    steps = len(by_parts.density.values)
    assert steps <= 1024 < len(found.density.values)
    moved = np.abs(by_parts.probability - found.probability)
    assert moved.mean() < 2e-3 and np.quantile(moved, 0.99) < 0.03
    for number in (0, 1):
        ascending = np.argsort(evidence.pairs[group == number])
        assert (np.diff(by_parts.probability[group == number][ascending]) >= -1e-12).all()


def test_each_quantile_stands_for_an_interval_of_the_density():
    shape = np.array([5.0, 0.3, 0.2, 3.0])
    u = (np.arange(11) + 0.5) / 11  # all that 10 decoys allow
    mass = [survival(np.array([k / 11, (k + 1) / 11]), shape) for k in range(11)]
    assert _parametric_ratio(u, 10, shape) == pytest.approx([11 * (low - high) for low, high in mass])
    assert _parametric_ratio(u, 10, shape).mean() == pytest.approx(1)


@pytest.mark.parametrize(("n", "apart"), [(100, 3.0), (300, 2.5), (300, 3.0), (1000, 4.0)])
def test_no_pair_is_flagged_where_the_rate_is_zero(n, apart):
    found = [calibrate(*drawn_evidence([0.0], n, apart=apart, seed=seed)[:2], 0, 0, CALIBRATION) for seed in range(8)]
    clean = [one.probability for one in found if one.rates[0] <= 1e-3]
    assert len(clean) >= 6 and min(probability.min() for probability in clean) > 0.5
    assert max(one.rates[0] for one in found) < 0.03


def test_pairs_above_all_decoys_are_as_probable_as_their_number_says():
    evidence, group, _ = drawn_evidence([0.8], 3000, apart=10.0)
    found = calibrate(evidence, group, 0, 0, CALIBRATION)
    assert found.probability[evidence.pairs > evidence.decoys.max()].mean() > 0.999


def test_the_posterior_is_bayes():
    for density in (0.0, 0.3, 4.0):
        for rate in (0.01, 0.4, 1.0):
            f = rate + (1 - rate) * density
            assert _posterior(np.array([density]), rate)[0] == pytest.approx(1 - rate / f)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3, 0.6, 0.9])
def test_drawn_rates_are_found_and_probabilities_are_calibrated(rate):
    evidence, group, matched = drawn_evidence([rate], 3000)
    found = calibrate(evidence, group, 0, 20, CALIBRATION)
    assert found.rates[0] == pytest.approx(1 - matched.mean(), abs=0.05)
    assert found.low[0] <= found.rates[0] <= found.high[0] <= found.low[0] + 0.25
    p = found.probability
    assert ((p >= 0) & (p <= 1)).all() and p.mean() == pytest.approx(matched.mean(), abs=0.05)
    cell = np.minimum((p * 5).astype(int), 4)
    error = sum(abs(matched[cell == one].sum() - p[cell == one].sum()) for one in range(5)) / len(p)
    assert error < 0.05
    if rate:
        assert roc_auc_score(matched, p) == pytest.approx(found.auroc, abs=0.05)
        assert roc_auc_score(matched, p) == pytest.approx(roc_auc_score(matched, evidence.pairs), abs=0.005)


def test_groups_have_rates_of_their_own():
    evidence, group, matched = drawn_evidence([0.1, 0.6], 1500)
    found = calibrate(evidence, group, 0, 20, CALIBRATION)
    for one in range(2):
        assert found.rates[one] == pytest.approx(1 - matched[group == one].mean(), abs=0.04)
        assert found.probability[group == one].mean() == pytest.approx(matched[group == one].mean(), abs=0.05)
    assert found.high[0] < found.low[1]
    middle = np.abs(evidence.pairs - 1.5) < 0.3
    assert found.probability[middle & (group == 0)].mean() > found.probability[middle & (group == 1)].mean() + 0.2


@pytest.mark.parametrize("rates", [[0.2, 0.2], [0.2, 0.3], [0.1, 0.4], [0.0, 0.15], [0.5, 0.0]])
def test_rates_differ_where_two_fit_better_than_one(rates):
    for seed in range(3):
        evidence, group, _ = drawn_evidence(rates, 200, seed=seed)
        shape = likeliest_shape(evidence, CALIBRATION)
        sides = [bin_counts(decoy_quantile(evidence)[group == one]) for one in (0, 1)]
        grid = np.linspace(1e-6, 1, 2001)[:, None]
        logs = np.log(grid * BIN_WIDTHS + (1 - grid) * bin_probabilities(shape))
        gain = sum((logs @ side).max() for side in sides) - (logs @ sum(sides)).max()
        assert abs(gain - 2.706) > 0.01 and rates_differ(evidence, group, CALIBRATION) == (gain > 2.706)
        assert rates_differ(evidence, group, CALIBRATION, shape) == (gain > 2.706)
        both = calibrate(evidence, group, 3, 12, CALIBRATION)
        again = calibrate(evidence, group, 3, 12, CALIBRATION, shape)
        assert (again.low == both.low).all() and (again.probability == both.probability).all()


@pytest.mark.parametrize(("rates", "least", "most"), [([0.3, 0.3], 0, 4), ([0.1, 0.4], 37, 40)])
def test_equal_rates_seldom_differ_and_other_ones_mostly_do(rates, least, most):
    found = [rates_differ(*drawn_evidence(rates, 150, seed=seed)[:2], CALIBRATION) for seed in range(40)]
    assert least <= sum(found) <= most


@pytest.mark.parametrize("rates", [[0.3], [0.1, 0.5]])
def test_probabilities_never_fall_with_the_evidence_in_a_group(rates):
    evidence, group, _ = drawn_evidence(rates, 600, apart=1.5)
    found = calibrate(evidence, group, 0, 4, CALIBRATION)
    for one in range(len(rates)):
        own = group == one
        ordered = found.probability[own][np.argsort(evidence.pairs[own])]
        assert (np.diff(ordered) >= -1e-12).all() and np.ptp(ordered) > 0.3


def test_only_the_order_of_the_evidence_counts():
    evidence, group, _ = drawn_evidence([0.2, 0.4], 300, seed=2)
    found = calibrate(evidence, group, 0, 4, CALIBRATION)
    order = np.random.default_rng(0).permutation(len(group))
    for pairs, decoys in (
        (evidence.pairs + 5, evidence.decoys + 5),
        (evidence.pairs * 8, evidence.decoys * 8),
        (np.exp(evidence.pairs), np.exp(evidence.decoys)),
    ):
        again = calibrate(Evidence(pairs[order], decoys), group[order], 0, 4, CALIBRATION)
        assert again.rates == pytest.approx(found.rates) and again.high == pytest.approx(found.high)
        assert again.probability == pytest.approx(found.probability[order])


def test_the_interval_is_wider_where_there_are_fewer_pairs():
    widths = []
    for each in (100, 3000):
        evidence, group, _ = drawn_evidence([0.4], each)
        found = calibrate(evidence, group, 0, 20, CALIBRATION)
        widths.append(found.high[0] - found.low[0])
    assert widths[0] > 2 * widths[1] > 0


@pytest.mark.parametrize("decoys", [np.zeros(0), np.full(50, 0.3)])
def test_without_decoys_that_differ_every_pair_is_believed_and_every_rate_possible(decoys):
    found = calibrate(Evidence(np.linspace(0, 1, 20), decoys), np.repeat([0, 1], 10), 0, 20, CALIBRATION)
    assert (found.probability == 1).all() and found.auroc == 0.5
    assert found.rates.tolist() == found.low.tolist() == [0, 0] and found.high.tolist() == [1, 1]


def test_no_pairs_give_no_probabilities():
    found = calibrate(Evidence(np.zeros(0), np.arange(9.0)), np.zeros(0, np.int64), 0, 20, CALIBRATION)
    assert len(found.probability) == 0 and found.rates.tolist() == [0.0]


SHAPES = [(2.0, 0.9, 0.2, 2.0), (5.5, 0.5, 0.0, 9.0), (30.0, 0.8, 0.6, 3.0), (2.0, 1.0, 1.0, 40.0)]


def naive(u, shape):
    """Each component as the greatest of draws: u^a has the distribution of a beta variable with parameters 1 and b."""
    a, b, share, c = shape
    first = stats.beta.pdf(u**a, 1, b) * a * u ** (a - 1)
    return (1 - share) * first + share * stats.beta.pdf(u, c, 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_distribution_is_that_of_a_rising_density(shape):
    u = np.array([0.0, 0.001, 0.3, 0.7, 0.95, 0.9999, 1.0])
    expected = [quad(lambda v: naive(v, shape), low, 1, limit=200)[0] for low in u]
    assert survival(u, np.array(shape)) == pytest.approx(expected, rel=1e-4, abs=1e-9)
    mass = bin_probabilities(np.array(shape))
    assert mass.sum() == pytest.approx(1) and (np.diff(mass / BIN_WIDTHS) >= -1e-9).all()
    for place in (0, 100, 379, 400):
        whole = quad(lambda v: naive(v, shape), EDGES[place], EDGES[place + 1])[0]
        assert mass[place] == pytest.approx(whole, rel=1e-6)
    whole = quad(lambda v: v * naive(v, shape), 0, 1, limit=200)[0]
    assert expected_auroc(np.array(shape)) == pytest.approx(whole, abs=1e-5)


def test_the_bins_are_finer_towards_one():
    assert EDGES[0] == 0 and EDGES[-1] == 1 and (BIN_WIDTHS > 0).all()
    assert (np.diff(BIN_WIDTHS[:-1]) < 1e-12).all() and BIN_WIDTHS[-1] < 4e-5
    values = np.concatenate([EDGES[:-1], [0.5011, 0.99999, 1.0]])
    expected = [sum(low <= v < high for v in values) for low, high in pairwise(EDGES)]
    expected[-1] += 1  # the value 1
    assert bin_counts(values).tolist() == expected


@pytest.mark.parametrize("seed", range(3))
def test_the_misfit_is_the_posterior_with_its_slope(seed):
    rng = np.random.default_rng(seed)
    counts, theta = rng.integers(0, 5, BINS), np.append(rng.normal(size=3), [0.2 + 0.3 * seed, rng.uniform(0.5, 3)])

    def posterior(theta):
        rate, a, b = 1 / (1 + np.exp(-theta[0])), 1 + np.exp(theta[1]), 1 / (1 + np.exp(-theta[2]))
        mass = bin_probabilities(np.array([a, b, theta[3], 1 + np.exp(theta[4])]))
        prior = stats.norm.logpdf(theta[1], 0.5, 1) + stats.norm.logpdf(theta[2], 0, 1.5)
        pieces = zip(counts, np.diff(EDGES), mass, strict=True)
        return -prior - sum(n * np.log(rate * width + (1 - rate) * own) for n, width, own in pieces)

    value, slope = misfit(theta, counts, CALIBRATION)
    assert value - misfit(np.zeros(5), counts, CALIBRATION)[0] == pytest.approx(
        posterior(theta) - posterior(np.zeros(5))
    )
    assert slope == pytest.approx(approx_fprime(theta, posterior, 1e-7), rel=1e-3, abs=0.05)


@pytest.mark.parametrize("shape", [(3.0, 0.4, 0.0, 2.0), (200.0, 0.4, 0.15, 4.0), (1500.0, 0.3, 0.3, 30.0)])
def test_a_shape_is_found_again_from_draws(shape):
    a, b, share, c = shape
    rng = np.random.default_rng(1)
    first = (1 - rng.random(20_000) ** (1 / b)) ** (1 / a)
    u = np.where(rng.random(20_000) < share, rng.random(20_000) ** (1 / c), first)
    u[:2000] = rng.random(2000)
    counts = bin_counts(u)
    found = fit_shape(counts, CALIBRATION)
    drawn = np.array(shape)
    assert np.cumsum(bin_probabilities(found)) == pytest.approx(np.cumsum(bin_probabilities(drawn)), abs=0.012)
    known = fit_shape(counts, CALIBRATION, rate=0.1)
    best, truth, other = (misfit(search_parameters(0.1, one), counts, CALIBRATION)[0] for one in (known, drawn, found))
    assert best <= min(truth, other) + 0.01
