"""Scores and suggestions against plain loops, and on planted mismatches."""

import math

import numpy as np
import pytest
import torch

from pairsift.audit import score as module
from pairsift.audit.score import judge
from pairsift.match import TwoTower
from pairsift.match.base import Codes, unit
from pairsift.retrieve.bank import Bank
from pairsift.retrieve.codes import Gallery


def make_gallery(n_images: int, owner: np.ndarray, noise: float | np.ndarray = 0.8, dim: int = 24, seed: int = 0):
    """Two networks' codes; captions of an image lie near it. Returns the gallery."""
    rng = np.random.default_rng(seed)
    matchers = [TwoTower(4, 4, dim=dim, hidden=4, temperature=0.1) for _ in range(2)]
    images, texts = [], []
    for _ in matchers:
        base = rng.normal(size=(n_images, dim))
        images.append(Bank.of(Codes(unit(torch.tensor(base, dtype=torch.float32)))))
        near = base[owner] + noise * rng.normal(size=(len(owner), dim))
        texts.append(Bank.of(Codes(unit(torch.tensor(near, dtype=torch.float32)))))
    return Gallery(matchers, images, texts)


def test_evidence_is_infonce_over_the_gallery(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 3)
    owner = np.array([0, 0, 1, 2, 2, 2, 3, 5, 6, 6])  # image 4 has no caption
    gallery = make_gallery(7, owner)
    stray = np.array([3, 0, 2, 5, 6, 1, 1, 4, 0, 2])
    sums, _ = module._whole(gallery, np.stack([owner, stray]))
    given, chance = sums.evidence()
    s = gallery.block(np.arange(7)).astype(float) * gallery.scale()
    for t in range(len(owner)):
        column = math.log(sum(math.exp(s[i, t]) for i in range(7)))
        assert sums.columns[:, t] == pytest.approx(column, abs=1e-5)
        for image, found in ((owner[t], given[t]), (stray[t], chance[t])):
            others = [math.exp(s[image, j]) for j in range(len(owner)) if owner[j] != image and j != t]
            row = math.log(math.exp(s[image, t]) + sum(others))
            assert found == pytest.approx(s[image, t] - (row + column) / 2, abs=1e-5)


def test_suggestions_are_the_best_captions_of_other_images(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 3)
    owner = np.array([0, 0, 1, 2, 2, 2, 3, 5, 6, 6])
    gallery = make_gallery(7, owner)
    sums, best = module._whole(gallery, np.stack([owner, owner]))
    s = gallery.block(np.arange(7)).astype(float) * gallery.scale()
    for image in range(7):
        fits = [(s[image, t] - sums.columns[0, t], t) for t in range(len(owner)) if owner[t] != image]
        assert best[image] == max(fits)[1]
    sums = module._sampled(gallery, np.stack([owner, owner]), np.arange(7), np.arange(10))
    assert np.array_equal(
        module._suggest(gallery, owner, sums, np.arange(7), 32), best
    )  # every caption is short-listed


def planted(n_images: int = 400, wrong: float = 0.3, seed: int = 1):
    truth = np.repeat(np.arange(n_images), 2)
    gallery = make_gallery(n_images, truth, seed=seed)
    rng = np.random.default_rng(seed)
    moved = rng.permutation(len(truth))[: int(wrong * len(truth))]
    owner = truth.copy()
    owner[moved] = rng.permutation(truth[moved])
    return gallery, truth, owner


def test_planted_mismatches_are_found_and_their_captions_suggested():
    gallery, truth, owner = planted()
    verdicts = judge(gallery, owner, 0, np.ones(len(owner), bool))
    wrong = owner != truth
    assert (verdicts.is_mismatch == wrong).mean() > 0.98
    assert verdicts.noise_rate == pytest.approx(wrong.mean(), abs=0.03)
    assert ((verdicts.suggested >= 0) == verdicts.is_mismatch).all()
    hits = [truth[verdicts.suggested[t]] == owner[t] for t in np.flatnonzero(wrong & verdicts.is_mismatch)]
    lost = set(owner) - set(truth[owner != truth])
    assert np.mean(hits) > 0.9 * (1 - len(lost) / 400)
    assert ((verdicts.score >= 0) & (verdicts.score <= 1)).all()


def test_clean_pairs_that_were_not_trained_on_are_not_cut_in_two():
    gallery, truth, owner = planted()
    trained = np.arange(len(owner)) % 4 != 0
    owner[~trained] = truth[~trained]
    verdicts = judge(gallery, owner, 0, trained)
    assert verdicts.is_mismatch[~trained].mean() < 0.02
    assert (verdicts.is_mismatch[trained] == (owner != truth)[trained]).mean() > 0.97


@pytest.mark.parametrize("noise", [0.8, 1.5])  # captions far from their images have lopsided evidence
def test_clean_pairs_that_were_trained_on_are_not_cut_in_two(noise):
    truth = np.repeat(np.arange(400), 2)
    verdicts = judge(make_gallery(400, truth, noise), truth, 0, np.ones(len(truth), bool))
    assert verdicts.noise_rate < 0.05
    assert verdicts.is_mismatch.mean() < 0.03


def test_groups_that_overlap_are_two_where_the_lower_one_is_like_random_pairs():
    truth = np.repeat(np.arange(400), 2)
    owner = np.where(np.random.default_rng(1).random(len(truth)) < 0.8, np.roll(truth, 2), truth)
    gallery = make_gallery(400, truth, noise=3)
    verdicts = judge(gallery, owner, 0, np.ones(len(owner), bool))
    assert verdicts.noise_rate == pytest.approx((owner != truth).mean(), abs=0.2)
    assert np.mean(verdicts.is_mismatch == (owner != truth)) > 0.75


@pytest.mark.parametrize(("unseen", "rate"), [(0.6, 0.0), (4.0, 0.4)])
def test_pairs_known_by_heart_are_not_taken_for_clean(unseen, rate):
    truth = np.repeat(np.arange(400), 2)
    trained = np.arange(len(truth)) % 4 != 0
    wrong = trained & (np.random.default_rng(2).random(len(truth)) < 0.4)
    owner = np.where(wrong, np.roll(truth, 2), truth)
    # the networks put every trained caption near the image it is given with, and the others less near to theirs
    gallery = make_gallery(400, owner, np.where(wrong, 1.6, np.where(trained, 0.5, unseen))[:, None])
    assert 1 - judge(gallery, owner, 0, trained).score[trained].mean() == pytest.approx(rate, abs=0.1)


def test_a_few_mismatches_among_many_pairs_are_found():
    gallery, truth, owner = planted(wrong=0.03)
    verdicts = judge(gallery, owner, 0, np.ones(len(owner), bool))
    assert verdicts.is_mismatch[owner != truth].mean() > 0.9
    assert verdicts.is_mismatch[owner == truth].mean() < 0.02


def test_mismatches_among_pairs_that_were_not_trained_on_are_found():
    gallery, truth, owner = planted()
    trained = np.arange(len(owner)) % 2 == 0
    verdicts = judge(gallery, owner, 0, trained)
    assert (verdicts.is_mismatch == (owner != truth))[~trained].mean() > 0.97


def test_the_order_of_images_and_captions_does_not_matter():
    gallery, _, owner = planted(100)
    trained = np.ones(len(owner), bool)
    before = judge(gallery, owner, 0, trained)
    rng = np.random.default_rng(4)
    images, texts = rng.permutation(100), rng.permutation(len(owner))
    moved = Gallery(
        gallery.matchers, [Bank.of(c.at(images)) for c in gallery.images], [Bank.of(c.at(texts)) for c in gallery.texts]
    )
    after = judge(moved, np.argsort(images)[owner[texts]], 0, trained)
    assert np.allclose(after.score, before.score[texts], atol=1e-5)
    same = np.where(before.suggested[texts] >= 0, np.argsort(texts)[before.suggested[texts]], -1)
    assert (after.suggested == same).mean() > 0.99
