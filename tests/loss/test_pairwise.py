"""The binary cross-entropy of all pairs against plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pairsift.loss.ranking import BCE, Sigmoid, pairwise, pairwise_directions

N = 5


@pytest.fixture
def logits() -> Tensor:
    torch.manual_seed(1)
    return 2 * torch.randn(N, N, dtype=torch.float64)


@pytest.fixture
def exclude() -> Tensor:
    torch.manual_seed(2)
    return torch.rand(N, N) < 0.3


def entropy(logit: float, label: float) -> float:
    p = 1 / (1 + math.exp(-logit))
    return -label * math.log(p) - (1 - label) * math.log(1 - p)


def by_hand(s: list[list[float]], y: list[float], out: list[list[bool]], pseudo: float, epsilon: float) -> list[float]:
    values = []
    for i in range(N):
        total = 0.0
        for place in (lambda j, i=i: (i, j), lambda k, i=i: (k, i)):
            kept = [n for n in range(N) if n == i or not out[place(n)[0]][place(n)[1]]]
            for weight, pseudo_labels in ((1.0, False), (pseudo, True)):
                for n in kept:
                    score = s[place(n)[0]][place(n)[1]]
                    label = y[i] if n == i or (pseudo_labels and score >= s[i][i]) else 0.0
                    label = (1 - epsilon) * label + epsilon * (1 - label)
                    total += weight * entropy(score, label) / len(kept)
        values.append(total)
    return values


@pytest.mark.parametrize("pseudo", [0.0, 0.3])
@pytest.mark.parametrize("epsilon", [0.0, 0.05])
def test_pairwise_matches_plain_loops(logits: Tensor, exclude: Tensor, pseudo: float, epsilon: float) -> None:
    y = torch.tensor([0.0, 0.25, 0.5, 0.9, 1.0], dtype=torch.float64)
    expected = by_hand(logits.tolist(), y.tolist(), exclude.tolist(), pseudo, epsilon)
    assert pairwise(logits, y, exclude, pseudo, epsilon).tolist() == pytest.approx(expected, abs=1e-12)
    labelled = logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: pairwise(s, y, exclude, pseudo, epsilon), (labelled,))


def test_the_sigmoid_loss_matches_plain_loops(logits: Tensor, exclude: Tensor) -> None:
    y, scale = torch.tensor([0.0, 0.25, 0.5, 0.9, 1.0], dtype=torch.float64), torch.tensor(3.0, dtype=torch.float64)
    found = Sigmoid(threshold=0.5)(logits, scale, y, exclude)
    moved = (3 * (logits - 0.5)).tolist()
    expected = by_hand(moved, y.tolist(), exclude.tolist(), 0.0, 0.0)
    assert found.tolist() == pytest.approx([N / 2 * value for value in expected], abs=1e-8)
    none = torch.zeros(N, N, dtype=torch.bool)
    total = sum(entropy(moved[i][j], y[i].item() if i == j else 0.0) for i in range(N) for j in range(N))
    whole = Sigmoid(threshold=0.5)(logits, scale, y, none).mean()
    assert whole.item() == pytest.approx(total / N, abs=1e-8)


def test_without_exclusions_the_mean_is_twice_that_of_all_entries(logits: Tensor) -> None:
    y = torch.ones(N, dtype=torch.float64)
    every = torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.eye(N, dtype=torch.float64))
    none = torch.zeros(N, N, dtype=torch.bool)
    torch.testing.assert_close(pairwise(logits, y, none).mean(), 2 * every)


def test_permuted_pairs_have_permuted_losses(logits: Tensor, exclude: Tensor) -> None:
    y, order = torch.rand(N, dtype=torch.float64), torch.randperm(N)
    moved = pairwise(logits[order][:, order], y[order], exclude[order][:, order], 0.1, 0.01)
    torch.testing.assert_close(moved, pairwise(logits, y, exclude, 0.1, 0.01)[order])


def test_a_pair_of_no_trust_is_pushed_apart_and_makes_no_pseudo_positive(logits: Tensor) -> None:
    none = torch.zeros(N, N, dtype=torch.bool)
    leaf = logits.requires_grad_()
    pairwise(leaf, torch.zeros(N, dtype=torch.float64), none, 1.0).sum().backward()
    assert leaf.grad is not None and bool((leaf.grad > 0).all())
    leaf.grad = None
    pairwise(leaf, torch.ones(N, dtype=torch.float64), none).sum().backward()
    assert bool((leaf.grad.diagonal() < 0).all()) and int((leaf.grad < 0).sum()) == N


def test_directions_weigh_a_pair_as_its_negatives(logits: Tensor, exclude: Tensor) -> None:
    captions, images = pairwise_directions(logits, exclude)
    s, out = logits.tolist(), exclude.tolist()
    for i in range(N):
        row = [entropy(s[i][j], 0) for j in range(N) if j != i and not out[i][j]]
        column = [entropy(s[k][i], 0) for k in range(N) if k != i and not out[k][i]]
        own = entropy(s[i][i], 1)
        assert float(captions[i]) == pytest.approx(own + sum(row) / max(1, len(row)))
        assert float(images[i]) == pytest.approx(own + sum(column) / max(1, len(column)))
    loss, scale = BCE(threshold=0.2), torch.tensor(3.0, dtype=torch.float64)
    found = loss.observe(logits, scale, exclude)
    torch.testing.assert_close(found, sum(pairwise_directions(3 * (logits - 0.2), exclude)) / 2)


def test_the_loss_reads_the_logit_at_the_scale(logits: Tensor, exclude: Tensor) -> None:
    y = torch.rand(N, dtype=torch.float64)
    scale = torch.tensor(3.0, dtype=torch.float64)
    found = BCE(pseudo=0.2, smoothing=0.01, threshold=-0.5)(logits, scale, y, exclude)
    torch.testing.assert_close(found, pairwise(3 * (logits + 0.5), y, exclude, 0.2, 0.01))


def test_in_half_precision_a_lower_entry_is_no_pseudo_positive() -> None:
    logits = torch.tensor([[2.0, 1.75], [-3.0, 4.0]])
    y, exclude = torch.ones(2), torch.zeros(2, 2, dtype=torch.bool)
    expected, found = (
        pairwise(logits.to(dtype), y.to(dtype), exclude, 1.0) for dtype in (torch.float32, torch.bfloat16)
    )
    assert found.tolist() == pytest.approx(expected.tolist(), rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_pair_that_is_equal_but_for_rounding_has_the_label_too(dtype: torch.dtype) -> None:
    logits = torch.tensor([[2.0, 2.0], [-3.0, 4.0]], dtype=dtype)
    lower = logits.clone()
    lower[0, 1] = torch.nextafter(logits[0, 1], torch.tensor(0.0, dtype=dtype))
    less = logits.clone()
    less[0, 1] = 1.999
    y, exclude = torch.ones(2, dtype=dtype), torch.zeros(2, 2, dtype=torch.bool)
    equal, rounded, other = (pairwise(one, y, exclude, 1.0) for one in (logits, lower, less))
    assert rounded.tolist() == pytest.approx(equal.tolist(), rel=1e-6)
    assert abs(other[0] - equal[0]) > 0.5
