"""The two-component mixture against plain loops, planted components and degenerate values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pairsift.methods.parts import division
from pairsift.methods.parts.division import Betas, Gaussians, fit_betas, fit_mixture


def planted(n: int = 4000, share: float = 0.7, seed: int = 0) -> NDArray[np.float64]:
    """n values of N(1, 0.2) and N(3, 0.4), of the first kind in this share, the first kind first."""
    rng = np.random.default_rng(seed)
    first = round(n * share)
    return np.concatenate([rng.normal(1, 0.2, first), rng.normal(3, 0.4, n - first)])


def density(x: float, mean: float, deviation: float) -> float:
    return math.exp(-((x - mean) ** 2) / (2 * deviation**2)) / (deviation * math.sqrt(2 * math.pi))


def em_by_hand(values: list[float], start: tuple[float, float]) -> tuple[list[float], list[float], list[float]]:
    """Plain EM on one number per pair: means, deviations, shares."""
    means, deviations, shares = list(start), [0.3, 0.3], [0.5, 0.5]
    for _ in range(60):
        rows = []
        for x in values:
            parts = [s * density(x, m, d) for s, m, d in zip(shares, means, deviations, strict=True)]
            rows.append([part / sum(parts) for part in parts])
        for c in range(2):
            total = sum(row[c] for row in rows)
            means[c] = sum(row[c] * x for row, x in zip(rows, values, strict=True)) / total
            spread = sum(row[c] * (x - means[c]) ** 2 for row, x in zip(rows, values, strict=True)) / total
            deviations[c], shares[c] = math.sqrt(spread), total / len(values)
    return means, deviations, shares


def test_posterior_matches_plain_loops_between_the_means() -> None:
    mixture = Gaussians(np.array([1.0, 3.0]), np.array([0.6, 0.4]), True, np.array([0.5, 0.8]))
    xs = np.linspace(1, 3, 41)
    expected = []
    for x in xs.tolist():
        low, high = 0.6 * density(x, 1.0, 0.5), 0.4 * density(x, 3.0, 0.8)
        expected.append(low / (low + high))
    assert mixture.low(xs).tolist() == pytest.approx(expected, abs=1e-6)
    odds = [math.log(p / (1 - p)) for p in expected]
    assert mixture.log_odds(xs).tolist() == pytest.approx(odds, abs=1e-9)


def test_log_odds_go_on_straight_beyond_the_means() -> None:
    mixture = Gaussians(np.array([1.0, 3.0]), np.array([0.6, 0.4]), True, np.array([0.5, 0.8]))
    for at, outwards in ((1.0, -1), (3.0, 1)):
        step = 1e-5
        value, inside = mixture.log_odds(np.array([at, at - outwards * step]))
        slope = (value - inside) / (outwards * step)
        beyond = mixture.log_odds(np.array([at + outwards * 7.0]))[0]
        assert beyond == pytest.approx(value + slope * outwards * 7.0, rel=1e-4)


@given(
    means=st.tuples(st.floats(-5, 5), st.floats(0.01, 5)),
    deviations=st.tuples(st.floats(0.02, 10), st.floats(0.02, 10)),
    share=st.floats(0.01, 0.99),
)
@settings(max_examples=50, deadline=None)
def test_posterior_never_rises_however_the_components_lie(
    means: tuple[float, float], deviations: tuple[float, float], share: float
) -> None:
    both = np.array([means[0], means[0] + means[1]])
    mixture = Gaussians(both, np.array([share, 1 - share]), True, np.array(deviations))
    values = np.linspace(-30, 30, 501)
    low, odds = mixture.low(values), mixture.log_odds(values)
    assert bool((np.diff(odds) < 0).all()) and bool((np.diff(low) <= 0).all())
    assert bool(((low >= 0) & (low <= 1)).all())


def test_far_values_are_certain_without_overflow() -> None:
    mixture = Gaussians(np.array([0.0, 1.0]), np.array([0.5, 0.5]), True, np.array([0.1, 0.1]))
    assert mixture.low(np.array([-1e6, 0.0, 0.5, 1.0, 1e6])).tolist() == pytest.approx([1, 1, 0.5, 0, 0], abs=1e-6)


def test_the_posterior_of_a_value_does_not_depend_on_its_company() -> None:
    values = planted()
    mixture = fit_mixture(values, 0)
    assert mixture.low(values[::-7]).tolist() == mixture.low(values)[::-7].tolist()
    assert mixture.low(values[:0]).shape == (0,)


def test_planted_components_are_recovered() -> None:
    values = planted()
    mixture = fit_mixture(values, 0)
    assert mixture.has_two_components
    assert mixture.means.tolist() == pytest.approx([1, 3], abs=0.05)
    assert mixture.deviations.tolist() == pytest.approx([0.2, 0.4], abs=0.05)
    assert mixture.weights.tolist() == pytest.approx([0.7, 0.3], abs=0.01)
    clean = mixture.low(values) > 0.5
    assert clean[:2800].mean() > 0.99 and clean[2800:].mean() < 0.01


def test_the_order_of_planting_does_not_matter() -> None:
    mixture = fit_mixture(-planted(), 0)
    assert mixture.means.tolist() == pytest.approx([-3, -1], abs=0.05)
    assert mixture.weights.tolist() == pytest.approx([0.3, 0.7], abs=0.01)


def test_fit_agrees_with_plain_em() -> None:
    values = planted(300)
    mixture = fit_mixture(values, 0)
    means, deviations, shares = em_by_hand(values.tolist(), (0.5, 3.5))
    assert mixture.means.tolist() == pytest.approx(means, abs=0.01)
    assert mixture.weights.tolist() == pytest.approx(shares, abs=0.01)
    # the fit adds 5e-4 of the squared span to each variance
    span = values.max() - values.min()
    widened = [math.sqrt(deviation**2 + 5e-4 * span**2) for deviation in deviations]
    assert mixture.deviations.tolist() == pytest.approx(widened, abs=0.01)


def test_a_seed_fixes_the_fit() -> None:
    values = planted(200, 0.5, 3)
    first, second = fit_mixture(values, 5), fit_mixture(values, 5)
    np.random.seed(1)
    before = np.random.get_state()[1].tolist()
    third = fit_mixture(values, 5)
    assert np.random.get_state()[1].tolist() == before  # the global state is neither read nor moved
    for other in (second, third):
        assert np.array_equal(first.means, other.means) and np.array_equal(first.low(values), other.low(values))


@pytest.mark.parametrize(("factor", "shift"), [(1e-3, 0.0), (1e4, -50.0), (0.5, 1e6)])
def test_scale_and_shift_of_the_values_do_not_matter(factor: float, shift: float) -> None:
    values = planted(500)
    plain, other = fit_mixture(values, 0), fit_mixture(values * factor + shift, 0)
    np.testing.assert_allclose(other.means, plain.means * factor + shift, rtol=1e-6)
    np.testing.assert_allclose(other.deviations, plain.deviations * factor, rtol=1e-6)
    np.testing.assert_allclose(other.low(values * factor + shift), plain.low(values), atol=1e-5)


@pytest.mark.parametrize("size", [1e30, 3e38])
def test_huge_float32_values(size: float) -> None:
    unit = planted(500)
    values = (unit / np.abs(unit).max() * size).astype(np.float32)
    assert np.isfinite(values).all()
    low = fit_mixture(values, 0).low(values)
    np.testing.assert_allclose(low, fit_mixture(unit, 0).low(unit), atol=1e-3)


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(0),
        np.full(50, 0.3),
        np.full(50, 1e8) + np.linspace(0, 1e-6, 50),
        np.array([0.0] * 5 + [1.0] * 4),
        np.array([0.5]),
    ],
    ids=["none", "constant", "nearly constant", "fewer than ten", "one"],
)
def test_values_without_two_components_count_as_clean(values: NDArray[np.float64]) -> None:
    mixture = fit_mixture(values, 0)
    assert not mixture.has_two_components
    low = mixture.low(values)
    assert low.tolist() == [1.0] * len(values)


def test_two_values_only_are_two_components() -> None:
    values = np.array([0.0] * 8 + [1.0] * 2)
    mixture = fit_mixture(values, 0)
    assert mixture.has_two_components and mixture.weights.tolist() == pytest.approx([0.8, 0.2])
    assert mixture.low(values).tolist() == pytest.approx([1.0] * 8 + [0.0] * 2, abs=1e-6)


def test_one_outlier_is_alone_in_its_component() -> None:
    values = np.append(np.random.default_rng(0).normal(0, 1, 499), 1e4)
    low = fit_mixture(values, 0).low(values)
    assert low[:-1].min() > 0.99 and low[-1] < 0.01


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        fit_mixture(np.append(planted(20), bad), 0)


# ---------------------------------------------------------------- betas


def drawn_betas(
    low: tuple[float, float], high: tuple[float, float], share: float, n: int = 6000
) -> NDArray[np.float64]:
    """n values from two betas, of the first in this share, the first kind first."""
    rng = np.random.default_rng(4)
    first = round(n * share)
    return np.concatenate([rng.beta(*low, first), rng.beta(*high, n - first)])


def beta_density(x: float, a: float, b: float) -> float:
    return math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)) * x ** (a - 1) * (1 - x) ** (b - 1)


def beta_em_by_hand(values: list[float], steps: int) -> list[tuple[float, float, float]]:
    """Plain EM with matched moments from the two groups of a grown split: a, b and share by component."""
    cut = (min(values) + max(values)) / 2
    while True:
        sides = [x for x in values if x <= cut], [x for x in values if x > cut]
        new = sum(sum(side) / len(side) for side in sides) / 2
        if new == cut:
            break
        cut = new
    rows = [[float(x <= cut), float(x > cut)] for x in values]
    found: list[tuple[float, float, float]] = []
    for _ in range(steps + 1):
        found = []
        for c in range(2):
            total = sum(row[c] for row in rows)
            mean = sum(row[c] * x for row, x in zip(rows, values, strict=True)) / total
            variance = sum(row[c] * (x - mean) ** 2 for row, x in zip(rows, values, strict=True)) / total
            size = mean * (1 - mean) / variance - 1
            found.append((mean * size, (1 - mean) * size, total / len(values)))
        rows = []
        for x in values:
            parts = [share * beta_density(x, a, b) for a, b, share in found]
            rows.append([part / sum(parts) for part in parts])
    return found


BETAS = [((2, 8), (8, 3), 0.6), ((3, 30), (6, 6), 0.4), ((2, 20), (10, 10), 0.8)]


@pytest.mark.parametrize(("low", "high", "share"), BETAS)
def test_betas_agree_with_plain_em(low: tuple[float, float], high: tuple[float, float], share: float) -> None:
    values = np.clip(drawn_betas(low, high, share, 400), 1e-4, 1 - 1e-4)
    for steps in (0, 1, 12):
        a, b, shares = fit_betas(values, steps)
        expected = beta_em_by_hand(values.tolist(), steps)
        assert list(zip(a, b, shares, strict=True)) == [pytest.approx(parts, rel=1e-6) for parts in expected]


@pytest.mark.parametrize(("low", "high", "share"), BETAS)
def test_drawn_betas_are_recovered(low: tuple[float, float], high: tuple[float, float], share: float) -> None:
    values = drawn_betas(low, high, share)
    a, b, shares = fit_betas(values)
    for c, (first, second) in enumerate((low, high)):
        assert a[c] == pytest.approx(first, rel=0.12) and b[c] == pytest.approx(second, rel=0.12)
    assert shares.tolist() == pytest.approx([share, 1 - share], abs=0.01)


def test_a_mixture_of_betas_stands_on_the_scale_of_its_values() -> None:
    values = drawn_betas((2, 8), (8, 3), 0.6)
    plain, other = fit_mixture(values, 0, "beta"), fit_mixture(7 - 100 * values, 0, "beta")
    assert isinstance(plain, Betas) and plain.has_two_components
    assert plain.means.tolist() == pytest.approx([0.2, 8 / 11], abs=0.02)
    clean = plain.low(values) > 0.5
    assert clean[:3600].mean() > 0.95 and clean[3600:].mean() < 0.05
    assert other.means.tolist() == pytest.approx((7 - 100 * plain.means[::-1]).tolist(), abs=0.1)
    assert (other.low(7 - 100 * values) > 0.5).tolist() == (~clean).tolist()  # ordered by mean, whatever came first


def test_the_posterior_of_betas_matches_plain_loops_between_the_means() -> None:
    mixture = Betas(
        np.array([2.0, 5.0]), np.array([0.6, 0.4]), True, np.array([2.0, 6.0]), np.array([8.0, 4.0]), 0.0, 10.0
    )
    xs = np.linspace(2, 5, 31)
    expected = []
    for x in xs.tolist():
        low, high = 0.6 * beta_density(x / 10, 2, 8), 0.4 * beta_density(x / 10, 6, 4)
        expected.append(low / (low + high))
    assert mixture.low(xs).tolist() == pytest.approx(expected, abs=1e-9)
    step = 1e-6
    for at, outwards in ((2.0, -1), (5.0, 1)):
        value, inside = mixture.log_odds(np.array([at, at - outwards * step]))
        beyond = mixture.log_odds(np.array([at + outwards * 3.0]))[0]
        assert beyond == pytest.approx(value + (value - inside) / step * 3.0, rel=1e-3)


@given(
    means=st.tuples(st.floats(0.01, 0.98), st.floats(0.005, 0.5)),
    sizes=st.tuples(st.floats(0.01, 500), st.floats(0.01, 500)),
    share=st.floats(0.01, 0.99),
)
@settings(max_examples=200, deadline=None)
def test_the_posterior_of_betas_never_rises_however_they_lie(
    means: tuple[float, float], sizes: tuple[float, float], share: float
) -> None:
    both = np.array([means[0], min(means[0] + means[1], 0.995)])
    a, b = both * np.array(sizes), (1 - both) * np.array(sizes)
    mixture = Betas(both, np.array([share, 1 - share]), True, a, b, 0.0, 1.0)
    odds = mixture.log_odds(np.linspace(-2, 3, 1001))
    assert bool((np.diff(odds) < 1e-9).all()) and bool(np.isfinite(odds).all())


@pytest.mark.parametrize(
    "values",
    [
        np.array([0.0] * 80 + [1.0] * 20),
        np.array([0.0] * 50 + [0.5] * 49 + [1.0]),
        np.append(np.full(99, 0.2), 0.9),
        np.append(np.linspace(0, 1e-5, 99), 1.0),
    ],
    ids=["only ends", "two heaps and an end", "one apart", "one far apart"],
)
def test_betas_bear_losses_at_the_ends_and_heaps_without_variance(values: NDArray[np.float64]) -> None:
    mixture = fit_mixture(values, 0, "beta")
    low = mixture.low(values)
    assert bool(np.isfinite(low).all()) and bool((np.diff(low) <= 0).all())
    assert mixture.has_two_components and low[0] > 0.9 and low[-1] < 0.1


def test_betas_without_two_components_count_as_clean() -> None:
    for values in (np.full(50, 0.3), np.array([0.0, 1.0])):
        assert fit_mixture(values, 0, "beta").low(values).tolist() == [1.0] * len(values)


@pytest.mark.parametrize("kind", ["gaussian", "beta"])
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_summary_of_many_values_has_the_mixture_of_all(monkeypatch, kind, share) -> None:
    values = planted(30_011, share)
    whole = fit_mixture(values, 0, kind)
    monkeypatch.setattr(division, "SUMMARISED", 4000)
    short = fit_mixture(values, 0, kind)
    assert np.abs(short.low(values) - whole.low(values)).max() < 5e-3
    assert short.means == pytest.approx(whole.means, rel=1e-3)
    unit = (values - values.min()) / np.ptp(values)
    betas = division.fit_known_betas(unit, unit[:9000], unit[-900:])
    monkeypatch.undo()
    known = division.fit_known_betas(unit, unit[:9000], unit[-900:])
    assert np.abs(betas.low(unit) - known.low(unit)).max() < 5e-3
    assert np.median(known.low(unit[:500])) > 0.9 and np.median(known.low(unit[-500:])) < 0.1


def test_a_summary_has_the_mean_of_each_group_of_neighbours(monkeypatch) -> None:
    monkeypatch.setattr(division, "SUMMARISED", 4)
    assert division.summary(np.array([3.0, 1.0, 2.0])).tolist() == [3.0, 1.0, 2.0]
    assert division.summary(np.array([9.0, 1.0, 3.0, 5.0, 4.0, 2.0])).tolist() == [1.5, 3.0, 4.0, 7.0]
