"""The density of matching pairs over quantiles of decoys, beside scipy and numerical integration."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import approx_fprime

from pairsift.trust.density import BINS, EDGES, WIDTHS, bin_counts, density, fit_shape, masses, mean, misfit, parameters

SHAPES = [(2.0, 0.9, 0.2, 2.0), (5.5, 0.5, 0.0, 9.0), (30.0, 0.8, 0.6, 3.0), (2.0, 1.0, 1.0, 40.0)]


def naive(u, shape):
    """Each component as the greatest of draws: u^a has the distribution of a beta variable with parameters 1 and b."""
    a, b, share, c = shape
    first = stats.beta.pdf(u**a, 1, b) * a * u ** (a - 1)
    return (1 - share) * first + share * stats.beta.pdf(u, c, 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_density_rises_and_its_masses_and_mean_are_its_integrals(shape):
    u = np.linspace(0.001, 0.999, 500)
    found = density(u, np.array(shape))
    assert found == pytest.approx(naive(u, shape)) and (np.diff(found) >= -1e-9).all()
    mass = masses(np.array(shape))
    assert mass.sum() == pytest.approx(1) and (np.diff(mass / WIDTHS) >= -1e-9).all()
    for place in (0, 100, 379, 400):
        whole = quad(lambda v: naive(v, shape), EDGES[place], EDGES[place + 1])[0]
        assert mass[place] == pytest.approx(whole, rel=1e-6)
    assert mean(np.array(shape)) == pytest.approx(quad(lambda v: v * naive(v, shape), 0, 1, limit=200)[0], abs=1e-5)


def test_the_bins_are_finer_towards_one():
    assert EDGES[0] == 0 and EDGES[-1] == 1 and (WIDTHS > 0).all() and (np.diff(WIDTHS[380:-1]) < 0).all()
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
        mass = masses(np.array([a, b, theta[3], 1 + np.exp(theta[4])]))
        prior = stats.norm.logpdf(theta[1], 0.5, 1) + stats.norm.logpdf(theta[2], 0, 1.5)
        pieces = zip(counts, np.diff(EDGES), mass, strict=True)
        return -prior - sum(n * np.log(rate * width + (1 - rate) * own) for n, width, own in pieces)

    value, slope = misfit(theta, counts)
    assert value - misfit(np.zeros(5), counts)[0] == pytest.approx(posterior(theta) - posterior(np.zeros(5)))
    assert slope == pytest.approx(approx_fprime(theta, posterior, 1e-7), rel=1e-3, abs=0.05)


@pytest.mark.parametrize("shape", [(3.0, 0.4, 0.0, 2.0), (200.0, 0.4, 0.15, 4.0), (1500.0, 0.3, 0.3, 30.0)])
def test_a_shape_is_found_again_from_draws(shape):
    a, b, share, c = shape
    rng = np.random.default_rng(1)
    first = (1 - rng.random(20_000) ** (1 / b)) ** (1 / a)
    u = np.where(rng.random(20_000) < share, rng.random(20_000) ** (1 / c), first)
    u[:2000] = rng.random(2000)
    counts = bin_counts(u)
    found = fit_shape(counts)
    assert np.cumsum(masses(found)) == pytest.approx(np.cumsum(masses(np.array(shape))), abs=0.012)
    again = fit_shape(counts, found)
    rates = np.log([0.1 / 0.9])
    assert misfit(parameters(0.1, again), counts)[0] <= misfit(parameters(0.1, np.array(shape)), counts)[0] + 2
    assert parameters(0.1, again)[:1] == pytest.approx(rates)
