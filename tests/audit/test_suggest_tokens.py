"""Suggestions by matchers that do not factorise, against plain loops and on planted mismatches."""

import math

import numpy as np
import pytest
import torch

from pairsift.audit import suggest as module
from pairsift.audit.suggest import suggest
from pairsift.match.base import Codes, unit
from pairsift.retrieve.bank import Bank
from pairsift.retrieve.codes import Gallery
from token_helpers import make_matchers


def codes(tokens):
    tokens = torch.tensor(tokens, dtype=torch.float32)
    return Bank.from_codes(Codes(unit(tokens.sum(1)), unit(tokens)))


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


def expected(gallery, images, captions):
    """Evidence of every caption with its image by definition, one sum at a time."""
    s = gallery.block(np.arange(7)).astype(float) * gallery.scale()
    found = np.zeros(len(OWNER))
    for t, image in enumerate(OWNER):
        column = math.log(sum(math.exp(s[i, t]) for i in {*images.tolist(), image}))
        others = [math.exp(s[image, j]) for j in captions if OWNER[j] != image and j != t]
        row = math.log(math.exp(s[image, t]) + sum(others))
        found[t] = s[image, t] - (row + column) / 2
    return found


@pytest.mark.parametrize("chunk", [2, 256])
def test_evidence_is_infonce_over_the_references(monkeypatch, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    gallery = make_gallery(7, OWNER)
    everything = np.arange(7), np.arange(10)
    some, one = (np.array([1, 2, 6]), np.array([0, 4, 7, 8])), (np.array([4]), np.array([2]))
    for images, captions in (some, one, everything):
        found = module._sampled_sums(gallery, OWNER, images, captions).evidence()
        assert np.allclose(found, expected(gallery, images, captions), atol=1e-5)


def test_a_shortlist_of_everything_gives_the_best_captions_of_other_images():
    gallery = make_gallery(7, OWNER)
    sums = module._sampled_sums(gallery, OWNER, np.array([0, 3]), np.array([2, 5]))
    best = module._best_captions(gallery, OWNER, sums, np.arange(7), 50)
    fit = gallery.block(np.arange(7)) * gallery.scale() - sums.columns
    fit[OWNER, np.arange(10)] = -np.inf
    assert best.tolist() == fit.argmax(1).tolist()
    mine = np.zeros(3, np.int64)  # all captions belong to the only image
    alone = make_gallery(1, mine)
    sums = module._sampled_sums(alone, mine, np.arange(1), np.arange(3))
    assert module._best_captions(alone, mine, sums, np.arange(1), 2).tolist() == [-1]
    flagged = np.array([True, False, False])
    assert suggest(alone, mine, flagged, ~flagged, 0).tolist() == [-1] * 3


def planted(n_images=300, wrong=0.3, seed=1):
    truth = np.repeat(np.arange(n_images), 2)
    gallery = make_gallery(n_images, truth, seed=seed)
    rng = np.random.default_rng(seed)
    moved = rng.permutation(len(truth))[: int(wrong * len(truth))]
    owner = truth.copy()
    owner[moved] = rng.permutation(truth[moved])
    return gallery, truth, owner


@pytest.mark.parametrize("references", [32, 128, 10**6])
def test_flagged_pairs_alone_are_given_the_captions_of_their_images(references):
    gallery, truth, owner = planted()
    wrong = owner != truth
    found = suggest(gallery, owner, wrong, ~wrong, 0, (references, 32))
    assert (found[~wrong] == -1).all()
    given = np.flatnonzero(found >= 0)
    assert (owner[found[given]] != owner[given]).all()
    there = np.array([((truth == image) & (owner != image)).any() for image in owner])  # an own caption lies elsewhere
    assert np.mean(truth[found[wrong & there]] == owner[wrong & there]) > 0.8
    assert np.mean(truth[found[given]] == owner[given]) > 0.9


def test_nothing_is_suggested_where_nothing_fits():
    owner = np.concatenate([np.repeat(np.arange(60), 2), np.arange(60, 80)])
    lonely = owner >= 60  # their captions lie anywhere, and no other caption is of their images
    gallery = make_gallery(80, owner, np.where(lonely, 50.0, 0.5)[:, None, None])
    assert (suggest(gallery, owner, lonely, ~lonely, 0, (32, 16)) == -1).mean() > 0.99


def test_far_fewer_pairs_are_compared_than_there_are():
    gallery, truth, owner = planted()
    suggest(gallery, owner, owner != truth, owner == truth, 0, (16, 8))
    assert all(matcher.compared == 16 * (300 + 600) for matcher in gallery.matchers)
