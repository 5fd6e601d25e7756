"""The meta loss and the sharpened probability against plain loops."""

from __future__ import annotations

import math

import pytest
import torch

from pairsift.methods.mscn import sharpened
from pairsift.methods.parts.meta import meta_loss


@pytest.mark.parametrize("excluded", [0.0, 0.4, 1.0])
def test_the_meta_loss_is_the_cross_entropy_of_pairs_and_of_their_negatives(excluded: float) -> None:
    torch.manual_seed(1)
    logits, exclude = 3 * torch.randn(5, 5, dtype=torch.float64), torch.rand(5, 5) < excluded
    for i, value in enumerate(meta_loss(logits, exclude).tolist()):
        v = [1 / (1 + math.exp(-x)) for x in logits[i].tolist()]
        others = [-math.log(1 - v[j]) for j in range(5) if j != i and not exclude[i, j]]
        apart = sum(others) / len(others) if others else 0.0
        assert value == pytest.approx((-math.log(v[i]) + apart) / 2, abs=1e-12)


def test_the_meta_loss_stays_finite_far_from_0() -> None:
    logits = torch.tensor([[-200.0, 200.0], [200.0, -200.0]], requires_grad=True)
    losses = meta_loss(logits, torch.zeros(2, 2, dtype=torch.bool))
    assert losses.tolist() == [200.0, 200.0]
    losses.sum().backward()
    assert torch.isfinite(logits.grad).all() and logits.grad.abs().min() > 0.4


def test_sharpening_moves_probabilities_away_from_one_half() -> None:
    p = torch.tensor([0.0, 0.2, 0.5, 0.9, 1.0])
    assert sharpened(p).tolist() == pytest.approx([0, 0.04 / 0.68, 0.5, 0.81 / 0.82, 1])
