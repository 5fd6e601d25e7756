"""How far a pair stands above what its image and its caption reach with others."""

import math

import numpy as np
import pytest
import torch
from detect_helpers import OPTIONS, OWN_REFERENCES, naive_evidence, permuted, small, unit

from pairsift.detect.evidence import contrast
from pairsift.detect.folds import Folds, make_folds


def codes_of(folds, seed=0, dim=4):
    rng = np.random.default_rng(seed)
    return tuple(unit(rng.normal(size=(len(folds), dim))) for _ in range(2))


def given(codes):
    images, captions = map(torch.from_numpy, codes)
    return lambda fold, members: (images[members], captions[members])


def test_evidence_matches_plain_loops():
    folds, _, _ = small(12, 2, 3)
    codes = codes_of(folds)
    few = slice(0, 300)
    folds = type(folds)(folds.image_of, folds.group_of, folds.fold, folds.decoy_images[few], folds.decoy_captions[few])
    evidence = contrast(folds, given(codes), 0, OWN_REFERENCES)
    pairs, decoys = naive_evidence(folds, codes)
    assert evidence.pairs == pytest.approx(pairs, abs=1e-6)
    assert evidence.decoys == pytest.approx(decoys, abs=1e-6)


def test_captions_of_an_image_and_of_its_near_duplicates_are_no_references():
    folds, _, _ = small(20, 1, 2)
    group = folds.image_of // 2  # images 0 and 1 are near-duplicates
    folds = Folds.make(
        folds.image_of, group, [f"caption {i}" for i in range(20)], make_folds(group, 2, 0), 0, OPTIONS.decoys
    )
    images, captions = codes_of(folds)
    before = contrast(folds, given((images, captions)), 0, OWN_REFERENCES)
    moved = captions.copy()
    moved[0] = -moved[0]
    after = contrast(folds, given((images, moved)), 0, OWN_REFERENCES)
    assert after.pairs[1] == before.pairs[1]
    same_fold = [i for i in range(2, len(folds)) if folds.fold[i] == folds.fold[0]]
    elsewhere = [i for i in range(len(folds)) if folds.fold[i] != folds.fold[0]]
    assert all(after.pairs[i] != before.pairs[i] for i in same_fold)
    assert (after.pairs[elsewhere] == before.pairs[elsewhere]).all()


def test_a_mismatched_pair_is_distributed_like_a_decoy():
    folds, _, _ = small(200, 1, 2)
    evidence = contrast(folds, given(codes_of(folds, 3)), 0, OWN_REFERENCES)
    assert evidence.pairs.mean() == pytest.approx(evidence.decoys.mean(), abs=0.1)
    assert evidence.pairs.std() == pytest.approx(evidence.decoys.std(), rel=0.15)


def test_order_of_pairs_does_not_matter():
    folds, _, _ = small(12, 2, 3)
    codes, order = codes_of(folds), np.random.default_rng(1).permutation(len(folds))
    evidence = contrast(folds, given(codes), 0, OWN_REFERENCES)
    again = contrast(permuted(folds, order), given([side[order] for side in codes]), 0, OWN_REFERENCES)
    assert again.pairs == pytest.approx(evidence.pairs[order], abs=1e-6)
    assert again.decoys == pytest.approx(evidence.decoys, abs=1e-6)


def test_more_pairs_than_references_are_compared_with_a_part():
    folds, _, _ = small(12, 2, 2)
    images, captions = codes_of(folds)
    options = OWN_REFERENCES.changed({"contrast": {"references": 5}})
    evidence = contrast(folds, given((images, captions)), 0, options)
    for fold, members in enumerate(folds.members()):
        chosen = members[np.random.default_rng((0, 9, fold)).permutation(len(members))[:5]]
        for i in members:
            others = [j for j in chosen if folds.image_of[j] != folds.image_of[i]]
            by_image = math.log(np.mean([math.exp(20 * images[i] @ captions[j]) for j in others])) / 20
            by_caption = math.log(np.mean([math.exp(20 * images[j] @ captions[i]) for j in others])) / 20
            assert evidence.pairs[i] == pytest.approx(images[i] @ captions[i] - (by_image + by_caption) / 2, abs=1e-6)


def test_without_references_the_cosine_is_left():
    folds, _, _ = small(3, 2, 3)  # one image a fold
    images, captions = codes_of(folds)
    evidence = contrast(folds, given((images, captions)), 0, OWN_REFERENCES)
    assert evidence.pairs == pytest.approx((images * captions).sum(1), abs=1e-6)
    assert len(evidence.decoys) == 0


def test_small_folds_are_compared_with_pairs_of_all_folds():
    folds, _, _ = small(12, 1, 3)
    images, captions = codes_of(folds)
    options = OPTIONS.changed({"contrast": {"min_references": len(folds)}})
    before = contrast(folds, given((images, captions)), 0, options)
    other = int(np.flatnonzero(folds.fold != folds.fold[0])[0])
    captions[other] = images[0]  # a reference that reaches the first pair's image exactly
    after = contrast(folds, given((images, captions)), 0, options)
    assert after.pairs[0] < before.pairs[0]
