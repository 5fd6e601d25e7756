"""Recall where equal items are one, against plain walks down lists of distinct items."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gallery import make_pairs
from test_ranks import both, naive_measures

from pairsift import retrieve
from pairsift.encode.features import Features, Table
from pairsift.match.two_tower import TwoTower, TwoTowerOptions
from pairsift.retrieve import recall
from pairsift.retrieve.equal import EqualItems, EqualRanks, recall_notes
from pairsift.retrieve.gallery import evaluate, evaluate_equal

KEYS = [f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)]


def ranked(scores, owner, picture, text, chunk=256):
    items = EqualItems.make(np.asarray(picture), np.asarray(text))
    return EqualRanks.by_view(lambda rows: scores[None, rows], np.asarray(owner), items, chunk)[0]


def naive(scores, owner, picture, text):
    """Every query against the first image of each picture, or the first caption of each text."""
    picture, text = list(picture), list(text)
    images = [picture.index(p) for p in dict.fromkeys(picture)]
    texts = [text.index(t) for t in dict.fromkeys(text)]
    pairs = {(picture[i], text[t]) for t, i in enumerate(owner)}
    table = scores[np.ix_(images, texts)]
    i2t = [{n for n, t in enumerate(texts) if (p, text[t]) in pairs} for p in picture]
    t2i = [{n for n, i in enumerate(images) if (picture[i], w) in pairs} for w in text]
    by_image = table[[images.index(picture.index(p)) for p in picture]]
    by_text = table.T[[texts.index(text.index(w)) for w in text]]
    return both(naive_measures(by_image, i2t), naive_measures(by_text, t2i))


@st.composite
def cases(draw):
    """Images with one to three captions, some of them copies of each other, and some captions equal."""
    n_images = draw(st.integers(1, 7))
    owner = np.array([i for i in range(n_images) for _ in range(draw(st.integers(1, 3)))])
    owner = owner[np.array(draw(st.permutations(range(len(owner)))))]
    picture = draw(st.lists(st.integers(0, 4), min_size=n_images, max_size=n_images))
    text = draw(st.lists(st.integers(0, 9), min_size=len(owner), max_size=len(owner)))
    size = n_images * len(owner)
    flat = draw(st.lists(st.integers(-2, 3), min_size=size, max_size=size))
    return np.array(flat, np.float32).reshape(n_images, len(owner)), owner, np.array(picture), np.array(text)


@settings(max_examples=100, deadline=None)
@given(cases(), st.integers(1, 8), st.booleans())
def test_measures_match_walks_down_lists_of_distinct_items_for_any_chunk(case, chunk, keep):
    scores, owner, picture, text = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(retrieve.ranks.__globals__, "KEPT_BYTES", 2**26 if keep else 0)
        found = ranked(scores, owner, picture, text, chunk)
    expected = naive(scores, owner, picture, text)
    assert found.measures() == pytest.approx(expected)
    assert [100 * np.mean(found.i2t < k) for k in (1, 5, 10)] == pytest.approx([expected[key] for key in KEYS[:3]])
    assert [100 * np.mean(found.t2i < k) for k in (1, 5, 10)] == pytest.approx([expected[key] for key in KEYS[3:]])
    alone = retrieve.ranks(lambda rows: scores[rows], owner, len(scores))
    assert found.strict() == pytest.approx(recall(alone))


@settings(max_examples=50, deadline=None)
@given(cases())
def test_where_nothing_is_equal_both_protocols_agree(case):
    scores, owner, *_ = case
    found = ranked(scores, owner, np.arange(len(scores)), np.arange(len(owner)))
    assert found.measures() == pytest.approx(recall(retrieve.ranks(lambda rows: scores[rows], owner, len(scores))))


@settings(max_examples=50, deadline=None)
@given(cases(), st.integers(1, 8))
def test_a_second_copy_of_every_pair_changes_no_recall(case, chunk):
    scores, owner, picture, text = case
    twice = np.tile(scores, (2, 2)), np.concatenate([owner, owner + len(scores)]), np.tile(picture, 2), np.tile(text, 2)
    assert ranked(*twice, chunk).measures() == pytest.approx(ranked(scores, owner, picture, text).measures())


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.randoms(use_true_random=False))
def test_captions_shared_out_over_copies_give_the_recall_of_one_image(n_images, random):
    """Two captions of an image, against an image and its copy with one caption each."""
    owner = np.repeat(np.arange(n_images), 2)
    scores = np.array([[random.randint(-3, 3) for _ in owner] for _ in range(n_images)], np.float32)
    once = ranked(scores, owner, np.arange(n_images), np.arange(2 * n_images)).measures()
    copies = np.repeat(scores, 2, axis=0)
    twice = ranked(copies, np.arange(2 * n_images), owner, np.arange(2 * n_images)).measures()
    assert twice == pytest.approx(once)


def test_a_perfect_model_of_labels_finds_them_all():
    """50 images of 5 classes, whose captions are the names of the classes."""
    label = np.arange(50) % 5
    scores = (label[:, None] == label).astype(np.float32)
    found = ranked(scores, np.arange(50), np.arange(50), label, 16)
    assert [found.measures()[key] for key in KEYS] == [100.0] * 6
    assert found.strict()["i2t_r1"] == found.strict()["t2i_r1"] == 0.0
    assert found.ties().queries == 0


def test_ties_with_wrong_answers_are_counted():
    """Images 0 and 1 have one vector, though their pictures differ: four queries of both sides cannot be told apart."""
    scores = np.eye(6, dtype=np.float32)
    scores[1] = scores[0]
    scores[:2, :2] = 1
    found = ranked(scores, np.arange(6), np.arange(6), np.arange(6), 4)
    assert (found.ties().queries, found.ties().total) == (4, 12)
    assert found.ties().favour["rsum"] == 600.0
    [note] = recall_notes("test", found.items, found.measures(), found.strict(), found.ties())
    assert note.startswith("4 of 12 test queries have, among their first ten, a wrong answer with exactly the score")
    assert note.endswith("If they counted for it, rSum would be 600.0.")


def test_ties_beyond_the_first_ten_are_not_counted():
    scores = np.ones((14, 14), np.float32)
    scores[np.arange(14), np.arange(14)] = scores[np.arange(14), np.arange(1, 15) % 14] = 0
    found = ranked(scores, np.arange(14), np.arange(14), np.arange(14))
    assert set(found.i2t) == {13} and found.ties().queries == 0


def features_of(images, texts):
    return Features(Table(images.astype(np.float32)), Table(texts.astype(np.float32)))


def test_copies_and_equal_captions_are_told_with_the_strict_recall():
    """Ten images, the last two of which are copies of the first two; captions 3 and 4 are one text."""
    rng = np.random.default_rng(0)
    images, texts = rng.normal(size=(10, 8)), rng.normal(size=(10, 8))
    images[8:], picture = images[:2], np.array([*range(8), 0, 1])
    texts[4] = texts[3]
    pairs = make_pairs(10, 1)
    pairs = replace(pairs, captions=[*pairs.captions[:3], "A  dog", "a dog", *pairs.captions[5:]])
    features, matcher = features_of(images, texts), TwoTower(8, 8, TwoTowerOptions(dim=4, hidden=4)).eval()
    found = evaluate_equal([matcher], features, pairs, "test", picture)
    assert found.strict == evaluate([matcher], features, pairs, "test")
    assert list(found.views) == ["ensemble", "network_0"] and found.views != found.strict
    assert found.notes[0].startswith(
        "4 of 10 test images are copies of another and 2 of 10 test captions are equal to another. Equal items count as"
        f" one right answer here: rSum is {found.views['ensemble']['rsum']:.1f}. By"
    )
    assert found.notes[0].endswith(f"are right, it is {found.strict['ensemble']['rsum']:.1f}.")
    assert found.views == evaluate([matcher], features, pairs, "test", picture=picture)
    folded = evaluate_equal([matcher], features, pairs, "test", picture, 2)
    assert folded.strict == evaluate([matcher], features, pairs, "test", 2)
    nothing = evaluate_equal(
        [matcher], features_of(rng.normal(size=(10, 8)), texts), make_pairs(10, 1), "test", np.arange(10)
    )
    assert nothing.views == nothing.strict
