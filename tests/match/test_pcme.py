"""PCME against plain loops, its means in evaluation, and a planted collection."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pairsift.encode.features import Items
from pairsift.loss.ranking import BCE
from pairsift.match.base import Codes
from pairsift.match.heads import divergence
from pairsift.match.pcme import Pcme, PcmeOptions
from pairsift.train.loop import Trainer
from planted_toys import planted_job

N, M, J = 3, 4, 3


def make(**options: float) -> Pcme:
    torch.manual_seed(3)
    matcher = Pcme(6, 5, PcmeOptions(dim=4, hidden=6, dropout=0.0, samples=J, **options)).double()
    for name, parameter in matcher.named_parameters():
        if "head" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    return matcher


def coded(matcher: Pcme, n: int = N, m: int = M) -> tuple[Codes, Codes]:
    torch.manual_seed(7)
    left, right = torch.randn(n, 6, dtype=torch.float64), torch.randn(m, 5, dtype=torch.float64)
    return matcher.encode_images(Items(left)), matcher.encode_texts(Items(right))


def by_hand(matcher: Pcme, images: Tensor, texts: Tensor) -> Tensor:
    """The probability that every image and caption match, sample by sample."""
    slope, shift = matcher.distance.log_slope.exp(), matcher.distance.log_shift.exp()
    rows = []
    for image in images:
        row = []
        for text in texts:
            total = torch.zeros((), dtype=torch.float64)
            for one in image:
                for other in text:
                    length = torch.stack([(a - b) ** 2 for a, b in zip(one, other, strict=True)]).sum().sqrt()
                    near, far = (shift - slope * length).exp(), (slope * length - shift).exp()
                    total = total + near / (near + far)
            row.append(total / J**2)
        rows.append(torch.stack(row))
    return torch.stack(rows)


def test_match_probabilities_match_plain_loops_in_value_and_gradient() -> None:
    matcher = make(slope=1.5, shift=2.0).train()
    images, texts = coded(matcher)
    assert images.extra["samples"].shape == (N, J, 4)
    found = (matcher.similarity(images, texts) * matcher.scale()).sigmoid()
    expected = by_hand(matcher, images.extra["samples"], texts.extra["samples"])
    torch.testing.assert_close(found, expected)
    weights = torch.randn(N, M, dtype=torch.float64)
    names, parameters = zip(*matcher.named_parameters(), strict=True)
    got = torch.autograd.grad((found * weights).sum(), parameters, retain_graph=True)
    wanted = torch.autograd.grad((expected * weights).sum(), parameters)
    for name, one, other in zip(names, got, wanted, strict=True):
        torch.testing.assert_close(one, other, msg=lambda said, name=name: f"{name}: {said}")
        assert float(one.abs().sum()) > 0, name


def test_the_loss_is_the_soft_contrastive_one() -> None:
    matcher = make(slope=1.5, shift=2.0).train()
    images, texts = coded(matcher, N, N)
    p = by_hand(matcher, images.extra["samples"], texts.extra["samples"])
    same = torch.eye(N, dtype=torch.bool)
    expected = 2 * torch.where(same, -p.log(), -(1 - p).log()).mean()
    y = torch.ones(N, dtype=torch.float64)
    loss = BCE(pseudo=0.0, smoothing=0.0)
    found = loss(matcher.similarity(images, texts), matcher.scale(), y, torch.zeros(N, N, dtype=torch.bool))
    torch.testing.assert_close(found.mean(), expected)


def test_samples_have_the_mean_and_the_variances_of_their_item() -> None:
    torch.manual_seed(0)
    matcher = Pcme(6, 5, PcmeOptions(dim=4, hidden=6, dropout=0.0, samples=40_000)).double().train()
    values = torch.randn(2, 6, dtype=torch.float64)
    images = matcher.encode_images(Items(values))
    mean, log_variance = matcher.image_head(values)
    samples = images.extra["samples"]
    assert log_variance.exp().sum(1).tolist() == pytest.approx([0.1, 0.1], rel=0.7)  # where training starts
    torch.testing.assert_close(samples.mean(1), mean, rtol=0, atol=0.01)
    torch.testing.assert_close(samples.var(1), log_variance.exp(), rtol=0.05, atol=0)


def test_far_and_near_items_have_finite_gradients() -> None:
    matcher = make(slope=50.0, shift=50.0).train()
    images, texts = coded(matcher)
    same = Codes(images.vectors, index=images.index, extra=images.extra)
    for other in (texts, same):
        matcher.zero_grad()
        similarity = matcher.similarity(images, other)
        similarity.sum().backward(retain_graph=True)
        assert bool(similarity.isfinite().all())
        assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in matcher.parameters())


def test_permuted_samples_and_items() -> None:
    matcher = make().train()
    images, texts = coded(matcher)
    rows, columns = torch.randperm(N), torch.randperm(M)
    similarity = matcher.similarity(images, texts)
    torch.testing.assert_close(matcher.similarity(images.rows(rows), texts.rows(columns)), similarity[rows][:, columns])
    shuffled = Codes(images.vectors, extra={**images.extra, "samples": images.extra["samples"][:, [2, 0, 1]]})
    torch.testing.assert_close(matcher.similarity(shuffled, texts), similarity)


def test_in_evaluation_the_index_has_the_order_of_the_cosine_and_of_the_probability() -> None:
    matcher = make(slope=3.0, shift=2.0).eval()
    images, texts = coded(matcher, 20, 30)
    similarity = matcher.similarity(images, texts)
    cosine = images.vectors @ texts.vectors.T
    torch.testing.assert_close(similarity, cosine - 1 + (2 / 3) ** 2 / 2)
    p = torch.sigmoid(2 * (2 - 3 * (2 - 2 * cosine).sqrt()))
    for found, expected in zip(similarity, p, strict=True):
        assert found.argsort().tolist() == expected.argsort().tolist()
    assert torch.equal(similarity > 0, p > 0.5)


def test_the_scale_is_the_slope_of_the_logit_where_a_match_is_as_likely_as_not() -> None:
    matcher = make(slope=3.0, shift=2.0)
    cosine = torch.tensor(1 - (2 / 3) ** 2 / 2, dtype=torch.float64, requires_grad=True)
    logit = 2 * (2 - 3 * (2 - 2 * cosine).sqrt())
    logit.backward()
    assert cosine.grad is not None and logit.item() == pytest.approx(0, abs=1e-12)
    assert matcher.scale().item() == pytest.approx(cosine.grad.item()) == pytest.approx(2 * 9 / 2)
    assert make(slope=100.0, shift=2.0).scale().item() == pytest.approx(100)
    assert math.isfinite(make(slope=1e4, shift=1e-3).scale().item())


def test_the_penalty_is_the_weighted_divergence() -> None:
    matcher = make(kl=0.5)
    images, texts = coded(matcher, N, N)
    none = torch.zeros(N, N, dtype=torch.bool)
    torch.manual_seed(7)
    left, right = torch.randn(N, 6, dtype=torch.float64), torch.randn(N, 5, dtype=torch.float64)
    expected = 0.5 * 4 / N * (divergence(*matcher.image_head(left)) + divergence(*matcher.text_head(right)))
    torch.testing.assert_close(matcher.penalty(images, texts, none, torch.ones(N)), expected)
    assert make(kl=0.0).penalty(images, texts, none, torch.ones(N)) is None


def test_a_planted_collection_is_learned(tmp_path: Path) -> None:
    options = PcmeOptions(dim=16, hidden=16, dropout=0.1, samples=3)
    trainer = Trainer(planted_job(tmp_path, lambda: Pcme(20, 16, options), BCE()))
    trainer.run()
    assert trainer.position.best_rsum > 500
