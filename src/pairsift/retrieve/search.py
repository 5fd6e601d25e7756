"""Exact nearest neighbours by inner product."""

from __future__ import annotations

import numpy as np

from pairsift.errors import InputError
from pairsift.pairs.pairs import Ints
from pairsift.retrieve.ranks import FloatArray

CHUNK = 8192  # vectors scored at once
QUERIES = 512  # queries scored at once


def top(query: FloatArray, vectors: FloatArray, k: int) -> tuple[Ints, FloatArray]:
    """The `k` vectors with the largest inner product with each query, best first; equal scores by ascending
    index.

    The inner product is the cosine where both sides have unit length. Memory does not grow with the number of
    pairs of query and vector.

    Args:
        query: (d,) or (q, d).
        vectors: (n, d), may be memory-mapped.
        k: At least 1; where it exceeds n, all n come back.

    Returns:
        Indices and scores, each (min(k, n),) or (q, min(k, n)).

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


def _top(query: FloatArray, vectors: FloatArray, k: int) -> tuple[Ints, FloatArray]:
    """`top` for a few queries, (q, d): the best so far, joined by each chunk's best."""
    indices = np.empty((len(query), 0), dtype=np.int64)
    scores: FloatArray = np.empty((len(query), 0), dtype=np.result_type(query, vectors, np.float32))
    for start in range(0, len(vectors), CHUNK):
        found = np.asarray(query @ vectors[start : start + CHUNK].T, dtype=scores.dtype)
        if np.isnan(found).any():
            raise InputError(f"scores are not a number among vectors {start} to {start + found.shape[1] - 1}")
        best = _best(found, k)
        indices = np.concatenate([indices, best + start], axis=1)
        scores = np.concatenate([scores, np.take_along_axis(found, best, axis=1)], axis=1)
        best = _best(scores, k)  # columns already ascend by index among equal scores
        indices = np.take_along_axis(indices, best, axis=1)
        scores = np.take_along_axis(scores, best, axis=1)
    return indices, scores


def _best(scores: FloatArray, k: int) -> Ints:
    """Columns of each row's k largest values, (rows, min(k, columns)), best first, ties by column."""
    k = min(k, scores.shape[1])
    if not len(scores):
        return np.empty((0, k), dtype=np.int64)
    least = -np.partition(-scores, k - 1, axis=1)[:, k - 1]
    rows, columns = np.nonzero(scores >= least[:, None])  # k of each row, and those that tie with the last
    order = np.lexsort((columns, -scores[rows, columns], rows))
    first = np.searchsorted(rows, np.arange(len(scores)))
    taken: Ints = columns[order[first[:, None] + np.arange(k)]]
    return taken
