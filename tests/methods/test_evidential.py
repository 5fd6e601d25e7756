"""The evidential loss against plain loops and torch's own Dirichlet, and what large evidence does to float32."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence

from pairsift.methods.decl import divergence_from_uniform, evidence, evidential_loss


def case(seed: int, n: int, excluded: float = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    """Evidence, which pairs are believed (the first is not, the last is), and a mask that is not symmetric."""
    torch.manual_seed(seed)
    y = (torch.rand(n, dtype=torch.float64) < 0.5).double()
    y[0], y[-1] = 0.0, 1.0
    return evidence(torch.randn(n, n, dtype=torch.float64), 0.3), y, torch.rand(n, n) < excluded


def digamma(x: float) -> float:
    return float(torch.digamma(torch.tensor(x, dtype=torch.float64)))


def divergence(a: list[float]) -> float:
    """Of a Dirichlet distribution from the uniform one."""
    z = sum(a)
    found = math.lgamma(z) - math.lgamma(len(a)) - sum(map(math.lgamma, a))
    return found + sum((x - 1) * (digamma(x) - digamma(z)) for x in a)


def by_hand(e: Tensor, y: Tensor, exclude: Tensor, regularisation: float) -> list[float]:
    rows, out, n, losses = e.tolist(), exclude.tolist(), len(e), []
    for i in range(n):
        captions = [rows[i][j] for j in range(n) if j != i and not out[i][j]]
        images = [rows[k][i] for k in range(n) if k != i and not out[k][i]]
        loss = 0.0
        for others in (captions, images):
            a = [rows[i][i] + 1, *(value + 1 for value in others)]
            z, target = sum(a), [float(y[i]), *(0.0 for _ in others)]
            loss += sum((t - x / z) ** 2 for t, x in zip(target, a, strict=True))
            loss += sum(x * (z - x) / (z**2 * (z + 1)) for x in a)
            loss += regularisation * divergence([t + (1 - t) * x for t, x in zip(target, a, strict=True)])
        losses.append(loss)
    return losses


@given(seed=st.integers(0, 10**6), n=st.integers(1, 6), weight=st.floats(0, 2), excluded=st.sampled_from([0, 0.3, 1]))
@settings(max_examples=30, deadline=None)
def test_the_loss_matches_plain_loops(seed: int, n: int, weight: float, excluded: float) -> None:
    e, y, exclude = case(seed, n, excluded)
    assert evidential_loss(e, y, exclude, weight).tolist() == pytest.approx(by_hand(e, y, exclude, weight), abs=1e-9)


def test_evidence_is_the_exponential_of_a_bounded_score() -> None:
    found = evidence(torch.tensor([0.0, 0.5, -0.5, 1e4, -1e4], dtype=torch.float64), 0.1).tolist()
    assert found == pytest.approx([1, math.exp(math.tanh(0.5) * 10), math.exp(-math.tanh(0.5) * 10), *EXTREMES])
    assert evidence(torch.tensor([3.0], dtype=torch.bfloat16), 0.1).dtype == torch.float32


EXTREMES = (math.exp(10), math.exp(-10))


def test_the_divergence_is_that_of_torch() -> None:
    torch.manual_seed(1)
    a = 1 + 20 * torch.rand(5, 5, dtype=torch.float64)
    expected = kl_divergence(Dirichlet(a), Dirichlet(torch.ones_like(a)))
    torch.testing.assert_close(divergence_from_uniform(a, torch.ones(5, 5, dtype=torch.bool)), expected)


def test_gradcheck() -> None:
    e, y, exclude = case(3, 5)
    e.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: evidential_loss(s, y, exclude, 0.1), (e,))


def test_masked_evidence_changes_nothing_and_gets_no_gradient() -> None:
    e, y, exclude = case(4, 6)
    exclude = exclude | exclude.T
    off = exclude & ~torch.eye(6, dtype=torch.bool)
    other = torch.where(off, e + 9, e).requires_grad_()
    assert bool(off.any())
    found = evidential_loss(other, y, exclude, 0.1)
    torch.testing.assert_close(found, evidential_loss(e, y, exclude, 0.1))
    found.sum().backward()
    assert other.grad is not None and bool((other.grad[off] == 0).all()) and bool((other.grad[~off] != 0).all())


def test_a_pair_that_is_believed_gains_evidence_and_another_loses_it() -> None:
    logits = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1.0, 0.0], dtype=torch.float64)
    evidential_loss(evidence(logits, 0.5), y, torch.zeros(2, 2, dtype=torch.bool), 1.0).sum().backward()
    assert logits.grad is not None
    assert float(logits.grad[0, 0]) < 0 < float(logits.grad[1, 1]) and float(logits.grad[0, 1]) > 0


@pytest.mark.parametrize("autocast", [False, True])
def test_float32_keeps_what_float64_says_where_evidence_is_large(autocast: bool) -> None:
    torch.manual_seed(5)
    logits = 4 * torch.randn(128, 128)
    logits[:5], logits[5:9] = 50.0, -50.0  # as much evidence as there can be, and as little
    logits.requires_grad_()
    y, exclude = (torch.rand(128) < 0.5).float(), torch.rand(128, 128) < 0.05
    exclude[0] = exclude[:, 0] = True  # a pair without negatives
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = evidential_loss(evidence(logits, 0.1), y, exclude, 0.1)
    expected = evidential_loss(evidence(logits.detach().double(), 0.1), y.double(), exclude, 0.1)
    assert found.dtype == torch.float32 and float(expected.max()) > 20
    torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-4)
    found.mean().backward()
    assert logits.grad is not None and bool(logits.grad.isfinite().all())
