"""The best captions and images against plain loops, for matchers that factorise and for others."""

import math

import numpy as np
import pytest
from suggest_helpers import OWNER, evidence, information, make_gallery, make_token_gallery, scaled

from pairsift.suggest import candidates as module
from pairsift.suggest.candidates import best_captions, best_images, evidence_sums


@pytest.mark.parametrize("chunk", [3, 256])
def test_evidence_is_by_its_definition(monkeypatch, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    gallery = make_gallery(7, OWNER)
    sums = evidence_sums(gallery, OWNER, 0)
    s = scaled(gallery)
    expected = [evidence(s, OWNER, image, caption) for caption, image in enumerate(OWNER)]
    assert sums.evidence() == pytest.approx(expected, abs=1e-5)


def test_a_given_similarity_of_the_pairs_stands_for_that_of_their_codes(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 3)
    gallery, own = make_gallery(7, OWNER), np.linspace(-0.5, 0.8, 10)
    for caption, evidence_of_pair in enumerate(evidence_sums(gallery, OWNER, 0, own=own).evidence()):
        s = scaled(gallery)
        s[OWNER, np.arange(10)] = own * gallery.scale()
        assert evidence_of_pair == pytest.approx(evidence(s, OWNER, OWNER[caption], caption), abs=1e-5)


@pytest.mark.parametrize("chunk", [3, 256])
def test_an_image_far_from_everything_has_its_evidence_too(monkeypatch, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    gallery = make_gallery(7, OWNER, noise=0.01)
    for bank, matcher in zip(gallery.images, gallery.matchers, strict=True):
        bank.vectors[3] = -bank.vectors[:3].sum(0) / bank.vectors[:3].sum(0).norm()
        matcher.log_scale.data.fill_(math.log(100))
    for bank in gallery.texts:
        bank.vectors[:] = gallery.images[0].vectors[0] if bank is gallery.texts[0] else gallery.images[1].vectors[0]
    sums, s = evidence_sums(gallery, OWNER, 0), scaled(gallery)
    assert s.max() > 99 and s[3].max() < -20  # exp of the difference is 0 in float32
    expected = [evidence(s, OWNER, image, caption) for caption, image in enumerate(OWNER)]
    assert sums.evidence() == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("chunk", [3, 256])
def test_references_stand_for_a_collection_that_is_not_there(monkeypatch, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    gallery, references = make_gallery(7, OWNER), np.array([1, 2, 5, 8])
    sums, s = evidence_sums(gallery, OWNER, 0, references=references), scaled(gallery)
    for image in range(7):
        others = [math.exp(s[image, caption]) for caption in references if OWNER[caption] != image]
        assert sums.images[image] == pytest.approx(math.log(sum(others)), abs=1e-4)
    for caption, own in enumerate(OWNER):
        others = [math.exp(s[image, caption]) for image in (0, 1, 2, 6) if image != own]
        assert sums.captions[caption] == pytest.approx(math.log(sum(others)), abs=1e-4)
        of_pair = s[own, caption] - (sums.images[own] + sums.captions[caption]) / 2
        assert sums.evidence()[caption] == pytest.approx(of_pair, abs=1e-4)
    given = evidence_sums(gallery, OWNER, 0, own=np.full(10, 0.25), references=references)
    assert given.pairs == pytest.approx(0.25 * gallery.scale())


@pytest.mark.parametrize("chunk", [3, 256])
@pytest.mark.parametrize("k", [1, 4, 30])
def test_candidates_are_the_best_of_all(monkeypatch, chunk, k):
    monkeypatch.setattr(module, "CHUNK", chunk)
    gallery = make_gallery(7, OWNER)
    sums, s = evidence_sums(gallery, OWNER, 0), scaled(gallery)
    found, values = best_captions(gallery, OWNER, sums, np.array([0, 4, 6]), k, 32)
    for row, image in enumerate((0, 4, 6)):
        fits = sorted(((information(s, OWNER, image, t), t) for t in range(10) if OWNER[t] != image), reverse=True)[:k]
        assert [t for t in found[row] if t >= 0] == [t for _, t in fits]
        assert values[row][: len(fits)] == pytest.approx([value for value, _ in fits], abs=1e-4)
        assert (values[row][len(fits) :] == -np.inf).all() and (found[row][len(fits) :] == -1).all()
    found, values = best_images(gallery, OWNER, sums, np.array([9, 2]), k, 32)
    for row, caption in enumerate((9, 2)):
        fits = sorted(((information(s, OWNER, i, caption), i) for i in range(7) if OWNER[caption] != i), reverse=True)[
            :k
        ]
        assert [i for i in found[row] if i >= 0] == [i for _, i in fits]
        assert values[row][: len(fits)] == pytest.approx([value for value, _ in fits], abs=1e-4)


def sampled(gallery, images, captions):
    """Evidence of every caption with its image over these references by definition, one sum at a time."""
    s = gallery.block(np.arange(7)).astype(float) * gallery.scale()
    found = np.zeros(len(OWNER))
    for t, image in enumerate(OWNER):
        column = math.log(sum(math.exp(s[i, t]) for i in {*images.tolist(), image}))
        others = [math.exp(s[image, j]) for j in captions if OWNER[j] != image and j != t]
        found[t] = s[image, t] - (math.log(math.exp(s[image, t]) + sum(others)) + column) / 2
    return found


def test_references_are_for_inner_products_alone():
    gallery = make_token_gallery(7, OWNER)
    sums, found = (evidence_sums(gallery, OWNER, 0, references=some) for some in (None, np.array([1, 2, 5, 8])))
    assert np.array_equal(found.evidence(), sums.evidence()) and np.array_equal(found.captions, sums.captions)


@pytest.mark.parametrize("chunk", [2, 256])
def test_evidence_of_tokens_is_over_the_references(monkeypatch, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    gallery = make_token_gallery(7, OWNER)
    everything = np.arange(7), np.arange(10)
    some, one = (np.array([1, 2, 6]), np.array([0, 4, 7, 8])), (np.array([4]), np.array([2]))
    for images, captions in (some, one, everything):
        found = module._sampled_sums(gallery, OWNER, images, captions).evidence()
        assert np.allclose(found, sampled(gallery, images, captions), atol=1e-5)


def test_a_shortlist_of_everything_gives_the_best_of_all():
    gallery = make_token_gallery(7, OWNER)
    sums = module._sampled_sums(gallery, OWNER, np.array([0, 3]), np.array([2, 5]))
    fit = gallery.block(np.arange(7)) * gallery.scale() - sums.captions - sums.images[:, None]
    fit[OWNER, np.arange(10)] = -np.inf
    found, values = best_captions(gallery, OWNER, sums, np.arange(7), 3, 50)
    assert np.array_equal(found, np.argsort(-fit, 1)[:, :3])
    assert np.allclose(values, np.take_along_axis(fit, found, 1), atol=1e-4)
    found, values = best_images(gallery, OWNER, sums, np.arange(10), 3, 50)
    assert np.array_equal(found, np.argsort(-fit.T, 1)[:, :3])
    assert np.allclose(values, np.take_along_axis(fit.T, found, 1), atol=1e-4)


@pytest.mark.parametrize("make", [make_gallery, make_token_gallery])
def test_an_image_with_all_captions_has_no_candidate(make):
    owner = np.zeros(4, np.int64)
    gallery = make(1, owner)
    sums = evidence_sums(gallery, owner, 0)
    assert (best_captions(gallery, owner, sums, np.zeros(1, np.int64), 2, 3)[0] == -1).all()
    assert (best_images(gallery, owner, sums, np.arange(4), 2, 3)[0] == -1).all()
