"""GSC's indicators and intra-modal loss against plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pairsift.loss.infonce import match_probability
from pairsift.methods.gsc import structure_agreement, structure_loss


def case(seed: int, n: int, excluded: float = 0.3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Similarities of images and of texts (not symmetric, as a similarity module's), labels, and a mask."""
    torch.manual_seed(seed)
    images, texts = torch.rand(2, n, n, dtype=torch.float64) * 2 - 1
    return images, texts, torch.rand(n, dtype=torch.float64), torch.rand(n, n) < excluded


def kept(exclude: Tensor, i: int, n: int) -> list[int]:
    return [j for j in range(n) if j == i or not exclude[i, j]]


@given(seed=st.integers(0, 10**6), n=st.integers(1, 7), excluded=st.sampled_from([0, 0.3, 1]))
@settings(max_examples=40)
def test_the_match_probability_is_equation_3(seed: int, n: int, excluded: float) -> None:
    s, _, _, exclude = case(seed, n, excluded)
    logits = s / 0.07
    for i, value in enumerate(match_probability(logits, exclude).tolist()):
        captions = sum(math.exp(logits[i, j]) for j in kept(exclude, i, n))
        images = sum(math.exp(logits[j, i]) for j in kept(exclude.T, i, n))
        own = math.exp(logits[i, i])
        assert value == pytest.approx((own / captions + own / images) / 2, abs=1e-12)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 7), excluded=st.sampled_from([0, 0.3, 1]))
@settings(max_examples=40)
def test_the_structure_loss_is_equation_7(seed: int, n: int, excluded: float) -> None:
    images, texts, y, exclude = case(seed, n, excluded)
    tau = 0.5
    for i, value in enumerate(structure_loss(images, texts, y, tau, exclude).tolist()):
        logit = [sum(float(y[k] * images[i, k] * y[k] * texts[j, k]) for k in range(n)) / tau for j in range(n)]
        total = sum(math.exp(logit[j]) for j in kept(exclude, i, n))
        assert value == pytest.approx(-math.log(math.exp(logit[i]) / total), abs=1e-9)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 7))
@settings(max_examples=40)
def test_the_structure_agreement_is_equation_8(seed: int, n: int) -> None:
    images, texts, y, _ = case(seed, n)
    for i, value in enumerate(structure_agreement(images, texts, y).tolist()):
        both = sum(float(y[j] * images[i, j] * y[j] * texts[i, j]) for j in range(n))
        left = math.sqrt(sum(float(y[j] * images[i, j]) ** 2 for j in range(n)))
        right = math.sqrt(sum(float(y[j] * texts[i, j]) ** 2 for j in range(n)))
        assert value == pytest.approx(both / (left * right), abs=1e-9)


def test_equal_structures_agree_and_doubted_pairs_do_not_count() -> None:
    images, texts, y, _ = case(0, 6)
    assert structure_agreement(images, 3 * images, y).tolist() == pytest.approx([1] * 6)
    y[2] = 0
    spoiled = texts.clone()
    spoiled[:, 2] = 9.0
    torch.testing.assert_close(structure_agreement(images, spoiled, y), structure_agreement(images, texts, y))
    assert structure_agreement(images, texts, torch.zeros(6, dtype=torch.float64)).tolist() == [0] * 6


def test_the_published_codes_overflow_is_none() -> None:
    ones = torch.full((128, 128), 0.99, requires_grad=True)  # exp of 125 is beyond float32
    loss = structure_loss(ones, ones, torch.ones(128), 1.0, torch.zeros(128, 128, dtype=torch.bool))
    loss.sum().backward()
    assert loss.tolist() == pytest.approx([math.log(128)] * 128, rel=1e-4)
    assert ones.grad is not None and bool(ones.grad.isfinite().all())


def test_half_precision_does_not_blur_the_sums() -> None:
    torch.manual_seed(0)
    images, texts = 0.5 + 0.1 * torch.rand(2, 256, 256)
    arguments = images, texts, torch.ones(256), 1.0, torch.zeros(256, 256, dtype=torch.bool)
    exact = structure_loss(*arguments)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(structure_loss(*arguments), exact)


def test_a_pair_alone_in_its_block_is_certain_and_costs_nothing() -> None:
    images, texts, y, exclude = case(1, 4, 1)
    assert match_probability(images, exclude).tolist() == [1] * 4
    assert structure_loss(images, texts, y, 1.0, exclude).tolist() == pytest.approx([0] * 4)


def test_gradcheck() -> None:
    images, texts, y, exclude = case(3, 5)
    images.requires_grad_(), texts.requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: structure_loss(a, b, y, 0.7, exclude), (images, texts))
