"""Suggested captions and images on planted mismatches."""

import numpy as np
import pytest
import torch
from suggest_helpers import OWNER, evidence, make_gallery, make_token_gallery, planted, scaled, suggested

from pairsift.detect.options import SiblingOptions
from pairsift.match.base import Codes, unit
from pairsift.retrieve.bank import Bank
from pairsift.retrieve.gallery import Gallery
from pairsift.suggest import suggest
from pairsift.suggest.candidates import SAMPLE

WEIGHT = SiblingOptions.weight


@pytest.mark.parametrize(
    ("make", "sample"),
    [(make_gallery, SAMPLE), *((make_token_gallery, size) for size in (32, 128, 10**6))],
)
def test_flagged_pairs_get_the_captions_of_their_images_and_the_images_of_their_captions(make, sample):
    gallery, truth, owner = planted(make)
    wrong = owner != truth
    found = suggested(gallery, owner, wrong, ~wrong, sample=sample)
    assert found.pairs.tolist() == np.flatnonzero(wrong).tolist()
    image = owner[found.pairs][:, None]
    assert (owner[found.captions] != image)[found.captions >= 0].all()
    there = np.array([((truth == row) & (owner != row)).any() for row in owner[found.pairs]])
    assert np.mean(truth[found.captions[there, 0]] == image[there, 0]) > 0.85
    assert np.mean(found.images[:, 0] == truth[found.pairs]) > 0.8
    right = (truth[found.captions] == image) & (found.captions >= 0)
    sure = found.caption_probability > 0.8
    assert right[sure].mean() > 0.85 and sure.any(1).mean() > 0.3
    assert (np.diff(found.caption_probability, axis=1) <= 1e-12).all()
    assert (np.diff(found.image_probability, axis=1) <= 1e-12).all()
    assert (found.caption_probability.sum(1) <= 1 + 1e-9).all()


def test_captions_of_other_images_are_no_certain_partners():
    gallery, truth, owner = planted(make_gallery)
    kept = np.flatnonzero(owner == truth)  # no caption of another image is here
    flagged = np.zeros(len(kept), bool)
    flagged[::5] = True
    part = Gallery(gallery.matchers, gallery.images, [Bank.from_codes(c.select(kept)) for c in gallery.texts])
    found = suggested(part, owner[kept], flagged, ~flagged)
    assert (found.caption_probability.sum(1) > 0.5).mean() < 0.1


def test_what_is_said_of_an_image_helps_to_find_its_captions_and_it_for_them():
    rng = np.random.default_rng(2)
    truth = np.repeat(np.arange(300), 4)
    topics = rng.normal(size=(300, 24))
    gallery = make_gallery(300, truth)
    captions = topics[truth] + 1.2 * rng.normal(size=(1200, 24))
    images = topics + 2.5 * rng.normal(size=(300, 24))
    sides = [Bank.from_codes(Codes(unit(torch.tensor(side, dtype=torch.float32)))) for side in (images, captions)]
    gallery = Gallery(gallery.matchers[:1], sides[:1], sides[1:])
    owner, moved = truth.copy(), rng.permutation(1200)[:300]
    owner[moved] = rng.permutation(truth[moved])
    wrong, hits = owner != truth, []
    for weight in (WEIGHT, 0.0):
        found = suggested(gallery, owner, wrong, ~wrong, caption_weight=weight)
        right = [truth[found.captions[:, 0]] == owner[found.pairs], found.images[:, 0] == truth[found.pairs]]
        stated = [found.caption_probability[:, 0].mean(), found.image_probability[:, 0].mean()]
        hits.append(np.mean(right, axis=1))
        assert np.abs(hits[-1] - stated).max() < 0.2
    assert (hits[0] > hits[1] + 0.15).all()


def test_a_pair_s_own_caption_does_not_look_for_itself():
    gallery, truth, owner = planted(make_gallery, 60)
    flagged = owner != truth
    believed, requested = ~flagged, flagged.copy()
    doubted = np.flatnonzero(believed)[:20]
    requested[doubted] = True
    found = []
    for probability in (0.51, 0.89):  # of pairs that are believed a little, and need suggestions
        known = np.where(flagged, 0.02, 0.98)
        known[doubted] = probability
        pairs = suggest.GalleryPairs(owner, np.arange(len(owner)), known, believed)
        found.append(suggest._with_captions(gallery, pairs, requested, WEIGHT)[0].images[0].vectors)
        assert (suggest._with_captions(gallery, pairs, flagged, WEIGHT)[0].images[0].vectors != found[-1]).any()
    assert (found[0] == found[1]).all()


def test_texts_differ_from_each_other_and_from_the_given_one():
    gallery, truth, owner = planted(make_gallery)
    text = np.arange(len(owner)) // 4  # four captions have the same text
    found = suggested(gallery, owner, owner != truth, owner == truth, text=text)
    for pair, captions in zip(found.pairs, found.captions, strict=True):
        texts = [text[caption] for caption in captions if caption >= 0]
        assert len(set(texts)) == len(texts) == 5 and text[pair] not in texts


def test_the_first_suggestion_fits_if_it_reaches_the_lowest_tenth_of_the_believed_pairs():
    lost = np.repeat(np.arange(60), 2) >= 40  # captions that lie anywhere: of these images no caption tells
    gallery, truth, owner = planted(make_gallery, 60, noise=np.where(lost, 50.0, 0.8)[:, None])
    wrong = owner != truth
    believed = ~wrong & ~lost & (np.arange(len(owner)) % 2 == 0)
    found, s = suggested(gallery, owner, wrong, believed, caption_weight=0.0), scaled(gallery)
    least = np.quantile([evidence(s, owner, owner[t], t) for t in np.flatnonzero(believed)], 0.1)
    values = [evidence(s, owner, owner[pair], t) for pair, t in zip(found.pairs, found.captions[:, 0], strict=True)]
    assert found.fits.tolist() == [value >= least for value in values]
    assert 0 < found.fits.sum() < len(found.fits)


@pytest.mark.parametrize("make", [make_gallery, make_token_gallery])
def test_nothing_fits_where_no_caption_tells_of_the_image(make):
    owner = np.concatenate([np.repeat(np.arange(80), 2), np.arange(80, 100)])
    lonely = owner >= 80  # their captions lie anywhere, and no other caption is of their images
    noise = np.where(lonely, 50.0, 0.5)[:, None] if make is make_gallery else np.where(lonely, 50.0, 0.5)[:, None, None]
    found = suggested(make(100, owner, noise), owner, lonely, ~lonely)
    assert found.fits.mean() < 0.2
    assert suggested(make(100, owner, noise), owner, lonely, lonely).fits.any()  # beside such pairs something does


def test_nothing_is_suggested_without_flagged_or_believed_pairs():
    gallery, truth, owner = planted(make_gallery, 40)
    wrong, none = owner != truth, np.zeros(len(owner), bool)
    assert len(suggested(gallery, owner, none, ~wrong).pairs) == 0
    found = suggested(gallery, owner, wrong, none)
    assert (found.captions == -1).all() and (found.images == -1).all() and not found.fits.any()


def test_an_image_that_all_captions_are_given_with_has_no_suggestion():
    owner = np.zeros(4, np.int64)
    flagged = np.array([True, False, False, True])
    found = suggested(make_gallery(1, owner), owner, flagged, ~flagged)
    assert (found.captions == -1).all() and (found.images == -1).all() and not found.fits.any()
    assert len(suggested(make_gallery(7, OWNER), OWNER, OWNER == 5, OWNER != 5).pairs) == 1


def test_the_order_of_images_and_captions_does_not_matter():
    gallery, truth, owner = planted(make_gallery, 100)
    wrong = owner != truth
    before = suggested(gallery, owner, wrong, ~wrong)
    rng = np.random.default_rng(4)
    images, texts = rng.permutation(100), rng.permutation(len(owner))
    moved = Gallery(
        gallery.matchers,
        [Bank.from_codes(c.select(images)) for c in gallery.images],
        [Bank.from_codes(c.select(texts)) for c in gallery.texts],
    )
    after = suggested(moved, np.argsort(images)[owner[texts]], wrong[texts], ~wrong[texts])
    order = np.argsort(texts[after.pairs])
    assert texts[after.pairs][order].tolist() == before.pairs.tolist()
    assert (texts[after.captions[order]] == before.captions).mean() > 0.99
    assert (images[after.images[order]] == before.images).mean() > 0.99
    assert np.allclose(after.caption_probability[order], before.caption_probability, atol=1e-3)


def test_far_fewer_pairs_are_compared_than_there_are():
    gallery, truth, owner = planted(make_token_gallery, 300)
    suggested(gallery, owner, owner != truth, owner == truth, sample=16, shortlist=8)
    assert all(matcher.compared == 16 * (300 + 600) for matcher in gallery.matchers)


def test_an_image_that_lacks_its_caption_comes_before_one_that_has_it():
    gallery, truth, owner = planted(make_gallery, noise=2.5)
    wrong = owner != truth
    found = suggested(gallery, owner, wrong, ~wrong)
    lacks = np.bincount(owner, wrong, len(gallery.images[0])) > 0
    first = found.images[:, 0]
    assert lacks[first].mean() > 0.9 > lacks.mean()
