"""Ridge canonical correlation without the judged fold, against numpy."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from detect_helpers import OPTIONS, OWN_REFERENCES, naive_evidence, permuted, small, unit

from pairsift.detect import linear as linear_module
from pairsift.detect.folds import Folds, make_folds
from pairsift.detect.linear import StackedKinds, _moments, canonical, fit_canonicals, linear_evidence, principal


def inverse_root(covariance, ridge):
    values, vectors = np.linalg.eigh(covariance)
    return vectors @ np.diag((values + ridge * values.max()) ** -0.5) @ vectors.T


def naive_codes(folds, images, captions, fold, directions=128, trust=None):
    """Codes of a fold's pairs by the covariances that numpy finds over the other folds."""
    own = folds.fold == fold
    x, y = images.astype(float), captions.astype(float)
    d = x.shape[1]
    weight = np.ones(len(folds)) if trust is None else trust[fold]
    whole = np.cov(x[~own], y[~own], rowvar=False, bias=True, aweights=weight[~own])
    ridge = 0.1 * min(1.0, (2000 / weight[~own].sum()) ** 0.5)
    left, right = inverse_root(whole[:d, :d], ridge), inverse_root(whole[d:, d:], ridge)
    u, s, v = np.linalg.svd(left @ whole[:d, d:] @ right)
    k = min(directions, len(s))
    means = (np.average(side[~own], axis=0, weights=weight[~own]) for side in (x, y))
    return (
        unit((x[own] - next(means)) @ left @ u[:, :k] * s[:k]),
        unit((y[own] - next(means)) @ right @ v[:k].T * s[:k]),
    )


@pytest.mark.parametrize(
    ("directions", "told"), [(128, 0), (2, 0), (128, 1), (128, 800)]
)  # weights up to 800 stand for many pairs
def test_codes_match_numpy_on_the_other_folds(directions, told):
    options = replace(OPTIONS.linear, directions=directions)
    folds, images, captions = small(30, 2, 3)
    trust = told * np.random.default_rng(3).random((3, len(folds))) if told else None
    codes = fit_canonicals(folds, images, captions, options, trust).encoder(images, captions)
    for fold, members in enumerate(folds.members()):
        left, right = (side.numpy() for side in codes(fold, members))
        expected = naive_codes(folds, images, captions, fold, directions, trust)
        for got, wanted in ((left, expected[0]), (right, expected[1])):
            assert got @ got.T == pytest.approx(wanted @ wanted.T, abs=1e-4)  # signs of directions are free
        assert left @ right.T == pytest.approx(expected[0] @ expected[1].T, abs=1e-4)


@pytest.mark.parametrize("length", [7, 330])  # vectors of more than 320 values are reduced first
def test_maps_of_all_pairs_take_whole_vectors(length):
    rng = np.random.default_rng(5)
    hidden = rng.normal(size=(60, 3))
    images = (hidden @ rng.normal(size=(3, length)) + 0.3 * rng.normal(size=(60, length)) + 2).astype(np.float32)
    captions = (hidden @ rng.normal(size=(3, 5)) + 0.3 * rng.normal(size=(60, 5)) - 1).astype(np.float32)
    trust = rng.random(60)
    model = canonical(images, captions, trust, OPTIONS.linear)
    x, y = (side - side.mean(0) for side in (images.astype(float), captions.astype(float)))
    x = x @ np.linalg.svd(x, full_matrices=False)[2].T  # of 60 images all directions are kept
    twice = Folds(*[np.arange(120)] * 2, np.repeat([0, 1], 60), *[np.zeros(0, np.int64)] * 2)  # fold 1 judges fold 0
    expected = naive_codes(twice, *(np.tile(side, (2, 1)) for side in (x, y)), 0, trust=np.tile(trust, (2, 2)))
    left, right = (f(torch.from_numpy(side)) for f, side in ((model.images, images), (model.captions, captions)))
    assert (left @ right.T).numpy() == pytest.approx(expected[0] @ expected[1].T, abs=1e-4)


def test_evidence_is_the_contrast_of_those_codes():
    folds, images, captions = small(20, 2, 2)
    few = slice(0, 200)
    folds = type(folds)(folds.image_of, folds.group_of, folds.fold, folds.decoy_images[few], folds.decoy_captions[few])
    whole = [np.zeros((len(folds), 5)), np.zeros((len(folds), 5))]
    for fold in range(2):
        for side, part in zip(whole, naive_codes(folds, images, captions, fold), strict=True):
            side[folds.fold == fold] = part
    pairs, decoys = naive_evidence(folds, whole)
    evidence = linear_evidence(folds, images, captions, 0, OWN_REFERENCES)
    assert evidence.pairs == pytest.approx(pairs, abs=1e-4)
    assert evidence.decoys == pytest.approx(decoys, abs=1e-4)


def test_links_of_a_fold_do_not_reach_the_model_that_judges_it():
    folds, images, captions = small(60, 1, 4)
    codes = fit_canonicals(folds, images, captions, OPTIONS.linear).encoder(images, captions)
    for fold, members in enumerate(folds.members()):
        exchanged = captions.copy()
        exchanged[members] = captions[np.roll(members, 1)]
        again = fit_canonicals(folds, images, exchanged, OPTIONS.linear).encoder(images, exchanged)
        (left, right), (same, moved) = codes(fold, members), again(fold, members)
        assert torch.equal(left, same) and torch.equal(right, moved.roll(-1, 0))
        other = (fold + 1) % 4
        others = folds.members()[other]
        assert not torch.equal(codes(other, others)[0], again(other, others)[0])


def test_order_and_scale_do_not_matter():
    folds, images, captions = small(40, 2, 3)
    evidence, order = (
        linear_evidence(folds, images, captions, 0, OWN_REFERENCES),
        np.random.default_rng(2).permutation(len(folds)),
    )
    again = linear_evidence(permuted(folds, order), 3 * images[order] + 1, captions[order] / 5 - 2, 0, OWN_REFERENCES)
    assert again.pairs == pytest.approx(evidence.pairs[order], abs=1e-3)
    assert again.decoys == pytest.approx(evidence.decoys, abs=1e-3)


def test_one_fold_says_nothing():
    folds, images, captions = small(8, 1, 2)
    folds = type(folds)(folds.image_of, folds.group_of, 0 * folds.fold, folds.decoy_images, folds.decoy_captions)
    evidence = linear_evidence(folds, images, captions, 0, OWN_REFERENCES)
    assert (evidence.pairs == 0).all() and (evidence.decoys == 0).all()


def test_moments_are_summed_by_blocks():
    rng = np.random.default_rng(4)
    x, y, weight = (torch.from_numpy(rng.normal(size=shape)) for shape in ((20, 3), (20, 2), 20))
    whole, parts = (_moments(x, y, weight, torch.arange(3, 20), block) for block in (64, 7))
    for one, other in zip(whole, parts, strict=True):
        assert other.numpy() == pytest.approx(one.numpy())


def width(most):
    return replace(OPTIONS.linear, max_width=most)


def test_principal_components_keep_the_largest_directions():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(200, 12)) * np.linspace(5, 0.1, 12) @ np.linalg.qr(rng.normal(size=(12, 12)))[0]) + 4
    x = x.astype(np.float32)
    whole = principal(x, width(12))
    assert whole == pytest.approx(x - x.mean(0), abs=1e-5)
    kept = principal(x, width(4))
    u, s, _ = np.linalg.svd(x.astype(float) - x.astype(float).mean(0), full_matrices=False)
    assert kept.shape == (200, 4) and kept.dtype == np.float32
    assert np.abs(kept) == pytest.approx(np.abs(u[:, :4] * s[:4]), abs=1e-3)


def test_joined_rows_are_those_of_both_kinds_side_by_side(monkeypatch):
    monkeypatch.setattr(linear_module, "ROWS", 7)
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(50, 9)).astype(np.float32), rng.normal(size=(50, 4)).astype(np.float32)
    joined = StackedKinds(left, right)
    whole = np.concatenate([unit(left - left.mean(0)), unit(right - right.mean(0))], 1)
    assert len(joined) == 50 and joined.shape == (50, 13)
    np.testing.assert_allclose(joined[:], whole, atol=1e-6)
    np.testing.assert_allclose(joined[3:40:5], whole[3:40:5], atol=1e-6)
    np.testing.assert_allclose(joined.mean(0), whole.mean(0), atol=1e-6)
    for options in (width(5), width(20)):
        np.testing.assert_allclose(np.abs(principal(joined, options)), np.abs(principal(whole, options)), atol=1e-4)


def test_components_of_a_sample_are_near_those_of_all():
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(3000, 6)) * [9, 5, 3, 0.1, 0.1, 0.1]).astype(np.float32)
    part, whole = principal(x, replace(width(3), max_rows=500)), principal(x, width(3))
    for left, right in zip(part.T, whole.T, strict=True):
        assert abs(np.corrcoef(left, right)[0, 1]) > 0.98
    assert (part != whole).any()


def test_groups_of_one_image_share_a_fold():
    folds, _, _ = small(30, 3, 5)
    assert (make_folds(folds.group_of, 5, 0) == folds.fold).all()
    assert (folds.fold.reshape(30, 3) == folds.fold[::3, None]).all()


def test_large_constant_vectors_leave_no_rest():
    rng = np.random.default_rng(0)
    for size in (1e8, 1e11):
        images, captions = np.full((60, 8), size, np.float32), rng.normal(size=(60, 5)).astype(np.float32)
        found = canonical(images, captions, np.ones(60), OPTIONS.linear)
        assert all(getattr(found, part.name).isfinite().all() for part in fields(found))
