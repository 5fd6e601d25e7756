"""Losses of the pseudo-classifier against plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pairsift.methods.parts.pseudo_captions import batch_entropy, pseudo_label_loss
from pairsift.methods.pcsr import generalised_cross_entropy


def logits(seed: int, n: int = 5, k: int = 4) -> Tensor:
    torch.manual_seed(seed)
    return 2 * torch.randn(n, k, dtype=torch.float64)


def softmax(row: list[float]) -> list[float]:
    powers = [math.exp(value) for value in row]
    return [power / sum(powers) for power in powers]


def test_pseudo_label_loss_matches_plain_loops() -> None:
    images, texts = logits(0), logits(1)
    expected = []
    for image, text in zip(images.tolist(), texts.tolist(), strict=True):
        expected.append(-math.log(softmax(image)[text.index(max(text))]))
    assert pseudo_label_loss(images, texts).tolist() == pytest.approx(expected, abs=1e-12)


def test_no_gradient_reaches_the_captions_logits() -> None:
    images, texts = logits(2).requires_grad_(), logits(3).requires_grad_()
    pseudo_label_loss(images, texts).sum().backward()
    assert texts.grad is None and images.grad is not None and bool(images.grad.any())


def test_batch_entropy_matches_plain_loops() -> None:
    rows = [softmax(row) for row in logits(4).tolist()]
    mean = [sum(row[k] for row in rows) / len(rows) for k in range(4)]
    expected = [sum(p * math.log(q) for p, q in zip(row, mean, strict=True)) for row in rows]
    got = batch_entropy(logits(4))
    assert got.tolist() == pytest.approx(expected, abs=1e-12)
    entropy = -sum(q * math.log(q) for q in mean)
    assert float(got.mean()) == pytest.approx(-entropy, abs=1e-12)


def test_batch_entropy_at_its_limits() -> None:
    same = torch.tensor([[50.0, 0, 0, 0]] * 4)
    assert float(batch_entropy(same).mean()) == pytest.approx(0, abs=1e-6)
    assert float(batch_entropy(torch.eye(4) * 50).mean()) == pytest.approx(-math.log(4))
    assert float(batch_entropy(torch.zeros(3, 4)).mean()) == pytest.approx(-math.log(4))


def test_gradcheck() -> None:
    assert torch.autograd.gradcheck(batch_entropy, (logits(5).requires_grad_(),))
    assert torch.autograd.gradcheck(lambda x: pseudo_label_loss(x, logits(6)), (logits(7).requires_grad_(),))


def test_permuted_pairs_have_permuted_losses() -> None:
    images, texts, order = logits(8), logits(9), torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(batch_entropy(images[order]), batch_entropy(images)[order])
    moved = pseudo_label_loss(images[order], texts[order])
    torch.testing.assert_close(moved, pseudo_label_loss(images, texts)[order])


def test_permuted_classes_change_nothing() -> None:
    images, texts, order = logits(10), logits(11), torch.tensor([2, 3, 1, 0])
    torch.testing.assert_close(batch_entropy(images[:, order]), batch_entropy(images))
    moved = pseudo_label_loss(images[:, order], texts[:, order])
    torch.testing.assert_close(moved, pseudo_label_loss(images, texts))


def test_extreme_logits_give_no_nan() -> None:
    x = torch.tensor([[1e5, -1e5, 0], [-1e5, 1e5, 0], [1e5, 0, 0]], requires_grad=True)
    loss = batch_entropy(x) + pseudo_label_loss(x, x.roll(1, 0))
    loss.sum().backward()
    assert bool(loss.isfinite().all()) and x.grad is not None and bool(x.grad.isfinite().all())


@pytest.mark.parametrize("gamma", [0.1, 0.7, 1.0])
def test_generalised_cross_entropy_matches_plain_loops(gamma: float) -> None:
    images, texts = logits(11, 6), logits(12, 6)
    expected = []
    for image, text in zip(images.tolist(), texts.tolist(), strict=True):
        p, q = softmax(image), softmax(text)
        of_image = (1 - p[q.index(max(q))] ** gamma) / gamma
        of_text = (1 - q[p.index(max(p))] ** gamma) / gamma
        expected.append(of_image + of_text)
    got = generalised_cross_entropy(images, texts, gamma)
    assert got.tolist() == pytest.approx(expected, abs=1e-12)
    assert bool((got >= 0).all()) and bool((got <= 2 / gamma).all())
    torch.testing.assert_close(got, generalised_cross_entropy(texts, images, gamma))


def test_generalised_cross_entropy_lies_between_its_limits() -> None:
    images, texts = logits(13), logits(14)
    cross_entropy = pseudo_label_loss(images, texts) + pseudo_label_loss(texts, images)
    torch.testing.assert_close(generalised_cross_entropy(images, texts, 1e-7), cross_entropy, rtol=1e-5, atol=1e-5)
    chosen = [softmax(a)[b.index(max(b))] for a, b in zip(images.tolist(), texts.tolist(), strict=True)]
    chosen_too = [softmax(b)[a.index(max(a))] for a, b in zip(images.tolist(), texts.tolist(), strict=True)]
    expected = [2 - p - q for p, q in zip(chosen, chosen_too, strict=True)]
    assert generalised_cross_entropy(images, texts, 1.0).tolist() == pytest.approx(expected, abs=1e-12)


def test_generalised_cross_entropy_teaches_both_sides_and_an_unlikely_label_pulls_less() -> None:
    images, texts = logits(15).requires_grad_(), logits(16).requires_grad_()
    assert torch.autograd.gradcheck(generalised_cross_entropy, (images, texts))
    generalised_cross_entropy(images, texts).sum().backward()
    assert images.grad is not None and texts.grad is not None
    assert bool(images.grad.any(1).all()) and bool(texts.grad.any(1).all())
    wrong = torch.tensor([[0.0, 9.0]], requires_grad=True)
    label = torch.tensor([[60.0, 0.0]])
    robust = torch.autograd.grad(generalised_cross_entropy(wrong, label).sum(), wrong)[0]
    plain = torch.autograd.grad(pseudo_label_loss(wrong, label).sum(), wrong)[0]
    assert float(robust.abs().max()) < 0.01 * float(plain.abs().max())


def test_generalised_cross_entropy_is_finite_at_extremes_and_in_half_precision() -> None:
    x = torch.tensor([[1e5, -1e5, 0], [-1e5, 1e5, 0]], requires_grad=True)
    loss = generalised_cross_entropy(x, x.roll(1, 0))
    loss.sum().backward()
    assert bool(loss.isfinite().all()) and x.grad is not None and bool(x.grad.isfinite().all())
    assert loss.tolist() == pytest.approx([2 / 0.7] * 2)
    assert generalised_cross_entropy(x.bfloat16(), x.bfloat16()).dtype == torch.float32
