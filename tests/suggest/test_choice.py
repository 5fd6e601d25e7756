"""The choice among candidates: its likelihood and probabilities against plain loops, and what it finds."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from pairsift.suggest.suggest import Choice


def lists(n=3000, k=20, present=0.6, slope=1.5, noise=0.1, share=0.3, seed=0):
    """Lists of candidates, in a share of which one is right; its information is better, and its own pair mismatched."""
    rng = np.random.default_rng(seed)
    information = -np.sort(-rng.gumbel(size=(n, k)) / slope, 1) - 4
    right = np.zeros((n, k), bool)
    # among sorted candidates, one is right with a chance that the model itself gives
    weight = np.exp(slope * information + 4 * slope)
    weight *= present / (1 - present) / np.mean(weight.sum(1))
    chance = weight / (1 + weight.sum(1, keepdims=True))
    draw = (rng.random((n, 1)) > np.cumsum(chance, 1)).sum(1)
    there = np.flatnonzero(draw < k)
    right[there, draw[there]] = True
    wrong = right | (rng.random((n, k)) < share)
    return information, np.clip(wrong + rng.normal(0, noise, (n, k)), 0, 1), right


def test_the_fit_is_the_greatest_likelihood_with_its_prior():
    information, mismatched, _ = lists(60, 6)
    information[3, 4:] = -np.inf
    choice = Choice.fit(information, mismatched)
    present = np.isfinite(information)
    base = np.maximum(mismatched, 0.05)[:, 3:][present[:, 3:]].mean()
    centre = information[:, 0].mean()

    def loss(theta):
        total = ((theta[0] - math.log(1.5)) / 0.5) ** 2 / 2 + ((theta[1] + 3) / 2) ** 2 / 2
        for row, ratios in zip(information, np.maximum(mismatched, 0.05) / base, strict=True):
            x = [math.exp(math.exp(theta[0]) * (e - centre) + theta[1]) if e > -math.inf else 0.0 for e in row]
            total -= math.log(1 + sum(a * r for a, r in zip(x, ratios, strict=True))) - math.log(1 + sum(x))
        return total

    mine = np.array([math.log(choice.slope), choice.intercept + choice.slope * centre])
    best = min(minimize(loss, np.array([0.0, b]), method="Nelder-Mead").fun for b in (-3, 0, 3))
    assert loss(mine) <= best + 1e-3


def test_probabilities_are_by_the_models_formula():
    choice = Choice(1.3, 2.0)
    information = np.array([[-1.0, -2.0, -4.0, -np.inf], [-np.inf] * 4, [-1.5, -1.6, -1.7, -1.8]])
    mismatched = np.array([[0.9, 0.01, 0.2, 0.5], [0.3] * 4, [0.7, 0.7, 0.6, 0.4]])
    base = (0.2 + 0.6 + 0.4) / 3  # of the candidates in the second half
    x = [math.exp(1.3 * e + 2) * m / base for e, m in ((-1, 0.9), (-2, 0.05), (-4, 0.2))]
    expected = [*(value / (1 + sum(x)) for value in x), 0]
    found = choice.probability(information, mismatched)
    assert found[0] == pytest.approx(expected)
    assert (found[1] == 0).all()


@pytest.mark.parametrize("present", [0.2, 0.6, 0.9])
def test_probabilities_are_right_though_no_right_candidate_is_known(present):
    information, mismatched, right = lists(20_000, present=present)
    probability = Choice.fit(information, mismatched).probability(information, mismatched)
    assert probability.sum(1).mean() == pytest.approx(right.any(1).mean(), abs=0.06)
    for low in (0.1, 0.3, 0.5, 0.7):
        rows = (probability >= low) & (probability < low + 0.2)
        if rows.sum() > 400:
            assert probability[rows].mean() == pytest.approx(right[rows].mean(), abs=0.12)


def test_nothing_is_promised_where_the_right_captions_are_missing():
    information, mismatched, right = lists()
    gone = np.where(right, -np.inf, information)
    order = np.argsort(-gone, 1)
    gone, mismatched = np.take_along_axis(gone, order, 1), np.take_along_axis(mismatched, order, 1)
    total = Choice.fit(gone, mismatched).probability(gone, mismatched).sum(1)
    assert total.mean() < 0.15 and (total > 0.5).mean() < 0.02
    nothing = np.full((5, 3), -np.inf)
    assert (Choice.fit(nothing, mismatched[:5, :3]).probability(nothing, mismatched[:5, :3]) == 0).all()


def test_first_candidates_may_be_missing_in_all_lists():
    information, mismatched, _ = lists(200)
    information[:, 0] = -np.inf
    probability = Choice.fit(information, mismatched).probability(information, mismatched)
    assert np.isfinite(probability).all() and (probability[:, 0] == 0).all()
