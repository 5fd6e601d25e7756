"""Counts, score and threshold of PCSR against plain loops."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsift.methods.pcsr import consistency, first_threshold, moved_threshold, tally, target_utilisation, utilisation

PASSES = np.random.default_rng(0).integers(0, 4, (7, 9))  # classes of 9 items in 7 passes


def counted(passes: np.ndarray, kind: type = np.float16) -> np.ndarray:
    counts = np.zeros((passes.shape[1], 4), kind)
    for labels in passes:
        counts = tally(counts, labels)
    return counts


def test_counts_and_score_match_plain_loops() -> None:
    counts, leads = counted(PASSES), []
    for item in range(9):
        seen = Counter(PASSES[:, item].tolist())
        assert counts[item].tolist() == [seen[k] for k in range(4)]
        ordered = sorted((seen[k] for k in range(4)), reverse=True)
        leads.append(ordered[0] - ordered[1])  # Eq. 3
    assert counts.dtype == np.float16
    assert (7 * consistency(counts)).tolist() == pytest.approx(leads)
    assert consistency(counts).tolist() == pytest.approx([lead / 7 for lead in leads])


def test_the_score_of_ties_of_one_class_and_of_nothing() -> None:
    counts = np.array([[3, 3, 0], [5, 0, 0], [0, 0, 0], [4, 1, 1]], np.float16)
    assert consistency(counts).tolist() == [0, 1, 0, 0.5]


def test_tally_leaves_its_input_alone_and_counts_of_a_long_run_stay_whole() -> None:
    before = np.zeros((2, 3), np.float16)
    tally(before, np.array([0, 2]))
    assert not before.any()
    many = np.full((1, 2), 2000, np.float16)
    for _ in range(40):
        many = tally(many, np.array([1]))
    assert many.tolist() == [[2000, 2040]]


def test_target_threshold_and_utilisation_are_equations_4_to_6() -> None:
    assert [target_utilisation(0.4, 0.9, t / 50) for t in (0, 25, 50)] == pytest.approx([0.4, 0.65, 0.9])
    score = np.array([0.1, 0.5, 0.5, 0.9], np.float32)
    assert [utilisation(score, tau) for tau in (0.0, 0.5, 0.6, 1.0)] == [1, 0.75, 0.25, 0]
    assert utilisation(score[:0], 0.5) == 0
    tau, k, beta, gap = 0.6, 0.2, 0.7, 0.65 - 0.25
    target = tau - k * gap
    assert moved_threshold(tau, gap, k, beta) == pytest.approx((1 - beta) * tau + beta * target)
    assert moved_threshold(tau, gap, k, beta) < tau < moved_threshold(tau, -gap, k, beta)


@given(tau=st.floats(0, 1), gap=st.floats(-1, 1), k=st.floats(0, 5), beta=st.floats(0, 1))
def test_the_threshold_stays_within_its_bounds(tau: float, gap: float, k: float, beta: float) -> None:
    assert 0 <= moved_threshold(tau, gap, k, beta) <= 1


def test_the_threshold_settles_where_utilisation_meets_its_target() -> None:
    score = np.random.default_rng(1).random(5000).astype(np.float32)
    tau = 0.95
    for _ in range(200):
        tau = moved_threshold(tau, 0.7 - utilisation(score, tau), 0.2, 0.7)
    assert utilisation(score, tau) == pytest.approx(0.7, abs=0.01)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.floats(0, 1))
def test_the_first_threshold_lets_at_least_the_target_through(leads: list[int], target: float) -> None:
    score = np.array(leads, np.float32) / 4
    tau = first_threshold(score, target)
    assert utilisation(score, tau) >= target - 1e-9
    above = score[score > tau]
    assert not len(above) or len(above) / len(score) <= target + 1 / len(score)


def test_without_noisy_pairs_the_first_threshold_is_one_half() -> None:
    assert first_threshold(np.zeros(0, np.float32), 0.4) == 0.5
