"""Swaps of near captions: what changes places, what networks learn, and what the probabilities then mean."""

import warnings

import numpy as np
import pytest
from test_near import scenes_of_classes
from trust_helpers import planted, unit

from pairsift.trust import heldout
from pairsift.trust.contrast import Evidence
from pairsift.trust.crossfit import CrossFit, make_folds
from pairsift.trust.heldout import believe
from pairsift.trust.swaps import COPIES, copy_of, draw_swaps, memory_evidence


def drawn(images=250, per=2, folds=2, seed=0):
    rng = np.random.default_rng(seed)
    image_of = np.repeat(np.arange(images), per)
    vectors = rng.normal(size=(len(image_of), 6)).astype(np.float32)
    texts = [f"caption {n // 3}" for n in range(len(image_of))]
    return image_of, vectors, texts, make_folds(image_of, folds, seed)


def test_captions_change_places_with_near_ones_of_their_fold_and_only_once():
    image_of, vectors, texts, fold = drawn()
    fit = draw_swaps(image_of, image_of, texts, fold, 0, vectors)
    pairs = set(zip(fit.decoy_images.tolist(), fit.decoy_captions.tolist(), strict=True))
    assert pairs == {(caption, image) for image, caption in pairs}
    assert len(set(fit.decoy_images.tolist())) == len(fit.decoy_images) == 200  # a fifth in each of two copies
    assert np.bincount(fit.copies).tolist() == [100, 100]
    rows, nearest = unit(vectors), {}
    for image in fit.decoy_images.tolist():
        others = [
            pair
            for pair in range(500)
            if fold[pair] == fold[image] and image_of[pair] != image_of[image] and texts[pair] != texts[image]
        ]
        of_fold = (fold == fold[image]).sum()
        nearest[image] = sorted(others, key=lambda p: -float(rows[image] @ rows[p]))[: round(0.01 * of_fold)]
    for image, caption in pairs:
        assert caption in nearest[image] or image in nearest[caption]


def test_collections_without_near_captions_have_no_swaps():
    image_of, vectors, _, fold = drawn(20)
    assert not len(draw_swaps(image_of, image_of, ["the same"] * 40, fold, 0, vectors).decoy_images)


def test_a_copy_has_the_swapped_images_and_all_else_as_given():
    image_of, vectors, texts, fold = drawn()
    fit = draw_swaps(image_of, image_of % 200, texts, fold, 3, vectors)
    for number in range(COPIES):
        copy, moved = copy_of(fit, number), 0
        for image, caption, where in zip(fit.decoy_images, fit.decoy_captions, fit.copies, strict=True):
            if where == number:
                assert copy.image_of[caption] == image_of[image] and copy.group_of[caption] == image_of[image] % 200
                moved += 1
        assert (copy.image_of != image_of).sum() == moved > 0


def test_evidence_comes_from_a_network_that_learned_the_pair_as_it_is_judged():
    image_of, vectors, texts, fold = drawn()
    fit = draw_swaps(image_of, image_of, texts, fold, 0, vectors)
    of_copies = np.arange(1000.0).reshape(2, 500)
    evidence = memory_evidence(fit, of_copies, 0)
    learned_in = {int(caption): int(copy) for caption, copy in zip(fit.decoy_captions, fit.copies, strict=True)}
    for pair in range(500):
        copies = {0, 1} - {learned_in[pair]} if pair in learned_in else {0, 1}
        assert evidence.pairs[pair] in {of_copies[copy, pair] for copy in copies}
    for decoy, caption in enumerate(fit.decoy_captions.tolist()):
        assert evidence.decoys[decoy] == of_copies[learned_in[caption], caption]
    free = [pair for pair in range(500) if pair not in learned_in]
    assert len({evidence.pairs[pair] // 500 for pair in free}) == 2


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_probabilities_are_about_near_captions_where_these_are_expected(noise, monkeypatch):
    monkeypatch.setattr(heldout, "RESAMPLES", 8)
    monkeypatch.setattr(heldout, "AVERAGED_PAIRS", 1)
    judged, matched = scenes_of_classes(noise)
    rng = np.random.default_rng(1)
    learned = 3.0 * matched + rng.normal(size=len(matched))
    of_class = np.eye(30)[np.arange(len(matched)) % 30] + 0.01 * rng.normal(size=(len(matched), 30))

    def by_memory(fit):
        return Evidence(learned, np.random.default_rng(2).normal(size=len(fit.decoy_images)))

    near = heldout.replace(judged, near_by=of_class.astype(np.float32))
    belief = believe(near, 0, memory=by_memory)
    share = float(np.mean(~matched))
    assert belief.rate == pytest.approx(share, abs=0.06) and belief.low <= belief.rate <= belief.high
    assert belief.near_auroc is None and "memory" in belief.detectors
    if noise:
        random = believe(judged, 0)
        errors = [abs(one.probability.mean() - matched.mean()) for one in (belief, random)]
        assert errors[0] < 0.06 < errors[1] / 2
        wrong, right = belief.probability[~matched], belief.probability[matched]
        assert (right[:, None] > wrong).mean() == pytest.approx(belief.auroc, abs=0.05)


@pytest.mark.parametrize(("noise", "many"), [(0.0, False), (0.4, True)])
def test_captions_of_any_images_among_near_ones_are_noticed(noise, many, monkeypatch):
    monkeypatch.setattr(heldout, "RESAMPLES", 8)
    monkeypatch.setattr(heldout, "AVERAGED_PAIRS", 1)
    judged, _ = planted(500, noise=noise)
    near = heldout.replace(judged, near_by=judged.captions)
    assert (believe(near, 0).below_near > 0.2) is many
    assert believe(judged, 0).below_near == 0.0


def test_pairs_outside_train_without_swaps_of_their_own_are_judged_with_the_others():
    rng, pairs = np.random.default_rng(0), np.arange(500)
    in_train, wrong = pairs >= 150, (pairs >= 150) & (pairs % 2 == 0)
    images, captions = rng.integers(150, 500, 300), rng.integers(150, 500, 300)
    fit = CrossFit(pairs, pairs, pairs % 5, images, captions)
    kinds = {
        name: Evidence(rng.normal(size=500) + 5 * ~wrong, rng.normal(size=300)) for name in ("linear", "near_images")
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evidence = heldout._weigh(fit, kinds, in_train, 0)
    assert len(evidence.decoys) == 300 and np.isfinite(evidence.pairs).all()
    assert evidence.pairs[~in_train].mean() == pytest.approx(evidence.pairs[in_train & ~wrong].mean(), rel=0.1)
