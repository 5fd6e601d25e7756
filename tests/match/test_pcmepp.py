"""PCME++ against plain loops and samples, its index form, and what its variances tell."""

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
from pairsift.match.pcmepp import Pcmepp, PcmeppOptions
from pairsift.retrieve.bank import Bank
from pairsift.retrieve.gallery import Gallery, most_similar
from pairsift.steps import Network, Pairing, Setting
from pairsift.train.loop import Trainer
from planted_toys import ambiguous, planted_job

SIZES = {"dim": 4, "hidden": 6, "dropout": 0.0}


def make(**options: float) -> Pcmepp:
    torch.manual_seed(3)
    matcher = Pcmepp(6, 5, PcmeppOptions(**SIZES, **options)).double()
    for name, parameter in matcher.named_parameters():
        if "head" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    return matcher


def batch(n: int, width: int) -> Items:
    return Items(torch.randn(n, width, dtype=torch.float64))


def by_hand(matcher: Pcmepp, left: Items, right: Items) -> list[list[Tensor]]:
    """The logit of every image and caption, entry by entry."""
    rows = []
    slope = matcher.distance.log_scale.exp() / 2
    for image in left.values:
        row = []
        for text in right.values:
            (mean_v, log_v), (mean_t, log_t) = matcher.image_head(image[None]), matcher.text_head(text[None])
            distance = torch.zeros((), dtype=torch.float64)
            for d in range(matcher.dim):
                distance = distance + (mean_v[0, d] - mean_t[0, d]) ** 2 + log_v[0, d].exp() + log_t[0, d].exp()
            row.append(-slope * distance + matcher.distance.shift)
        rows.append(row)
    return rows


def test_the_similarity_at_its_scale_is_the_logit_in_value_and_gradient() -> None:
    matcher, left, right = make(slope=3.0, shift=-0.4), batch(3, 6), batch(4, 5)
    weights = torch.randn(3, 4, dtype=torch.float64)
    similarity = matcher.similarity(matcher.encode_images(left), matcher.encode_texts(right))
    logits = similarity * matcher.scale()
    expected = torch.stack([torch.stack(row) for row in by_hand(matcher, left, right)])
    torch.testing.assert_close(logits, expected)
    names, parameters = zip(*matcher.named_parameters(), strict=True)
    found = torch.autograd.grad((logits * weights).sum(), parameters)
    wanted = torch.autograd.grad((expected * weights).sum(), parameters)
    for name, one, other in zip(names, found, wanted, strict=True):
        torch.testing.assert_close(one, other, msg=lambda said, name=name: f"{name}: {said}")
        assert float(one.abs().sum()) > 0, name


def test_the_distance_is_what_samples_have_on_average() -> None:
    matcher, image, text = make(), batch(1, 6), batch(1, 5)
    (mean_v, log_v), (mean_t, log_t) = matcher.image_head(image.values), matcher.text_head(text.values)
    samples = [
        mean + (log / 2).exp() * torch.randn(200_000, 4, dtype=torch.float64)
        for mean, log in ((mean_v, log_v), (mean_t, log_t))
    ]
    sampled = (samples[0] - samples[1]).square().sum(1).mean().item()
    similarity = matcher.similarity(matcher.encode_images(image), matcher.encode_texts(text))
    distance = (matcher.distance.shift - similarity * matcher.scale()) / (matcher.scale() / 2)
    assert distance.item() == pytest.approx(sampled, rel=0.02)


def test_means_have_unit_length_and_rows_carry_everything() -> None:
    matcher = make()
    codes = matcher.encode_images(batch(5, 6))
    torch.testing.assert_close(codes.vectors.norm(dim=1), torch.ones(5, dtype=torch.float64))
    assert codes.index is not None and codes.index.shape == (5, matcher.index_dim)
    order = torch.tensor([3, 0])
    texts = matcher.encode_texts(batch(2, 5))
    whole = matcher.similarity(codes, texts)
    torch.testing.assert_close(matcher.similarity(codes.rows(order), texts), whole[order])
    joined = Codes.join([codes.rows(slice(0, 2)), codes.rows(slice(2, 5))])
    torch.testing.assert_close(matcher.similarity(joined, texts), whole)
    torch.testing.assert_close(joined.extra, codes.extra)
    torch.testing.assert_close(matcher.pair_similarity(codes.rows(slice(0, 2)), texts), whole[:2].diagonal())


def test_search_by_the_index_has_the_order_of_the_similarity() -> None:
    matcher = make().float().eval()
    with torch.no_grad():
        images = matcher.encode_images(Items(torch.randn(40, 6)))
        texts = matcher.encode_texts(Items(torch.randn(30, 5)))
        similarity = matcher.similarity(images, texts)
    cosine = images.vectors @ texts.vectors.T
    assert not torch.equal(similarity[:, 0].argsort(), cosine[:, 0].argsort())  # the variances matter here
    banks = [Bank.from_codes(Codes(codes.indexed)) for codes in (images, texts)]
    for place in range(5):
        query = Bank.from_codes(Codes(texts.indexed[place : place + 1]))
        rows, scores = most_similar(Gallery([matcher], [banks[0]], [query]), True, 40)
        assert rows.tolist() == similarity[:, place].argsort(descending=True).tolist()
        assert scores.tolist() == pytest.approx(similarity[:, place].sort(descending=True).values.tolist(), abs=1e-5)
        query = Bank.from_codes(Codes(images.indexed[place : place + 1]))
        rows, _ = most_similar(Gallery([matcher], [query], [banks[1]]), False, 30)
        assert rows.tolist() == similarity[place].argsort(descending=True).tolist()


def test_divergence_matches_that_of_torch_and_plain_loops() -> None:
    mean, log_variance = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    found = divergence(mean, log_variance)
    expected = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean, (log_variance / 2).exp()),
        torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean)),
    ).mean(1)
    torch.testing.assert_close(found, expected)
    by_loops = [
        sum((math.exp(s) + m * m - 1 - s) / 8 for m, s in zip(means, logs, strict=True))
        for means, logs in zip(mean.tolist(), log_variance.tolist(), strict=True)
    ]
    assert found.tolist() == pytest.approx(by_loops)


def test_a_step_adds_the_divergences_to_the_ranking_loss() -> None:
    matcher = make(vib=0.25)
    left, right = batch(3, 6), batch(3, 5)
    codes = matcher.encode_images(left), matcher.encode_texts(right)
    none = torch.zeros(3, 3, dtype=torch.bool)
    y = torch.tensor([0.2, 1.0, 0.0], dtype=torch.float64)
    setting = Setting(torch.arange(3).numpy(), torch.arange(3).numpy(), 3, None, BCE(), 1)
    term = setting.ranking_term("it", Network(matcher, None), Pairing(*codes, none), y)
    loss = BCE()(matcher.similarity(*codes), matcher.scale(), y, none)
    added = sum(
        divergence(*head(items.values)) for head, items in ((matcher.image_head, left), (matcher.text_head, right))
    )
    torch.testing.assert_close(term.values, loss + 0.25 * added)
    assert make(vib=0.0).penalty(*codes, none, y) is None


def test_a_planted_collection_is_learned(tmp_path: Path) -> None:
    job = planted_job(tmp_path, lambda: Pcmepp(20, 16, PcmeppOptions(dim=16, hidden=16, dropout=0.1)), BCE())
    trainer = Trainer(job)
    trainer.run()
    assert trainer.position.best_rsum > 500  # of 600: one image and one caption belong to each other


def test_captions_that_fit_many_images_have_larger_variances() -> None:
    images, texts, vague = ambiguous()
    torch.manual_seed(0)
    matcher = Pcmepp(images.shape[1], texts.shape[1], PcmeppOptions(dim=16, hidden=16, dropout=0.0, vib=1.6e-3))
    optimizer, loss = torch.optim.Adam(matcher.parameters(), 3e-3), BCE(pseudo=0.0)
    none, ones = torch.zeros(len(images), len(images), dtype=torch.bool), torch.ones(len(images))
    for _ in range(300):
        codes = matcher.encode_images(Items(images)), matcher.encode_texts(Items(texts))
        values = loss(matcher.similarity(*codes), matcher.scale(), ones, none)
        penalty = matcher.penalty(*codes, none, ones)
        assert penalty is not None
        optimizer.zero_grad()
        (values + penalty).mean().backward()
        optimizer.step()
    with torch.no_grad():
        variance = matcher.eval().encode_texts(Items(texts)).extra["variance"]
    assert float(variance[vague].min()) > float(variance[~vague].median())
    assert float(variance[vague].mean()) > 1.2 * float(variance[~vague].mean())
