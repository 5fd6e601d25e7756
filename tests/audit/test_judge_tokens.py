"""Verdicts of matchers that do not factorise, against plain loops and on planted mismatches."""

import math

import numpy as np
import pytest
import torch

from pairsift.audit import score as module
from pairsift.audit.score import judge
from pairsift.match import Codes, unit
from pairsift.retrieve.bank import Bank
from pairsift.retrieve.codes import Gallery
from token_helpers import make_matchers


def codes(tokens):
    tokens = torch.tensor(tokens, dtype=torch.float32)
    return Bank.of(Codes(unit(tokens.sum(1)), unit(tokens)))


def make_gallery(n_images, owner, noise=0.5, dim=16, seed=0):
    """Two networks' tokens: an image's captions have words near its three regions."""
    rng = np.random.default_rng(seed)
    images, texts = [], []
    for _ in range(2):
        regions = rng.normal(size=(n_images, 3, dim))
        words = regions[owner][:, [0, 1, 2, 1]] + noise * rng.normal(size=(len(owner), 4, dim))
        images.append(codes(regions))
        texts.append(codes(words))
    return Gallery(make_matchers(), images, texts)


OWNER = np.array([0, 0, 1, 2, 2, 2, 3, 5, 6, 6])  # image 4 has no caption
STRAY = np.array([3, 0, 2, 5, 6, 1, 1, 4, 0, 2])


def expected(gallery, images, captions):
    """Evidence beside own and stray images by definition, one sum at a time."""
    s = gallery.block(np.arange(7)).astype(float) * gallery.scale()
    found = np.zeros((2, len(OWNER)))
    for kind, beside in enumerate((OWNER, STRAY)):
        for t, image in enumerate(beside):
            column = math.log(sum(math.exp(s[i, t]) for i in {*images.tolist(), image}))
            others = [math.exp(s[image, j]) for j in captions if OWNER[j] != image and j != t]
            row = math.log(math.exp(s[image, t]) + sum(others))
            found[kind, t] = s[image, t] - (row + column) / 2
    return found


@pytest.mark.parametrize("chunk", [2, 256])
def test_evidence_is_infonce_over_the_references(monkeypatch, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    gallery, beside = make_gallery(7, OWNER), np.stack([OWNER, STRAY])
    everything = np.arange(7), np.arange(10)
    some, one = (np.array([1, 2, 6]), np.array([0, 4, 7, 8])), (np.array([4]), np.array([2]))
    for images, captions in (some, one, everything):
        found = module._sampled(gallery, beside, images, captions).evidence()
        assert np.allclose(found, expected(gallery, images, captions), atol=1e-5)


def test_a_shortlist_of_everything_gives_the_best_captions_of_other_images():
    gallery = make_gallery(7, OWNER)
    sums = module._sampled(gallery, np.stack([OWNER, OWNER]), np.array([0, 3]), np.array([2, 5]))
    best = module._suggest(gallery, OWNER, sums, np.arange(7), 50)
    fit = gallery.block(np.arange(7)) * gallery.scale() - sums.columns[0]
    fit[OWNER, np.arange(10)] = -np.inf
    assert best.tolist() == fit.argmax(1).tolist()
    mine = np.zeros(3, np.int64)  # all captions belong to the only image
    alone = make_gallery(1, mine)
    sums = module._sampled(alone, np.stack([mine, mine]), np.arange(1), np.arange(3))
    assert module._suggest(alone, mine, sums, np.arange(1), 2).tolist() == [-1]


def planted(n_images=300, wrong=0.3, seed=1):
    truth = np.repeat(np.arange(n_images), 2)
    gallery = make_gallery(n_images, truth, seed=seed)
    rng = np.random.default_rng(seed)
    moved = rng.permutation(len(truth))[: int(wrong * len(truth))]
    owner = truth.copy()
    owner[moved] = rng.permutation(truth[moved])
    return gallery, truth, owner


@pytest.mark.parametrize("references", [32, 128, 10**6])
def test_planted_mismatches_are_found_and_their_captions_suggested(references):
    gallery, truth, owner = planted()
    verdicts = judge(gallery, owner, 0, np.ones(len(owner), bool), references)
    wrong = owner != truth
    assert (verdicts.is_mismatch == wrong).mean() > 0.97
    assert verdicts.noise_rate == pytest.approx(wrong.mean(), abs=0.04)
    assert ((verdicts.suggested >= 0) == verdicts.is_mismatch).all()
    hits = [truth[verdicts.suggested[t]] == owner[t] for t in np.flatnonzero(wrong & verdicts.is_mismatch)]
    lost = set(owner) - set(truth[owner != truth])
    assert np.mean(hits) > 0.9 * (1 - len(lost) / 300)


def test_held_out_pairs_are_judged_beside_their_null():
    gallery, truth, owner = planted()
    trained = np.arange(len(owner)) % 2 == 0
    verdicts = judge(gallery, owner, 0, trained, 64)
    assert (verdicts.is_mismatch == (owner != truth))[~trained].mean() > 0.95


def test_far_fewer_pairs_are_compared_than_there_are():
    gallery, _, owner = planted()
    judge(gallery, owner, 0, np.ones(len(owner), bool), 16, 8)
    assert all(matcher.compared == 16 * (300 + 600) for matcher in gallery.matchers)
