"""Search against a sort of all scores."""

from __future__ import annotations

import numpy as np
import pytest

import pairsift.retrieve.search
from pairsift.retrieve import top


def loops(query, vectors, k):
    scores = [(-float(np.dot(query, vector)), index) for index, vector in enumerate(vectors)]
    best = sorted(scores)[:k]
    return [index for _, index in best], [-score for score, _ in best]


@pytest.mark.parametrize("chunk", [1, 3, 8192])
@pytest.mark.parametrize("k", [1, 4, 50])
def test_top_matches_a_full_sort_with_ties(chunk, k, monkeypatch):
    monkeypatch.setattr(pairsift.retrieve.search, "CHUNK", chunk)
    monkeypatch.setattr(pairsift.retrieve.search, "QUERIES", 2)
    rng = np.random.default_rng(k)
    vectors = rng.integers(-1, 2, size=(20, 3)).astype(np.float32)
    queries = rng.integers(-1, 2, size=(5, 3)).astype(np.float32)
    indices, scores = top(queries, vectors, k)
    assert indices.shape == scores.shape == (5, min(k, 20))
    for row, query in enumerate(queries):
        expected = loops(query, vectors, k)
        assert (indices[row].tolist(), scores[row].tolist()) == expected
        one = top(query, vectors, k)
        assert (one[0].tolist(), one[1].tolist()) == expected


def test_nothing_to_search_and_no_queries():
    indices, scores = top(np.ones(3), np.empty((0, 3)), 5)
    assert indices.shape == scores.shape == (0,)
    indices, scores = top(np.empty((0, 3)), np.ones((4, 3)), 5)
    assert indices.shape == scores.shape == (0, 4)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"shape \(4,\) do not fit vectors of shape \(2, 3\)"):
        top(np.ones(4), np.ones((2, 3)), 1)
    with pytest.raises(ValueError, match="k is 0"):
        top(np.ones(3), np.ones((2, 3)), 0)
    with pytest.raises(ValueError, match="not a number"):
        top(np.array([1, np.nan, 0]), np.ones((2, 3)), 1)
