"""PAU against plain loops, its scaled index, and a planted collection."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pairsift.encode.features import Items
from pairsift.loss.ranking import InfoNCE
from pairsift.match.base import Codes
from pairsift.match.pau import Pau, PauOptions
from pairsift.train.loop import Trainer
from planted_toys import planted_job

N, K = 4, 3


def make(**options: float) -> Pau:
    torch.manual_seed(3)
    matcher = Pau(6, 5, PauOptions(dim=4, hidden=6, dropout=0.0, prototypes=K, **options)).double()
    for name, parameter in matcher.named_parameters():
        if "scale" not in name:
            torch.nn.init.normal_(parameter, std=0.5)
    return matcher


def coded(matcher: Pau, n: int = N, m: int = N, seed: int = 7) -> tuple[Codes, Codes]:
    torch.manual_seed(seed)
    left, right = torch.randn(n, 6, dtype=torch.float64), torch.randn(m, 5, dtype=torch.float64)
    return matcher.encode_images(Items(left)), matcher.encode_texts(Items(right))


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (a.norm() * b.norm())


def vagueness(vector: Tensor, prototypes: Tensor) -> Tensor:
    evidence = [(cosine(vector, prototype) / 0.07 / 5).exp() for prototype in prototypes]
    return 1 - K / sum(e + 1 for e in evidence)


def by_hand(matcher: Pau, images: Codes, texts: Codes, exclude: list[list[bool]]) -> Tensor:
    total = [torch.zeros((), dtype=torch.float64) for _ in range(N)]
    own = matcher.prototypes
    sides = ((images, own.texts, lambda i, j: (i, j)), (texts, own.images, lambda i, j: (j, i)))
    for codes, prototypes, place in sides:
        levels, vague = [], [vagueness(vector, prototypes) for vector in codes.vectors]
        for i in range(N):
            others = [place(i, j) for j in range(N) if j != i and not exclude[place(i, j)[0]][place(i, j)[1]]]
            found = [cosine(images.vectors[a], texts.vectors[b]) for a, b in others]
            levels.append(sum(found) / max(1, len(found)))
        factor = sum(vague) / N / max(sum(levels) / N, torch.tensor(0.05, dtype=torch.float64))
        for i in range(N):
            total[i] = total[i] + 2.0 * (vague[i] - factor * levels[i]) ** 2 / 2
    for prototypes in (own.images, own.texts):
        for k in range(K):
            for other in range(K):
                if k != other:
                    logit = cosine(prototypes[k], prototypes[other]) / 0.07
                    total = [value + 0.3 * logit**2 / K**2 for value in total]
    return torch.stack(total)


@pytest.mark.parametrize("seed", [7, 8, 9])
def test_the_penalty_matches_plain_loops_in_value_and_gradient(seed: int) -> None:
    matcher = make(regression=2.0, diversity=0.3).train()
    images, texts = coded(matcher, seed=seed)
    exclude = torch.eye(N, dtype=torch.bool)
    exclude[0, 2] = exclude[3, 1] = True
    found = matcher.penalty(images, texts, exclude, torch.ones(N))
    assert found is not None
    expected = by_hand(matcher, images, texts, exclude.tolist())
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    weights = torch.randn(N, dtype=torch.float64)
    named = [(name, p) for name, p in matcher.named_parameters() if name != "log_scale"]
    got = torch.autograd.grad((found * weights).sum(), [p for _, p in named], retain_graph=True)
    wanted = torch.autograd.grad((expected * weights).sum(), [p for _, p in named])
    for (name, _), one, other in zip(named, got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-9, msg=lambda said, name=name: f"{name}: {said}")


def test_permuted_pairs_have_permuted_penalties() -> None:
    matcher = make().train()
    images, texts = coded(matcher)
    exclude, order = torch.rand(N, N) < 0.2, torch.randperm(N)
    found = matcher.penalty(images, texts, exclude, torch.ones(N))
    moved = matcher.penalty(images.rows(order), texts.rows(order), exclude[order][:, order], torch.ones(N))
    assert found is not None and moved is not None
    torch.testing.assert_close(moved, found[order])


def test_similarity_is_the_cosine_in_training_and_scaled_in_evaluation() -> None:
    matcher = make(rerank=0.7)
    images, texts = coded(matcher.train(), 3, 5)
    plain = matcher.similarity(images, texts)
    scaled = matcher.similarity(*coded(matcher.eval(), 3, 5))
    for i in range(3):
        for j in range(5):
            s = cosine(images.vectors[i], texts.vectors[j]).item()
            u = vagueness(images.vectors[i], matcher.prototypes.texts).item()
            w = vagueness(texts.vectors[j], matcher.prototypes.images).item()
            assert 0 < u < 1 and plain[i, j].item() == pytest.approx(s)
            assert scaled[i, j].item() == pytest.approx(s * math.exp(-0.7 * u) * math.exp(-0.7 * w))


def test_the_index_has_the_order_of_the_similarity() -> None:
    matcher = make(rerank=3.0).eval()
    images, texts = coded(matcher, 20, 30)
    similarity = matcher.similarity(images, texts)
    found = (images.indexed @ texts.indexed.T).argsort(1)
    assert torch.equal(found, similarity.argsort(1))
    assert not torch.equal(found, (images.vectors @ texts.vectors.T).argsort(1))


def test_the_temperature_learns_from_the_terms_too() -> None:
    matcher = make().train()
    images, texts = coded(matcher)
    penalty = matcher.penalty(images, texts, torch.eye(N, dtype=torch.bool), torch.ones(N))
    assert penalty is not None
    (gradient,) = torch.autograd.grad(penalty.sum(), matcher.log_scale)
    assert float(gradient.abs()) > 0


def test_vectors_are_of_one_space_where_vague_items_lose_nothing() -> None:
    assert not make(rerank=0.1).shares_space and make(rerank=0.0).shares_space


def test_a_planted_collection_is_learned_and_hubs_become_vague(tmp_path: Path) -> None:
    options = PauOptions(dim=16, hidden=16, dropout=0.1, regression=100.0)
    job = planted_job(tmp_path, lambda: Pau(20, 16, options), InfoNCE())
    trainer = Trainer(job)
    trainer.run()
    assert trainer.position.best_rsum > 500
    matcher = trainer.networks[0].matcher
    ids = job.pairs.ids("train")
    with torch.no_grad():
        images, texts = (
            encode(table.batch(ids))
            for encode, table in (
                (matcher.encode_images, job.features.images),
                (matcher.encode_texts, job.features.texts),
            )
        )
        level = (images.vectors @ texts.vectors.T).mean(1)
        together = torch.corrcoef(torch.stack([level, images.extra["vagueness"]]))[0, 1]
    assert float(together) > 0.5
