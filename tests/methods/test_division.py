"""Division, peers and oscillation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairsift.arrays import Floats
from pairsift.methods.base import peer
from pairsift.methods.parts.division import divide
from pairsift.methods.pc2 import oscillation


def floats(*values: float) -> Floats:
    return np.array(values, np.float32)


def test_clean_is_strictly_above_the_threshold() -> None:
    given_ = floats(0.2, 0.5, 0.50001, 0.9, 0.0)
    assert divide(given_).tolist() == [False, False, True, True, False]
    assert divide(given_, 0.1).tolist() == [True, True, True, True, False]
    assert divide(given_, 0.75).tolist() == [False, False, False, True, False]


@given(
    values=st.lists(st.floats(0, 1, width=32), min_size=2, max_size=30),
    threshold=st.floats(0, 1),
    least=st.sampled_from([0.001, 0.01, 0.2, 0.5]),
)
@settings(max_examples=100, deadline=None)
def test_no_side_is_empty_and_no_noisy_pair_is_cleaner_than_a_clean_one(
    values: list[float], threshold: float, least: float
) -> None:
    p = floats(*values)
    clean = divide(p, threshold, least)
    few = max(1, min(math.ceil(least * len(p)), len(p) // 2))
    assert few <= clean.sum() <= len(p) - few
    assert p[clean].min() >= p[~clean].max()
    enough = few <= (p > threshold).sum() <= len(p) - few
    assert not enough or clean.tolist() == (p > threshold).tolist()


@pytest.mark.parametrize(("value", "kept"), [(1.0, "noisy"), (0.0, "clean")])
def test_one_percent_is_put_on_an_empty_side(value: float, kept: str) -> None:
    p = np.full(500, value, np.float32)
    p[[7, 30, 31, 77, 400]] = 0.6 if value == 1 else 0.4
    clean = divide(p)
    moved = ~clean if kept == "noisy" else clean
    assert np.flatnonzero(moved).tolist() == [7, 30, 31, 77, 400]


def test_ties_are_broken_by_position() -> None:
    assert divide(np.ones(4, np.float32), least=0.5).tolist() == [False, False, True, True]
    assert divide(np.zeros(4, np.float32), least=0.25).tolist() == [False, False, False, True]
    many = np.tile(floats(0.9, 0.6, 0.8), 100)
    assert np.flatnonzero(~divide(many)).tolist() == [1, 4, 7]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([0.9], [True]),
        ([0.1], [False]),
        ([0.9, 0.8], [True, False]),
        ([0.1, 0.2], [False, True]),
        ([0.9, 0.1], [True, False]),
        ([0.9, 0.8, 0.7], [True, True, False]),
        ([0.1, 0.2, 0.3], [False, False, True]),
    ],
)
def test_very_few_pairs(values: list[float], expected: list[bool]) -> None:
    assert divide(floats(*values)).tolist() == expected


@given(
    values=st.lists(st.floats(0, 1, width=32), min_size=1, max_size=30),
    most=st.floats(0, 1),
    threshold=st.sampled_from([0.2, 0.5, 0.9]),
)
@settings(max_examples=100, deadline=None)
def test_at_most_so_many_are_noisy_and_those_are_the_least_probable(
    values: list[float], most: float, threshold: float
) -> None:
    p = floats(*values)
    free, clean = divide(p, threshold), divide(p, threshold, most=most)
    noisy = [i for i in sorted(range(len(p)), key=lambda i: (p[i], i)) if not free[i]]
    kept = noisy[: math.floor(most * len(p))]
    assert np.flatnonzero(~clean).tolist() == sorted(kept)


def test_at_most_none_believes_all_and_at_most_all_changes_nothing() -> None:
    p = floats(0.0, 0.9, 0.1, 0.4, 0.6)
    assert divide(p, most=0).all()
    assert divide(p, most=1).tolist() == divide(p).tolist() == [False, True, False, False, True]
    assert divide(p, most=0.4).tolist() == [False, True, False, True, True]
    assert divide(floats(0.3, 0.3, 0.3, 0.9), most=0.25).tolist() == [False, True, True, True]


def test_division_leaves_its_input_alone() -> None:
    p = np.ones(4, np.float32)
    divide(p)
    assert p.tolist() == [1.0] * 4


def test_peer_is_the_other_of_two_and_oneself_where_alone() -> None:
    assert [peer(k, 2) for k in range(2)] == [1, 0]
    assert peer(0, 1) == 0


def predictions(seed: int, n: int = 6, k: int = 5) -> Floats:
    return np.random.default_rng(seed).dirichlet(np.ones(k), n).astype(np.float32)


def test_oscillation_matches_plain_loops() -> None:
    now, before = predictions(0), predictions(1)
    expected = [
        sum(p * math.log(p / q) for p, q in zip(row, old, strict=True))
        for row, old in zip(now.tolist(), before.tolist(), strict=True)
    ]
    got = oscillation(now, before)
    assert got.dtype == np.float32 and got.tolist() == pytest.approx(expected, abs=1e-5)


def test_oscillation_is_not_symmetric_and_zero_for_equal_predictions() -> None:
    now, before = floats(0.9, 0.1)[None], floats(0.5, 0.5)[None]
    assert oscillation(now, before)[0] == pytest.approx(0.3681, abs=1e-4)
    assert oscillation(before, now)[0] == pytest.approx(0.5108, abs=1e-4)
    assert oscillation(now, now).tolist() == [0.0]


def test_oscillation_with_zeros_is_finite() -> None:
    now = np.array([[1, 0], [0.5, 0.5], [0, 1]], np.float32)
    before = np.array([[0.5, 0.5], [1, 0], [1, 0]], np.float32)
    half = 0.5 * math.log(0.5) + 0.5 * math.log(0.5 / 1e-12)
    expected = [math.log(2), half, math.log(1e12)]
    assert oscillation(now, before).tolist() == pytest.approx(expected, rel=1e-4)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_oscillation_is_never_negative(seed: int) -> None:
    now = predictions(seed, 50)
    nearly = now * np.float32(1.0000001)
    assert bool((oscillation(now, nearly) >= 0).all())
