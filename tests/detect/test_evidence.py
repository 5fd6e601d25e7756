"""How far a pair stands above what its image and its caption reach, by each kind of evidence."""

import math

import numpy as np
import pytest
import torch
from detect_helpers import OPTIONS, OWN_REFERENCES, centred, naive_evidence, permuted, small, unit

from pairsift.detect.evidence import contrast, fit_neighbours, sibling_encoder
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
    folds = Folds.make(folds.image_of, group, np.arange(20), make_folds(group, 2, 0), 0, OPTIONS.decoys)
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


def neighbour_evidence(folds, images, captions, options=OWN_REFERENCES, trust=None):
    """The evidence by captions that images predict, and by images that captions predict."""
    models = fit_neighbours(folds, images, captions, 0, options.neighbours, trust)
    return [contrast(folds, model.encoder(images, captions), 0, options) for model in models]


def naive_foretold(folds, queries, values, most=30, trust=None):
    """Unit means of the values of the nearest pairs of other folds, weighted by exp(5 cos) and how far believed."""
    out = []
    for i in range(len(folds)):
        others = [j for j in range(len(folds)) if folds.fold[j] != folds.fold[i]]
        nearest = sorted(others, key=lambda j: -float(queries[i] @ queries[j]))[:most]
        believed = np.ones(len(folds)) if trust is None else trust[folds.fold[i]]
        total = sum(believed[j] * math.exp(5 * float(queries[i] @ queries[j])) * values[j] for j in nearest)
        out.append(unit(total))
    return np.array(out)


def fewer(folds, most=250):
    return type(folds)(
        folds.image_of, folds.group_of, folds.fold, folds.decoy_images[:most], folds.decoy_captions[:most]
    )


@pytest.mark.parametrize(("most", "told"), [(30, False), (4, False), (4, True)])
def test_both_kinds_match_plain_loops(most, told):
    options = OWN_REFERENCES.changed({"neighbours": {"count": most}})
    folds, images, captions = small(36, 1, 3)  # an image of one pair: no ties among the nearest
    folds, x, y = fewer(folds), centred(images), centred(captions)
    trust = np.random.default_rng(3).random((3, len(folds))) if told else None
    by_images, by_captions = neighbour_evidence(folds, images, captions, options, trust)
    for evidence, codes in (
        (by_images, (naive_foretold(folds, x, y, most, trust), y)),
        (by_captions, (x, naive_foretold(folds, y, x, most, trust))),
    ):
        pairs, decoys = naive_evidence(folds, codes)
        assert evidence.pairs == pytest.approx(pairs, abs=1e-4)
        assert evidence.decoys == pytest.approx(decoys, abs=1e-4)


def test_links_of_a_fold_do_not_move_what_its_images_foretell():
    folds, images, captions = small(60, 1, 3)
    x, y, folds = centred(images), centred(captions), fewer(folds, 0)
    before, foretold = neighbour_evidence(folds, images, captions)[0], naive_foretold(folds, x, y)
    for members in folds.members():
        exchanged, moved = captions.copy(), y.copy()
        exchanged[members], moved[members] = captions[np.roll(members, 1)], y[np.roll(members, 1)]
        after = neighbour_evidence(folds, images, exchanged)[0]
        own = np.isin(np.arange(len(folds)), members)[:, None]
        expected, _ = naive_evidence(folds, (np.where(own, foretold, x @ np.ones((7, 5))), moved))
        assert after.pairs[members] == pytest.approx(expected[members], abs=1e-4)
        assert np.abs(after.pairs - before.pairs)[members].max() > 0.01


def test_few_keys_are_drawn_once_for_each_fold():
    folds, images, captions = small(40, 1, 2)
    whole = neighbour_evidence(folds, images, captions)[0]
    options = OWN_REFERENCES.changed({"neighbours": {"max_keys": 6}})
    part = neighbour_evidence(folds, images, captions, options)[0]
    keys = [
        np.random.default_rng((0, 10, fold)).permutation(np.flatnonzero(folds.fold != fold))[:6] for fold in range(2)
    ]
    x, y = centred(images), centred(captions)
    told = [unit(sum(math.exp(5 * x[i] @ x[j]) * y[j] for j in keys[folds.fold[i]])) for i in range(len(folds))]
    pairs, _ = naive_evidence(fewer(folds, 0), (np.array(told), y))
    assert part.pairs == pytest.approx(pairs, abs=1e-4)
    assert np.abs(part.pairs - whole.pairs).max() > 0.01


def test_order_and_scale_do_not_matter():
    folds, images, captions = small(40, 1, 3)
    order = np.random.default_rng(4).permutation(len(folds))
    again = neighbour_evidence(permuted(folds, order), 5 * images[order] + 3, captions[order] / 4)
    for evidence, other in zip(neighbour_evidence(folds, images, captions), again, strict=True):
        assert other.pairs == pytest.approx(evidence.pairs[order], abs=1e-3)
        assert other.decoys == pytest.approx(evidence.decoys, abs=1e-3)


WEIGHT = OPTIONS.siblings.weight
IMAGE_OF = np.array([4, 0, 4, 2, 0, 4, 7, 2])


def drawn(seed=0):
    """Vectors of images and captions, which differ by fold, and probabilities."""
    rng = np.random.default_rng(seed)
    images = [unit(rng.normal(size=(8, 3)))[IMAGE_OF] for _ in range(2)]
    captions = [unit(rng.normal(size=(8, 3))) for _ in range(2)]

    def codes(fold, members):
        return torch.from_numpy(images[fold][members]).float(), torch.from_numpy(captions[fold][members]).float()

    return images, captions, rng.random(8), codes


@pytest.mark.parametrize("members", [[0, 1, 2, 3, 4, 5, 6, 7], [5, 0, 3], [6]])
@pytest.mark.parametrize("fold", [0, 1])
def test_images_match_plain_loops(members, fold):
    images, captions, probability, codes = drawn()
    found, same = sibling_encoder(codes, IMAGE_OF, probability, WEIGHT)(fold, np.array(members))
    for vector, pair in zip(found.numpy(), members, strict=True):
        total = images[fold][pair].copy()
        for other in range(8):
            if other != pair and IMAGE_OF[other] == IMAGE_OF[pair]:
                total += WEIGHT * probability[other] * captions[fold][other]
        assert vector == pytest.approx(unit(total), abs=1e-5)
    assert (same == codes(fold, np.array(members))[1]).all()


def test_a_pair_s_own_caption_and_its_own_probability_do_not_count():
    _, captions, probability, codes = drawn()
    before = sibling_encoder(codes, IMAGE_OF, probability, WEIGHT)(0, np.arange(8))[0]
    captions[0][2], probability[2] = -captions[0][2], 1 - probability[2]
    after = sibling_encoder(codes, IMAGE_OF, probability, WEIGHT)(0, np.arange(8))[0]
    moved = (after - before).abs().amax(1) > 1e-5
    assert moved.tolist() == [True, False, False, False, False, True, False, False]  # its siblings alone


def test_doubted_siblings_and_lone_captions_leave_the_image_as_it_is():
    images, _, probability, codes = drawn()
    silent = sibling_encoder(codes, IMAGE_OF, np.zeros(8), WEIGHT)(0, np.arange(8))[0]
    assert silent.numpy() == pytest.approx(images[0], abs=1e-6)
    lone = sibling_encoder(codes, np.arange(8), probability, WEIGHT)(0, np.arange(8))[0]
    assert lone.numpy() == pytest.approx(images[0], abs=1e-6)
