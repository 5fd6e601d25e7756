"""The pseudo-classifier's two forms."""

import pytest
import torch
from method_helpers import SETTING, Tiny, batch_of, make_networks

from pairsift.errors import InputError
from pairsift.loss.ranking import Hinge
from pairsift.match import TwoTower, Vse
from pairsift.match.base import Codes, unit
from pairsift.methods import PC2
from pairsift.methods.parts.pseudo_captions import (
    FlatClassifier,
    GlobalClassifier,
    batch_entropy,
    pseudo_label_loss,
    resample,
)
from pairsift.steps import Phase, Step


@pytest.mark.parametrize("rows", [1, 2, 5, 36])
def test_stretching_interpolates_an_items_own_tokens(rows):
    torch.manual_seed(0)
    lengths = [1, 2, 5, 7]
    tokens, mask = torch.randn(4, 7, 3), torch.arange(7) < torch.tensor(lengths)[:, None]
    out = resample(tokens, mask, rows)
    for i, length in enumerate(lengths):
        for r in range(rows):
            place = r * (length - 1) / max(1, rows - 1)
            low = int(place)
            high = min(low + 1, length - 1)
            expected = tokens[i, low] + (place - low) * (tokens[i, high] - tokens[i, low])
            assert torch.allclose(out[i, r], expected, atol=1e-6)


def test_as_many_tokens_as_rows_stay_as_they_are_and_padding_does_not_matter():
    tokens = torch.randn(3, 36, 4)
    assert torch.allclose(resample(tokens, None, 36), tokens, atol=1e-6)
    padded = torch.cat([tokens, torch.full((3, 9, 4), 7.0)], 1)
    mask = torch.arange(45).expand(3, 45) < 36
    classifier = FlatClassifier(4, 5)
    vectors = torch.zeros(3, 4)
    assert torch.allclose(classifier(Codes(vectors, padded, mask)), classifier(Codes(vectors, tokens)), atol=1e-6)


def test_the_flat_form_runs_where_there_are_tokens_and_is_refused_elsewhere():
    method = PC2(classifier={"classes": 5, "reads": "flat"})
    method.check(Vse, False)
    with pytest.raises(InputError, match="two_tower"):
        method.check(TwoTower, False)
    networks = make_networks(method, Tiny)
    method = method.begin(SETTING(Hinge()))
    terms = method.step(Step(networks, 0, {"clean": batch_of([0, 3, 6]), "noisy": batch_of([2, 4])}, Phase("all", 1)))
    assert all(torch.isfinite(term.values).all() for term in terms)
    sum(term.reduced() for term in terms).backward()
    assert networks[0].head.layers[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("kind", [GlobalClassifier, FlatClassifier])
def test_the_classes_start_spread_whatever_the_length_of_the_vectors(kind):
    torch.manual_seed(0)
    vectors = unit(torch.randn(300, 512) + 1)
    tokens = unit(vectors[:, None] + torch.randn(300, 3, 512) / 50)
    logits = kind(512, 32)(Codes(vectors, tokens)).detach()
    assert len(logits.argmax(1).unique()) >= 10
    doubled = kind(512, 32)
    codes = Codes(2 * vectors, 2 * tokens)
    assert torch.allclose(doubled(codes), doubled(Codes(vectors, tokens)), atol=1e-4)


def test_classes_stay_spread_and_agree_between_image_and_caption_within_a_hundred_steps():
    torch.manual_seed(0)
    topics = torch.randn(20, 256)[torch.randint(20, (600,))]
    images, texts = (unit(topics + 1 + torch.randn(600, 256)) for _ in range(2))
    head = GlobalClassifier(256, 16)
    optimizer = torch.optim.AdamW(head.parameters(), 1e-3)
    for _ in range(100):
        rows = torch.randint(600, (128,))
        p, q = head(Codes(images[rows])), head(Codes(texts[rows]))
        loss = pseudo_label_loss(p, q).mean() + 10 * batch_entropy(p).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    p, q = (head(Codes(vectors)).argmax(1) for vectors in (images, texts))
    assert len(p.unique()) >= 12 and (p == q).float().mean() > 0.8
