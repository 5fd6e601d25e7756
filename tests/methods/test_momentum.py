"""Averages over epochs, and the least of the indicators."""

import numpy as np
import pytest

from pairsift.methods.gsc import least
from pairsift.methods.parts.momentum import moving_average


def test_the_average_is_equation_10_over_epochs():
    rng = np.random.default_rng(0)
    estimates = rng.random((5, 8)).astype(np.float32)
    average = np.ones(8, np.float32)
    for estimate in estimates:
        average = moving_average(estimate, average, 0.7)
    for i in range(8):
        expected = 1.0
        for t in range(5):
            expected = 0.7 * estimates[t, i] + 0.3 * expected
        assert average[i] == pytest.approx(expected, rel=1e-5)
    assert (average >= 0.3**5).all() and average.dtype == np.float32


def test_momentum_1_remembers_nothing_and_0_learns_nothing():
    now, before = np.array([0.2, 0.9], np.float32), np.array([0.6, 0.1], np.float32)
    assert (moving_average(now, before, 1.0) == now).all()
    assert (moving_average(now, before, 0.0) == before).all()


def test_the_least_indicator_holds():
    a, b = np.array([0.2, 0.9, 0.5], np.float32), np.array([0.6, 0.1, 0.5], np.float32)
    assert least(a, b).tolist() == [min(x, y) for x, y in zip(a, b, strict=True)]
    assert (least(a) == a).all()
