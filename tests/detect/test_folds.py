"""Near-duplicates, folds that keep them together, decoys, and swaps of near captions."""

from dataclasses import replace

import numpy as np
import pytest
from detect_helpers import OPTIONS, centred, unit

from pairsift.arrays import text_numbers, unit_rows
from pairsift.detect.evidence import memory_evidence
from pairsift.detect.folds import Folds, NearRows, copy_of, draw_swaps, fingerprints, make_folds, near_duplicates


def naive_groups(vectors, least):
    """Sets of rows that chains of near pairs join, by walking them."""
    x, left, groups = centred(vectors), set(range(len(vectors))), []
    while left:
        reached, edge = set(), [min(left)]
        while edge:
            i = edge.pop()
            if i not in reached:
                reached.add(i)
                edge += [j for j in range(len(x)) if float(x[i] @ x[j]) >= least]
        groups.append(frozenset(reached))
        left -= reached
    return set(groups)


def sets_of(group):
    return {frozenset(np.flatnonzero(group == g).tolist()) for g in range(group.max() + 1)}


def with_duplicates(seed, images=60):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(images, 8))
    for left, right in rng.permutation(images)[:24].reshape(12, 2):
        vectors[right] = 3 * vectors[left] + 0.05 * rng.normal(size=8)
    return vectors.astype(np.float32)


@pytest.mark.parametrize(("seed", "least"), [(0, 0.9), (1, 0.9), (2, 0.75)])
def test_groups_are_what_chains_of_near_pairs_join(seed, least):
    vectors = with_duplicates(seed)
    expected = naive_groups(vectors, least)
    assert max(map(len, expected)) <= 6 and min(map(len, expected)) == 1
    assert sets_of(near_duplicates(vectors, replace(OPTIONS.folds, near_duplicate_cosine=least))) == expected


def test_a_chain_is_one_group_though_its_ends_are_far_apart():
    angles, chain = np.radians([0, 20, 40, 60]), np.zeros((4, 20))
    chain[:, 0], chain[:, 1] = np.cos(angles), np.sin(angles)
    vectors = np.concatenate([chain, np.eye(20)[2:]])
    vectors = np.concatenate([vectors, -vectors]).astype(np.float32)  # their mean is 0
    group = near_duplicates(vectors, OPTIONS.folds)
    assert sets_of(group) == naive_groups(vectors, 0.9)
    assert group[0] == group[1] == group[2] == group[3] and group.max() == 37


def test_order_and_length_of_vectors_do_not_matter():
    vectors, order = with_duplicates(3), np.random.default_rng(0).permutation(60)
    group = near_duplicates(vectors, OPTIONS.folds)
    again = near_duplicates(7 * vectors[order], OPTIONS.folds)
    assert {frozenset(order[list(s)].tolist()) for s in sets_of(again)} == sets_of(group)


def test_images_that_the_encoder_cannot_tell_apart_are_groups_by_themselves():
    vectors = with_duplicates(4)
    vectors[:7] = vectors[0]  # more than a tenth
    group = near_duplicates(vectors, OPTIONS.folds)
    assert len(set(group[:7].tolist())) == 7
    assert not set(group[:7].tolist()) & set(group[7:].tolist())
    assert sorted(set(group.tolist())) == list(range(group.max() + 1))


@pytest.mark.parametrize("vectors", [np.ones((4, 3)), np.zeros((5, 3)), np.full((4, 3), np.nan), np.ones((1, 3))])
def test_vectors_that_say_nothing_make_no_groups(vectors):
    assert sorted(near_duplicates(vectors.astype(np.float32), OPTIONS.folds).tolist()) == list(range(len(vectors)))


@pytest.mark.parametrize("folds", [2, 5, 10])
def test_groups_stay_in_one_fold_and_folds_are_even(folds):
    rng = np.random.default_rng(folds)
    group = rng.permutation(np.repeat(np.arange(60), rng.integers(1, 9, 60))) * 3 + 5
    fold = make_folds(group, folds, 0)
    assert all(len(set(fold[group == g].tolist())) == 1 for g in set(group.tolist()))
    sizes = np.bincount(fold, minlength=folds)
    assert sizes.max() - sizes.min() <= 8 and sizes.sum() == len(group)
    assert (fold == make_folds(group, folds, 0)).all() and (fold != make_folds(group, folds, 1)).any()


def test_duplicates_never_span_folds():
    vectors = with_duplicates(5)
    image_of = np.repeat(np.arange(60), 3)
    group = near_duplicates(vectors, OPTIONS.folds)
    fold = make_folds(group[image_of], 5, 0)
    cosine = centred(vectors) @ centred(vectors).T
    near = np.argwhere(np.triu(cosine >= 0.9, 1))
    assert len(near) >= 12
    first = fold[::3]
    assert (fold.reshape(60, 3) == first[:, None]).all()
    assert all(first[i] == first[j] for i, j in near)


def test_decoys_are_of_one_fold_of_different_groups_and_texts():
    rng = np.random.default_rng(6)
    image_of = np.repeat(np.arange(40), 2)
    group = (image_of // 2).astype(np.int64)
    texts = [["A  dog", "a dog ", "A Dog", "Straße", "STRASSE", "cat", "bird"][i] for i in rng.integers(0, 7, 80)]
    alike = {"A  dog": 0, "a dog ": 0, "A Dog": 0, "Straße": 1, "STRASSE": 1, "cat": 2, "bird": 3}
    fold = make_folds(group, 4, 0)
    folds = Folds.make(image_of, group, text_numbers(texts), fold, 0, OPTIONS.decoys)
    assert len(folds.decoy_images) > 1000 and len(folds) == 80 and folds.count == 4
    for i, j in zip(folds.decoy_images, folds.decoy_captions, strict=True):
        assert fold[i] == fold[j] and group[i] != group[j] and alike[texts[i]] != alike[texts[j]]
    assert len(set(zip(folds.decoy_images.tolist(), folds.decoy_captions.tolist(), strict=True))) > 500
    other = Folds.make(image_of, group, text_numbers(texts), fold, 1, OPTIONS.decoys)
    assert other.decoy_captions.tolist() != folds.decoy_captions.tolist()


@pytest.mark.parametrize("pairs", [30, 1000, 30_000])
def test_about_20_000_decoys_at_most_200_and_at_least_one_a_pair(pairs):
    one = np.arange(pairs)
    folds = Folds.make(one, one, text_numbers([str(i) for i in one]), one % 3, 0, OPTIONS.decoys)
    each = min(200, max(1, -(-OPTIONS.decoys.number // pairs)))
    assert 0.85 * each * pairs < len(folds.decoy_images) <= each * pairs
    assert [part.tolist() for part in folds.members()] == [list(range(k, pairs, 3)) for k in range(3)]


def test_a_fold_may_be_empty():
    one = np.arange(6)
    folds = Folds.make(one, one, text_numbers(list("abcdef")), np.array([0, 0, 0, 2, 2, 2]), 0, OPTIONS.decoys)
    assert [len(part) for part in folds.members()] == [3, 0, 3] and len(folds.decoy_images)


def test_unit_rows_leave_zeros():
    rows = unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    assert rows.tolist() == [pytest.approx([0.6, 0.8]), [0.0, 0.0]] and rows.dtype == np.float32


def drawn(images=250, per=2, folds=2, seed=0):
    rng = np.random.default_rng(seed)
    image_of = np.repeat(np.arange(images), per)
    vectors = rng.normal(size=(len(image_of), 6)).astype(np.float32)
    texts = [f"caption {n // 3}" for n in range(len(image_of))]
    return image_of, vectors, texts, make_folds(image_of, folds, seed)


def test_captions_change_places_with_near_ones_of_their_fold_and_only_once():
    image_of, vectors, texts, fold = drawn()
    folds = draw_swaps(image_of, image_of, text_numbers(texts), fold, 0, OPTIONS, vectors)
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
    assert not len(
        draw_swaps(image_of, image_of, text_numbers(["the same"] * 40), fold, 0, OPTIONS, vectors).decoy_images
    )


def test_a_copy_has_the_swapped_images_and_all_else_as_given():
    image_of, vectors, texts, fold = drawn()
    folds = draw_swaps(image_of, image_of % 200, text_numbers(texts), fold, 3, OPTIONS, vectors)
    for number in range(2):
        copy, moved = copy_of(folds, number), 0
        for image, caption, where in zip(folds.decoy_images, folds.decoy_captions, folds.copies, strict=True):
            if where == number:
                assert copy.image_of[caption] == image_of[image] and copy.group_of[caption] == image_of[image] % 200
                moved += 1
        assert (copy.image_of != image_of).sum() == moved > 0


def test_evidence_comes_from_a_network_that_learned_the_pair_as_it_is_judged():
    image_of, vectors, texts, fold = drawn()
    folds = draw_swaps(image_of, image_of, text_numbers(texts), fold, 0, OPTIONS, vectors)
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


def test_near_duplicates_of_many_images_are_found_by_pivots():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(60, 48))  # images of a few kinds, such as shoes, so that buckets are uneven
    first = centres[rng.integers(0, 60, 4000)] + 0.8 * rng.normal(size=(4000, 48))
    copies = first[:1500] + 0.3 * rng.normal(size=(1500, 48))
    vectors = np.concatenate([first, copies]).astype(np.float32)
    unit = unit_rows(vectors - vectors.mean(0))
    near = np.stack(np.nonzero(np.triu(unit @ unit.T >= 0.9, 1)))
    group = near_duplicates(vectors, replace(OPTIONS.folds, max_group_share=1.0))
    assert near.shape[1] > 1000 and (group[near[0]] == group[near[1]]).mean() >= 0.98
    alone = np.setdiff1d(np.arange(len(vectors)), near)
    assert len(np.unique(group[alone])) == len(alone) and len(np.unique(group)) <= len(vectors) - 0.9 * 1000


def test_copies_of_an_image_are_grouped_without_comparing_them_with_each_other(monkeypatch):
    rng = np.random.default_rng(0)
    compared = []
    found = NearRows.pairs
    monkeypatch.setattr(NearRows, "pairs", lambda self, unit, n: (compared.append(n), found(self, unit, n))[1])
    for _ in range(10):
        n = int(rng.integers(40, 200))
        place = rng.integers(0, n, n)
        vectors = rng.normal(size=(n, 6)).astype(np.float32)[place]
        group = near_duplicates(vectors, replace(OPTIONS.folds, max_group_share=1.0))
        assert compared.pop() == len(set(place.tolist()))
        assert sets_of(group) == naive_groups(vectors, OPTIONS.folds.near_duplicate_cosine)


def test_zero_and_its_negative_are_one():
    vectors = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]], np.float32)
    assert fingerprints(vectors)[0] == fingerprints(vectors)[1] != fingerprints(vectors)[2]
