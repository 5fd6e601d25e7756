"""Swaps of near captions: what changes places, what networks learn, and what the probabilities then mean."""

import numpy as np
from detect_helpers import OPTIONS, unit

from pairsift.detect.evidence import memory_evidence
from pairsift.detect.folds import copy_of, draw_swaps, make_folds


def drawn(images=250, per=2, folds=2, seed=0):
    rng = np.random.default_rng(seed)
    image_of = np.repeat(np.arange(images), per)
    vectors = rng.normal(size=(len(image_of), 6)).astype(np.float32)
    texts = [f"caption {n // 3}" for n in range(len(image_of))]
    return image_of, vectors, texts, make_folds(image_of, folds, seed)


def test_captions_change_places_with_near_ones_of_their_fold_and_only_once():
    image_of, vectors, texts, fold = drawn()
    folds = draw_swaps(image_of, image_of, texts, fold, 0, OPTIONS, vectors)
    pairs = set(zip(folds.decoy_images.tolist(), folds.decoy_captions.tolist(), strict=True))
    assert pairs == {(caption, image) for image, caption in pairs}
    assert len(set(folds.decoy_images.tolist())) == len(folds.decoy_images) == 200  # a fifth in each of two copies
    assert np.bincount(folds.copies).tolist() == [100, 100]
    rows, nearest = unit(vectors), {}
    for image in folds.decoy_images.tolist():
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
    assert not len(draw_swaps(image_of, image_of, ["the same"] * 40, fold, 0, OPTIONS, vectors).decoy_images)


def test_a_copy_has_the_swapped_images_and_all_else_as_given():
    image_of, vectors, texts, fold = drawn()
    folds = draw_swaps(image_of, image_of % 200, texts, fold, 3, OPTIONS, vectors)
    for number in range(2):
        copy, moved = copy_of(folds, number), 0
        for image, caption, where in zip(folds.decoy_images, folds.decoy_captions, folds.copies, strict=True):
            if where == number:
                assert copy.image_of[caption] == image_of[image] and copy.group_of[caption] == image_of[image] % 200
                moved += 1
        assert (copy.image_of != image_of).sum() == moved > 0


def test_evidence_comes_from_a_network_that_learned_the_pair_as_it_is_judged():
    image_of, vectors, texts, fold = drawn()
    folds = draw_swaps(image_of, image_of, texts, fold, 0, OPTIONS, vectors)
    of_copies = np.arange(1000.0).reshape(2, 500)
    evidence = memory_evidence(folds, of_copies, 0)
    learned_in = {int(caption): int(copy) for caption, copy in zip(folds.decoy_captions, folds.copies, strict=True)}
    for pair in range(500):
        copies = {0, 1} - {learned_in[pair]} if pair in learned_in else {0, 1}
        assert evidence.pairs[pair] in {of_copies[copy, pair] for copy in copies}
    for decoy, caption in enumerate(folds.decoy_captions.tolist()):
        assert evidence.decoys[decoy] == of_copies[learned_in[caption], caption]
    free = [pair for pair in range(500) if pair not in learned_in]
    assert len({evidence.pairs[pair] // 500 for pair in free}) == 2
