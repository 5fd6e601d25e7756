"""Ranks and recall against plain loops over the full matrix."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairsift import retrieve
from pairsift.retrieve import Ranks, image_folds, recall
from pairsift.retrieve.answers import answered
from pairsift.retrieve.ranks import ranks_by_view

KEYS = ["i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum"]
OTHERS = [f"{way}_{name}" for way in ("i2t", "t2i") for name in ("median_rank", "map_at_r", "r_precision")]


def loops(scores, image_of):
    """Ranks by definition, one comparison at a time."""
    i2t, t2i = [], []
    for i in range(len(scores)):
        ranks = []
        for t in range(len(image_of)):
            if image_of[t] == i:
                others = [u for u in range(len(image_of)) if image_of[u] != i]
                ranks.append(sum(scores[i, u] >= scores[i, t] for u in others))
        i2t.append(min(ranks) if ranks else -1)
    for t in range(len(image_of)):
        i = image_of[t]
        t2i.append(sum(scores[j, t] >= scores[i, t] for j in range(len(scores)) if j != i))
    return i2t, t2i


@st.composite
def matrices(draw):
    n_images = draw(st.integers(1, 7))
    image_of = np.array(draw(st.lists(st.integers(0, n_images - 1), min_size=1, max_size=14)), dtype=np.int64)
    values = st.integers(-1, 2)
    flat = draw(st.lists(values, min_size=n_images * len(image_of), max_size=n_images * len(image_of)))
    return np.array(flat, dtype=np.float32).reshape(n_images, len(image_of)), image_of


def of(scores, image_of, chunk=256):
    return retrieve.ranks(lambda rows: scores[rows], image_of, len(scores), chunk)


@settings(max_examples=150, deadline=None)
@given(matrices(), st.integers(1, 8), st.booleans())
def test_ranks_with_ties_match_plain_loops_for_any_chunk(case, chunk, keep):
    scores, image_of = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(retrieve.ranks.__globals__, "KEPT_BYTES", 2**26 if keep else 0)
        found = of(scores, image_of, chunk)
    i2t, t2i = loops(scores, image_of)
    assert found.i2t.tolist() == i2t
    assert found.t2i.tolist() == t2i


@settings(max_examples=50, deadline=None)
@given(matrices(), st.randoms(use_true_random=False))
def test_ranks_follow_a_permutation_of_images_and_captions(case, random):
    scores, image_of = case
    images, texts = list(range(len(scores))), list(range(len(image_of)))
    random.shuffle(images)
    random.shuffle(texts)
    new_row = np.argsort(images)
    found, moved = of(scores, image_of, 3), of(scores[np.ix_(images, texts)], new_row[image_of[texts]], 2)
    assert moved.i2t.tolist() == found.i2t[images].tolist()
    assert moved.t2i.tolist() == found.t2i[texts].tolist()


def test_a_constant_model_scores_nothing():
    image_of = np.repeat(np.arange(20), 5)
    found = of(np.ones((20, 100), dtype=np.float32), image_of, 6)
    assert set(found.i2t) == {95}
    assert set(found.t2i) == {19}
    nothing = {**dict.fromkeys([*KEYS, *OTHERS], 0.0), "i2t_median_rank": 96.0, "t2i_median_rank": 20.0}
    assert recall(found) == nothing


def test_infinite_scores_are_ranked():
    scores = np.full((2, 2), -np.inf)
    assert of(scores, np.array([0, 1])).i2t.tolist() == [1, 1]
    scores[[0, 1], [0, 1]] = np.inf
    assert of(scores, np.array([0, 1]), 1).t2i.tolist() == [0, 0]


def test_recall_by_hand():
    image_of = np.array([4, 3, 1, 0, 0, 4])
    found = recall(Ranks(image_of, 5, np.array([10, 5, 4, 0, 1, 11]), np.array([0, 1, 9, 10, 3, 0])))
    assert list(found) == [*KEYS, *OTHERS]
    assert [found[key] for key in KEYS] == pytest.approx(
        [25, 50, 75, 100 / 3, 200 / 3, 500 / 6, 25 + 50 + 75 + 550 / 3]
    )
    assert found["i2t_median_rank"] == 5.5 and found["t2i_median_rank"] == 3.0  # 1, 5, 6, 11 and 1, 1, 2, 4, 10, 11
    assert found["i2t_map_at_r"] == found["i2t_r_precision"] == 12.5  # the first image has one of two in place
    assert found["t2i_map_at_r"] == found["t2i_r_precision"] == found["t2i_r1"]


def naive_measures(scores, right):
    """The measures of one direction by walking down each query's list, where wrong items come first among equals."""
    hits, firsts, average, precision = {1: [], 5: [], 10: []}, [], [], []
    for row, answers in zip(scores.tolist(), right, strict=True):
        if not answers:
            continue
        ranking = sorted(range(len(row)), key=lambda item: (-row[item], item in answers))
        within = ranking[: len(answers)]
        precision.append(sum(item in answers for item in within) / len(answers))
        walked = [sum(item in answers for item in within[: k + 1]) / (k + 1) for k in range(len(within))]
        average.append(sum(p for p, item in zip(walked, within, strict=True) if item in answers) / len(answers))
        firsts.append(1 + min(ranking.index(item) for item in answers))
        for k, found in hits.items():
            found.append(any(item in answers for item in ranking[:k]))
    means = {f"r{k}": 100 * np.mean(found) for k, found in hits.items()}
    others = {"map_at_r": 100 * np.mean(average), "r_precision": 100 * np.mean(precision)}
    return {**means, **others, "median_rank": np.median(firsts)}


def both(i2t, t2i):
    named = {f"i2t_{name}": value for name, value in i2t.items()} | {f"t2i_{k}": v for k, v in t2i.items()}
    return {**named, "rsum": sum(value for name, value in named.items() if name in KEYS)}


def test_measures_match_walks_down_the_lists():
    """300 cases with ties and unequal numbers of captions an image, some images without any."""
    rng = np.random.default_rng(4)
    for _ in range(300):
        n_images, n_texts = rng.integers(1, 9), rng.integers(1, 25)
        image_of = rng.integers(0, n_images, n_texts)
        scores = rng.integers(0, rng.choice([2, 4, 1000]), (n_images, n_texts)).astype(np.float32)
        captions = [set(np.flatnonzero(image_of == i).tolist()) for i in range(n_images)]
        expected = both(naive_measures(scores, captions), naive_measures(scores.T, [{int(i)} for i in image_of]))
        assert recall(of(scores, image_of, int(rng.integers(1, 5)))) == pytest.approx(expected)


def test_answers_of_any_number_match_walks_down_the_lists():
    """300 cases where captions have several right images too, and some queries have no answer."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        shape = rng.integers(2, 9), rng.integers(2, 25)
        scores = rng.integers(0, rng.choice([2, 4, 1000]), (2, *shape)).astype(np.float32)
        masks = [rng.random(shape) < rng.choice([0.1, 0.5]) for _ in range(2)]
        for mask in masks:
            mask[0, 0] = True
        found = answered(lambda rows, s=scores: s[:, rows], *map(np.nonzero, masks), shape, int(rng.integers(1, 5)))
        by_image, by_caption = [[set(np.flatnonzero(row).tolist()) for row in side] for side in (masks[0], masks[1].T)]
        for view, measured in zip(scores, found, strict=True):
            expected = both(naive_measures(view, by_image), naive_measures(view.T, by_caption))
            assert measured == pytest.approx(expected)


def test_a_block_is_asked_for_no_more_rows_than_a_chunk_and_only_once_when_small():
    asked = []
    scores = np.random.default_rng(0).normal(size=(10, 10))

    def block(rows):
        asked.append(rows.tolist())
        return scores[rows]

    retrieve.ranks(block, np.arange(10), 10, chunk=4)
    assert asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_memory_does_not_hold_the_matrix(monkeypatch):
    monkeypatch.setitem(retrieve.ranks.__globals__, "KEPT_BYTES", 0)
    rng = np.random.default_rng(0)
    images, texts = (
        rng.normal(size=(1500, 4)).astype(np.float32),
        rng.normal(size=(3000, 4)).astype(np.float32),
    )
    tracemalloc.start()
    retrieve.ranks(lambda rows: images[rows] @ texts.T, np.arange(3000) // 2, 1500, chunk=50)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1500 * 3000 * 4 / 4


def test_the_last_bit_of_a_second_computation_breaks_no_tie():
    """A caption's own score is never compared with itself computed anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(retrieve.ranks.__globals__, "KEPT_BYTES", 0)
        calls = []

        def block(rows):
            calls.append(1)
            return np.eye(8)[rows] + 1e-9 * len(calls)

        found = retrieve.ranks(block, np.arange(8), 8, chunk=2)
    assert len(calls) == 7  # the last block has nothing left to count
    assert found.t2i.tolist() == [0] * 8


@settings(max_examples=50, deadline=None)
@given(matrices(), matrices(), st.integers(1, 8))
def test_views_are_ranked_each_by_itself(case, other, chunk):
    scores, image_of = case
    second = np.resize(other[0], scores.shape)
    found = ranks_by_view(lambda rows: np.stack([scores, second])[:, rows], image_of, len(scores), chunk)
    for view, each in zip((scores, second), found, strict=True):
        assert (each.i2t.tolist(), each.t2i.tolist()) == loops(view, image_of)


@pytest.mark.parametrize("folds", [1, 3, 5])
def test_folds_are_consecutive_images_with_their_captions(folds):
    image_of = np.concatenate([np.arange(15), np.random.default_rng(1).integers(0, 15, 25)])
    parts = image_folds(image_of, 15, folds)
    assert np.concatenate([rows for rows, _ in parts]).tolist() == list(range(15))
    for rows, captions in parts:
        assert len(rows) == 15 // folds
        assert captions.tolist() == [t for t in range(40) if image_of[t] in rows]
    assert [len(rows) for rows, _ in image_folds(image_of, 15, 4)] == [4, 4, 4, 3]


def test_what_does_not_fit_is_refused():
    scores = np.ones((3, 4))
    with pytest.raises(ValueError, match="point at images 0 to 3 of 3"):
        of(scores, np.array([0, 1, 2, 3]))
    with pytest.raises(ValueError, match="3 images and 5 captions has shape"):
        of(scores, np.zeros(5, dtype=int))
    with pytest.raises(ValueError, match="chunk is 0"):
        of(scores, np.zeros(4, dtype=int), 0)
    with pytest.raises(ValueError, match="no caption"):
        recall(of(np.ones((3, 0)), np.zeros(0, dtype=int)))
    with pytest.raises(ValueError, match="4 folds of 3 images"):
        image_folds(np.zeros(4, dtype=int), 3, 4)
    scores[1, 2] = np.nan
    with pytest.raises(ValueError, match="1 scores are not a number, the first at image row 1 and caption row 2"):
        of(scores, np.array([0, 1, 2, 2]), 2)
