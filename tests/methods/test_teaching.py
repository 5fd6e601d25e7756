"""What teachers say of a batch, against plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pairsift.methods.sift import balanced, teaching


def block(seed: int, n: int, m: int | None = None) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(n, n if m is None else m, dtype=torch.float64) * 3


def softmax(values: list[float]) -> list[float]:
    total = sum(map(math.exp, values))
    return [math.exp(value) / total for value in values]


@given(seed=st.integers(0, 10**6), n=st.integers(1, 6))
@settings(max_examples=40)
def test_teaching_is_the_cross_entropy_of_both_directions(seed: int, n: int) -> None:
    s, q = block(seed, n), block(seed + 1, n)
    for i, value in enumerate(teaching(s, q).tolist()):
        rows = zip(softmax(q[i].tolist()), softmax(s[i].tolist()), strict=True)
        columns = zip(softmax(q[:, i].tolist()), softmax(s[:, i].tolist()), strict=True)
        expected = -sum(p * math.log(r) for p, r in rows) / 2 - sum(p * math.log(r) for p, r in columns) / 2
        assert value == pytest.approx(expected, abs=1e-9)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 5), m=st.integers(1, 5))
@settings(max_examples=40)
def test_balanced_logits_lose_what_an_image_and_a_caption_have_with_all(seed: int, n: int, m: int) -> None:
    s = block(seed, n, m)
    found = balanced(s)
    for i in range(n):
        for j in range(m):
            row = math.log(sum(math.exp(value) for value in s[i].tolist()))
            column = math.log(sum(math.exp(value) for value in s[:, j].tolist()))
            assert float(found[i, j]) == pytest.approx(float(s[i, j]) - row - column, abs=1e-9)


def test_a_caption_that_all_images_like_is_no_longer_the_first_of_all() -> None:
    s = torch.eye(4, dtype=torch.float64) * 2
    s[:, 3] += 3
    assert s.argmax(1).tolist() == [3, 3, 3, 3]
    assert balanced(s).argmax(1).tolist() == [0, 1, 2, 3]


def test_no_similarities_are_better_than_the_teachers_own() -> None:
    q = block(3, 6)
    logits = q.clone().requires_grad_()
    teaching(logits, q).sum().backward()
    assert logits.grad is not None and float(logits.grad.abs().max()) < 1e-12
    assert float(teaching(block(4, 6), q).sum()) > float(teaching(q, q).sum())
