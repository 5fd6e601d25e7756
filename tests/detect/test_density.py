"""The density of matching pairs over quantiles of decoys, beside scipy and numerical integration."""

from itertools import pairwise

import numpy as np
import pytest
from detect_helpers import OPTIONS
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import approx_fprime

from pairsift.detect.calibration import (
    BIN_WIDTHS,
    BINS,
    EDGES,
    bin_counts,
    bin_probabilities,
    expected_auroc,
    fit_shape,
    misfit,
    search_parameters,
    survival,
)

CALIBRATION = OPTIONS.calibration
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
