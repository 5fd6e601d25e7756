"""Exact search over the global vectors of several networks, block by block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from pairsift.arrays import Floats, Ints
from pairsift.errors import InputError
from pairsift.match.base import products
from pairsift.retrieve.ranks import FloatArray

BLOCK = 2**23  # numbers that a block of vectors has


def nearest(queries: Sequence[Tensor], vectors: Sequence[Tensor], k: int) -> tuple[Ints, Floats]:
    """Return the `k` items with the largest mean inner product with each query, best first.

    The mean is that over the networks. Items with equal scores are ordered by ascending index. Only a block of the
    vectors is converted to float32 at a time, so the search needs little memory besides the vectors.

    Args:
        queries: Each network's vectors of the queries, (q, d) each.
        vectors: Each network's vectors of the items, (n, d) each, on the same device, in any precision.
        k: At least 1. If it exceeds n, all items are returned.

    Returns:
        Indices and scores, each (q, min(k, n)).

    Raises:
        InputError: k is below 1, or a score is not a number.
    """
    if k < 1:
        raise InputError(f"k is {k}: ask for at least 1")
    indices, scores = _merged(_blocks(queries, vectors), len(queries[0]), k)
    return indices, np.asarray(scores, np.float32)


def _merged(blocks: Iterable[FloatArray], queries: int, k: int) -> tuple[Ints, FloatArray]:
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


def _blocks(queries: Sequence[Tensor], vectors: Sequence[Tensor]) -> Iterator[Floats]:
    """Yield the scores of each query with the items of each block, (q, block)."""
    rows = min(len(vectors[0]), max(1, BLOCK // max(1, vectors[0].shape[1])))
    room = [torch.empty(rows, items.shape[1], device=items.device) for items in vectors]  # new memory is slow to get
    for start in range(0, len(vectors[0]), max(1, rows)):
        total = torch.zeros(())
        for query, items, block in zip(queries, vectors, room, strict=True):
            part = items[start : start + rows]
            total = total.to(part.device) + products(query, block[: len(part)].copy_(part))
        yield np.asarray((total / len(vectors)).cpu().numpy(), np.float32)


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
