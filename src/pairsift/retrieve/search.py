"""An exact nearest neighbour search by inner product."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pairsift.arrays import Ints
from pairsift.errors import InputError
from pairsift.retrieve.ranks import FloatArray

CHUNK = 8192  # vectors scored at once
QUERIES = 512  # queries scored at once


def top(query: FloatArray, vectors: FloatArray, k: int) -> tuple[Ints, FloatArray]:
    """Return the `k` vectors with the largest inner product with each query, best first.

    Vectors with equal scores are ordered by ascending index. The inner product is the cosine where both sides have unit
    length. The memory needed does not grow with the product of the numbers of queries and vectors.

    Args:
        query: (d,) or (q, d).
        vectors: (n, d); may be memory-mapped.
        k: At least 1. If it exceeds n, all n vectors are returned.

    Returns:
        Indices and scores, each (min(k, n),) for one query or (q, min(k, n)) for several.

    Raises:
        ValueError: Shapes do not fit.
        InputError: k is below 1, or a score is not a number.
    """
    query = np.asarray(query)
    if query.ndim not in (1, 2) or vectors.ndim != 2 or query.shape[-1] != vectors.shape[1]:
        raise ValueError(f"queries of shape {query.shape} do not fit vectors of shape {vectors.shape}")
    if k < 1:
        raise InputError(f"k is {k}: ask for at least 1")
    many = np.atleast_2d(query)
    parts = [_top(many[start : start + QUERIES], vectors, k) for start in range(0, max(len(many), 1), QUERIES)]
    indices = np.concatenate([part[0] for part in parts])
    scores = np.concatenate([part[1] for part in parts])
    return (indices[0], scores[0]) if query.ndim == 1 else (indices, scores)


def merged(blocks: Iterable[FloatArray], queries: int, k: int) -> tuple[Ints, FloatArray]:
    """Return the `k` largest scores of each query among consecutive blocks of items, best first, ties by the index.

    Args:
        blocks: Scores of each query with the items of a block, (q, block) each; they are read one at a time.
        queries: The number of queries, q.
        k: At least 1.

    Returns:
        Indices of the items and their scores, each (q, min(k, n_items)).

    Raises:
        InputError: A score is not a number.
    """
    indices = np.empty((queries, 0), dtype=np.int64)
    scores: FloatArray = np.empty((queries, 0), dtype=np.float32)
    start = 0
    for block in blocks:
        if np.isnan(block).any():
            raise InputError(f"scores are not a number among vectors {start} to {start + block.shape[1] - 1}")
        best = _best(block, k)
        indices = np.concatenate([indices, best + start], axis=1)
        scores = np.concatenate([scores, np.take_along_axis(block, best, axis=1)], axis=1)
        best = _best(scores, k)  # among equal scores the columns are already in ascending order of the index
        indices = np.take_along_axis(indices, best, axis=1)
        scores = np.take_along_axis(scores, best, axis=1)
        start += block.shape[1]
    return indices, scores


def _top(query: FloatArray, vectors: FloatArray, k: int) -> tuple[Ints, FloatArray]:
    """Search like `top` for at most `QUERIES` queries, (q, d)."""
    kind = np.result_type(query, vectors, np.float32)
    starts = range(0, len(vectors), CHUNK)
    blocks = (np.asarray(query @ vectors[start : start + CHUNK].T, dtype=kind) for start in starts)
    return merged(blocks, len(query), k)


def _best(scores: FloatArray, k: int) -> Ints:
    """Return the columns of the k largest values of each row, (rows, min(k, columns)), best first, ties by column."""
    k = min(k, scores.shape[1])
    if not len(scores):
        return np.empty((0, k), dtype=np.int64)
    threshold = -np.partition(-scores, k - 1, axis=1)[:, k - 1]
    rows, columns = np.nonzero(scores >= threshold[:, None])  # k entries of each row, and those that tie with the k-th
    order = np.lexsort((columns, -scores[rows, columns], rows))
    first = np.searchsorted(rows, np.arange(len(scores)))
    best: Ints = columns[order[first[:, None] + np.arange(k)]]
    return best
