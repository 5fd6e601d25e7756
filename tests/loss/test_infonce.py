"""InfoNCE against plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pairsift.loss.infonce import infonce


def case(seed: int, n: int, excluded: float = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, a mask that is not symmetric, and soft targets that put nothing on what it leaves out."""
    torch.manual_seed(seed)
    exclude = torch.rand(n, n) < excluded
    weight = torch.rand(n, n, dtype=torch.float64).masked_fill(torch.rand(n, n) < 0.3, 0.0)
    weight = weight.masked_fill(exclude, 0.0) + torch.eye(n)
    return 3 * torch.randn(n, n, dtype=torch.float64), exclude, weight / weight.sum(1, keepdim=True)


def by_hand(logits: Tensor, exclude: Tensor, targets: Tensor) -> list[float]:
    s, out, y, n = logits.tolist(), exclude.tolist(), targets.tolist(), len(logits)
    losses = []
    for i in range(n):
        captions = [j for j in range(n) if j == i or not out[i][j]]
        images = [k for k in range(n) if k == i or not out[k][i]]
        over_captions = math.log(sum(math.exp(s[i][j]) for j in captions))
        over_images = math.log(sum(math.exp(s[k][i]) for k in images))
        left = sum(y[i][j] * (over_captions - s[i][j]) for j in captions)
        right = sum(y[k][i] * (over_images - s[k][i]) for k in images)
        losses.append((left + right) / 2)
    return losses


@given(seed=st.integers(0, 10**6), n=st.integers(1, 7), soft=st.booleans(), excluded=st.sampled_from([0, 0.3, 1]))
@settings(max_examples=60, deadline=None)
def test_infonce_matches_plain_loops(seed: int, n: int, soft: bool, excluded: float) -> None:
    logits, exclude, targets = case(seed, n, excluded)
    expected = by_hand(logits, exclude, targets if soft else torch.eye(n))
    assert infonce(logits, exclude, targets if soft else None).tolist() == pytest.approx(expected, abs=1e-10)


def test_hard_targets_are_the_default() -> None:
    logits, exclude, _ = case(0, 6)
    torch.testing.assert_close(infonce(logits, exclude), infonce(logits, exclude, torch.eye(6, dtype=torch.float64)))


def test_targets_on_excluded_places_do_not_count() -> None:
    logits, exclude, targets = case(1, 6)
    spoiled = targets.masked_fill(exclude & ~torch.eye(6, dtype=torch.bool), 0.7)
    assert bool((spoiled != targets).any())
    torch.testing.assert_close(infonce(logits, exclude, spoiled), infonce(logits, exclude, targets))


def test_a_pair_without_negatives_costs_nothing() -> None:
    logits, exclude, _ = case(2, 4, 0)
    exclude[1], exclude[:, 1] = True, True
    loss = infonce(logits, exclude)
    assert loss[1] == 0 and bool((loss[[0, 2, 3]] > 0).all())


@pytest.mark.parametrize("soft", [False, True])
def test_gradcheck(soft: bool) -> None:
    logits, exclude, targets = case(3, 5)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: infonce(s, exclude, targets if soft else None), (logits,))


def test_gradients_of_targets_are_finite_where_excluded() -> None:
    logits, exclude, targets = case(4, 5)
    assert bool((exclude & ~torch.eye(5, dtype=torch.bool)).any())
    logits.requires_grad_(), targets.requires_grad_()
    infonce(logits, exclude, targets).sum().backward()
    assert logits.grad is not None and bool(logits.grad.isfinite().all())
    assert targets.grad is not None and bool(targets.grad.isfinite().all())


@pytest.mark.parametrize("soft", [False, True])
def test_permuted_pairs_have_permuted_losses(soft: bool) -> None:
    logits, exclude, targets = case(5, 6)
    order = torch.randperm(6)
    moved = infonce(*(part[order][:, order] for part in ((logits, exclude, targets) if soft else (logits, exclude))))
    torch.testing.assert_close(moved, infonce(logits, exclude, targets if soft else None)[order])


def test_adding_a_constant_changes_nothing() -> None:
    logits, exclude, _ = case(6, 6)
    torch.testing.assert_close(infonce(logits + 1000, exclude), infonce(logits, exclude))


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("size", [1e4, 3e38])
def test_extreme_logits_give_no_nan(soft: bool, size: float) -> None:
    logits = torch.full((3, 3), -size).fill_diagonal_(size).requires_grad_()
    targets = torch.eye(3) if soft else None
    loss = infonce(logits, torch.zeros(3, 3, dtype=torch.bool), targets)
    loss.sum().backward()
    assert loss.tolist() == [0, 0, 0]
    assert logits.grad is not None and bool(logits.grad.isfinite().all())
