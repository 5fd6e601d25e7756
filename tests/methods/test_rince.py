"""RINCE against plain loops, its two limits, and float32."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pairsift.loss.infonce import infonce
from pairsift.methods.rince import rince


def case(seed: int, n: int, excluded: float = 0.3) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return 3 * torch.randn(n, n, dtype=torch.float64), torch.rand(n, n) < excluded


def by_hand(logits: Tensor, exclude: Tensor, q: float, density: float) -> list[float]:
    s, out, n = logits.tolist(), exclude.tolist(), len(logits)
    losses = []
    for i in range(n):
        captions = [math.exp(s[i][j]) for j in range(n) if j == i or not out[i][j]]
        images = [math.exp(s[k][i]) for k in range(n) if k == i or not out[k][i]]
        own = -math.exp(q * s[i][i]) / q
        losses.append(own + sum((density * sum(some)) ** q / q for some in (captions, images)) / 2)
    return losses


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 7),
    q=st.floats(0.01, 1),
    density=st.floats(1e-3, 1),
    excluded=st.sampled_from([0, 0.3, 1]),
)
@settings(max_examples=60, deadline=None)
def test_rince_matches_plain_loops(seed: int, n: int, q: float, density: float, excluded: float) -> None:
    logits, exclude = case(seed, n, excluded)
    expected = by_hand(logits, exclude, q, density)
    assert rince(logits, exclude, q, density).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_gradcheck() -> None:
    logits, exclude = case(3, 5)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: rince(s, exclude, 0.3, 0.01), (logits,))


def test_with_a_small_q_it_is_infonce_plus_a_constant_also_in_float32() -> None:
    logits, exclude = case(4, 6)
    found = rince(logits.float(), exclude, 1e-6, 0.05)
    torch.testing.assert_close(found, (infonce(logits, exclude) + math.log(0.05)).float(), rtol=1e-4, atol=1e-4)


def test_with_q_1_a_positives_pull_does_not_depend_on_the_other_pairs() -> None:
    logits, exclude = case(5, 4, 0)
    pulls = []
    for shift in (0.0, 2.0):
        moved = (logits + shift * (1 - torch.eye(4))).requires_grad_()
        rince(moved, exclude, 1.0, 1e-12).sum().backward()
        assert moved.grad is not None
        pulls.append(moved.grad.diagonal())
    torch.testing.assert_close(pulls[0], pulls[1])
    torch.testing.assert_close(pulls[0], -logits.diagonal().exp())


def test_masked_negatives_change_nothing_and_get_no_gradient() -> None:
    logits, exclude = case(6, 6)
    exclude = exclude | exclude.T
    off = exclude & ~torch.eye(6, dtype=torch.bool)
    other = torch.where(off, logits + 9, logits).requires_grad_()
    assert bool(off.any())
    found = rince(other, exclude, 0.5, 0.1)
    torch.testing.assert_close(found, rince(logits, exclude, 0.5, 0.1))
    found.sum().backward()
    assert other.grad is not None and bool((other.grad[off] == 0).all()) and bool((other.grad[~off] != 0).all())


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(("q", "size"), [(1e-6, 1e4), (0.1, 700.0), (1.0, 80.0)])
def test_values_and_gradients_are_finite_in_float32(autocast: bool, q: float, size: float) -> None:
    for own, other in ((size, -size), (-size, size), (size, size)):
        logits = torch.full((512, 512), other).fill_diagonal_(own).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            values = rince(logits, torch.zeros(512, 512, dtype=torch.bool), q, 0.01)
        assert values.dtype == torch.float32 and bool(values.isfinite().all())
        values.mean().backward()
        assert logits.grad is not None and bool(logits.grad.isfinite().all())


def test_permuted_pairs_have_permuted_losses() -> None:
    logits, exclude = case(7, 6)
    order = torch.randperm(6)
    moved = rince(logits[order][:, order], exclude[order][:, order], 0.3, 0.1)
    torch.testing.assert_close(moved, rince(logits, exclude, 0.3, 0.1)[order])
