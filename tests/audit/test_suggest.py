"""Suggested captions against plain loops, and on planted mismatches."""

import math

import numpy as np
import pytest
import torch

from pairsift.audit import suggest as module
from pairsift.audit.suggest import suggest
from pairsift.match.base import Codes, unit
from pairsift.match.two_tower import TwoTower, TwoTowerOptions
from pairsift.retrieve.bank import Bank
from pairsift.retrieve.codes import Gallery

OWNER = np.array([0, 0, 1, 2, 2, 2, 3, 5, 6, 6])  # image 4 has no caption


def make_gallery(n_images: int, owner: np.ndarray, noise: float | np.ndarray = 0.8, dim: int = 24, seed: int = 0):
    """Two networks' codes; captions of an image lie near it. Returns the gallery."""
    rng = np.random.default_rng(seed)
    matchers = [TwoTower(4, 4, TwoTowerOptions(dim=dim, hidden=4, temperature=0.1)) for _ in range(2)]
    images, texts = [], []
    for _ in matchers:
        base = rng.normal(size=(n_images, dim))
        images.append(Bank.from_codes(Codes(unit(torch.tensor(base, dtype=torch.float32)))))
        near = base[owner] + noise * rng.normal(size=(len(owner), dim))
        texts.append(Bank.from_codes(Codes(unit(torch.tensor(near, dtype=torch.float32)))))
    return Gallery(matchers, images, texts)


def scaled(gallery: Gallery) -> np.ndarray:
    """s/tau of every image with every caption."""
    return gallery.block(np.arange(len(gallery.images[0]))).astype(float) * gallery.scale()


def evidence(s: np.ndarray, owner: np.ndarray, image: int, caption: int) -> float:
    """Of an image with a caption, by its definition; captions given with the image are not among the others."""
    others = [math.exp(s[image, j]) for j in range(s.shape[1]) if owner[j] != image and j != caption]
    row = math.log(math.exp(s[image, caption]) + sum(others))
    column = math.log(sum(math.exp(s[i, caption]) for i in range(s.shape[0])))
    return s[image, caption] - (row + column) / 2


def test_evidence_is_infonce_over_the_gallery(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 3)
    gallery = make_gallery(7, OWNER)
    sums, _ = module._all_sums(gallery, OWNER)
    s = scaled(gallery)
    expected = [evidence(s, OWNER, image, caption) for caption, image in enumerate(OWNER)]
    assert sums.evidence() == pytest.approx(expected, abs=1e-5)
    assert sums.columns == pytest.approx(np.log(np.exp(s).sum(0)), abs=1e-5)
    for image in range(7):
        others = sum(math.exp(s[image, j]) for j in range(len(OWNER)) if OWNER[j] != image)
        assert sums.without_caption[image] == pytest.approx(math.log(others), abs=1e-5)


def test_candidates_are_the_best_captions_of_other_images(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 3)
    gallery = make_gallery(7, OWNER)
    sums, best = module._all_sums(gallery, OWNER)
    s = scaled(gallery)
    for image in range(7):
        fits = [(s[image, t] - sums.columns[t], t) for t in range(len(OWNER)) if OWNER[t] != image]
        assert best[image] == max(fits)[1]
    sums = module._sampled_sums(gallery, OWNER, np.arange(7), np.arange(10))
    assert np.array_equal(
        module._best_captions(gallery, OWNER, sums, np.arange(7), 32), best
    )  # every caption is short-listed


def planted(n_images: int = 400, wrong: float = 0.3, seed: int = 1, noise: float | np.ndarray = 0.8):
    truth = np.repeat(np.arange(n_images), 2)
    gallery = make_gallery(n_images, truth, noise, seed=seed)
    rng = np.random.default_rng(seed)
    moved = rng.permutation(len(truth))[: int(wrong * len(truth))]
    owner = truth.copy()
    owner[moved] = rng.permutation(truth[moved])
    return gallery, truth, owner


def test_flagged_pairs_alone_are_given_the_captions_of_their_images():
    gallery, truth, owner = planted()
    wrong = owner != truth
    found = suggest(gallery, owner, wrong, ~wrong, 0)
    assert (found[~wrong] == -1).all()
    given = np.flatnonzero(found >= 0)
    assert (owner[found[given]] != owner[given]).all()
    there = np.array([((truth == image) & (owner != image)).any() for image in owner])  # an own caption lies elsewhere
    assert np.mean(truth[found[wrong & there]] == owner[wrong & there]) > 0.85
    assert np.mean(truth[found[given]] == owner[given]) > 0.95


def test_a_suggestion_reaches_the_lowest_tenth_of_the_believed_pairs():
    lost = np.repeat(np.arange(60), 2) >= 40  # captions that lie anywhere: of these images no caption tells
    gallery, truth, owner = planted(60, noise=np.where(lost, 50.0, 0.8)[:, None])
    wrong = owner != truth
    believed = ~wrong & ~lost & (np.arange(len(owner)) % 2 == 0)
    found, s = suggest(gallery, owner, wrong, believed, 0), scaled(gallery)
    least = np.quantile([evidence(s, owner, owner[t], t) for t in np.flatnonzero(believed)], 0.1)
    columns = np.log(np.exp(s).sum(0))
    withheld = 0
    for pair in np.flatnonzero(wrong):
        image = owner[pair]
        best = max((s[image, t] - columns[t], t) for t in range(len(owner)) if owner[t] != image)[1]
        fits = evidence(s, owner, image, best) >= least
        assert found[pair] == (best if fits else -1)
        withheld += not fits
    assert 0 < withheld < wrong.sum()


def test_nothing_is_suggested_where_nothing_fits():
    owner = np.concatenate([np.repeat(np.arange(80), 2), np.arange(80, 100)])
    lonely = owner >= 80  # their captions lie anywhere, and no other caption is of their images
    gallery = make_gallery(100, owner, np.where(lonely, 50.0, 0.8)[:, None])
    assert (suggest(gallery, owner, lonely, ~lonely, 0) == -1).all()
    assert (suggest(gallery, owner, lonely, lonely, 0)[lonely] >= 0).any()  # beside such pairs something does


def test_nothing_is_suggested_without_flagged_or_believed_pairs():
    gallery, truth, owner = planted(40)
    wrong, none = owner != truth, np.zeros(len(owner), bool)
    assert (suggest(gallery, owner, none, ~wrong, 0) == -1).all()
    assert (suggest(gallery, owner, wrong, none, 0) == -1).all()


def test_an_image_that_all_captions_are_given_with_has_no_suggestion():
    owner = np.zeros(4, np.int64)
    gallery = make_gallery(1, owner)
    flagged = np.array([True, False, False, True])
    assert (suggest(gallery, owner, flagged, ~flagged, 0) == -1).all()


def test_the_order_of_images_and_captions_does_not_matter():
    gallery, truth, owner = planted(100)
    wrong = owner != truth
    before = suggest(gallery, owner, wrong, ~wrong, 0)
    rng = np.random.default_rng(4)
    images, texts = rng.permutation(100), rng.permutation(len(owner))
    moved = Gallery(
        gallery.matchers,
        [Bank.from_codes(c.select(images)) for c in gallery.images],
        [Bank.from_codes(c.select(texts)) for c in gallery.texts],
    )
    after = suggest(moved, np.argsort(images)[owner[texts]], wrong[texts], ~wrong[texts], 0)
    same = np.where(before[texts] >= 0, np.argsort(texts)[before[texts]], -1)
    assert (after >= 0).sum() > 20 and (after == same).mean() > 0.99
