"""Search for the nearest vectors of several networks: exact, block by block, or by an approximate index of faiss."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsift.arrays import Floats, Ints
from pairsift.errors import InputError
from pairsift.match.base import products
from pairsift.retrieve.ranks import FloatArray

BLOCK = 2**23  # numbers in a block of vectors
CANDIDATES = 200  # items that are ranked again
QUERIES, BEST = 200, 10  # recall is measured on this number of queries, over this number of best items of each
ENOUGH = 0.98  # recall; once it is reached, no further cells are searched
FITTED_PER_CELL = 40  # vectors that the cells are fitted to, for each cell
ROWS = 4096  # vectors that are added to an index at once
SEED = 0


def nearest(queries: Sequence[Tensor], vectors: Sequence[Tensor], k: int) -> tuple[Ints, Floats]:
    """Return the `k` items with the largest mean inner product with each query, best first.

    The mean is taken over the networks. Items with equal scores are ordered by ascending index. Only a block of the
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


def closest(
    queries: Sequence[Tensor], vectors: Sequence[Tensor], k: int, index: ApproximateIndex | None = None
) -> tuple[Ints, Floats]:
    """Return the `k` items with the largest mean inner product with the only query, best first.

    This is `nearest` without an index. With an index, the result is the best of its candidates.
    """
    found = None if index is None else index.candidates(queries, max(k, CANDIDATES))
    if found is None or len(found) < min(k, len(vectors[0])):
        rows, scores = nearest(queries, vectors, k)
        return rows[0], scores[0]
    places = torch.from_numpy(found).to(vectors[0].device)
    rows, scores = nearest(queries, [part[places] for part in vectors], k)
    return found[rows[0]], scores[0]


@dataclass(frozen=True)
class ApproximateIndex:
    """An inverted index of faiss with vectors of 8 bits per number, and its recall.

    Attributes:
        index: The index of faiss, over the vectors of all networks side by side.
        facts: `recall`, the share of the exact `BEST` items of a query that are among the candidates, a mean over
            `queries` queries, in [0, 1]; `cells` that a query searches; `mark` of the vectors.
    """

    index: Any
    facts: dict[str, Any]

    @staticmethod
    def build(vectors: Sequence[Tensor], queries: Sequence[Tensor]) -> ApproximateIndex:
        """Build the index, and choose the number of searched cells for a recall of `ENOUGH`.

        Args:
            vectors: Each network's vectors of the items, (n, d) each.
            queries: Each network's vectors of queries of the kind that will be asked, (q, d) each. `QUERIES` of them
                are taken, evenly spaced.
        """
        import faiss

        n = len(vectors[0])
        cells = min(2 * isqrt(n), max(1, n // FITTED_PER_CELL))
        width = sum(part.shape[1] for part in vectors)
        index: Any = faiss.index_factory(width, f"IVF{cells},SQ8", faiss.METRIC_INNER_PRODUCT)
        rng = np.random.default_rng(SEED)
        index.train(_rows(vectors, np.sort(rng.choice(n, min(n, FITTED_PER_CELL * cells), replace=False))))
        for start in range(0, n, ROWS):
            index.add(_rows(vectors, np.arange(start, min(n, start + ROWS))))
        every = np.linspace(0, len(queries[0]) - 1, min(QUERIES, len(queries[0]))).astype(np.int64)
        asked = [part[torch.from_numpy(every)] for part in queries]
        expected, _ = nearest(asked, vectors, BEST)
        recall, searched = 0.0, 0
        while not searched or (recall < ENOUGH and searched < cells):
            searched = min(max(8, 2 * searched), cells)
            index.nprobe = searched
            found = index.search(_rows(asked, np.arange(len(every))), CANDIDATES)[1]
            recall = float(np.mean([np.isin(best, row).mean() for best, row in zip(expected, found, strict=True)]))
        facts = {"recall": recall, "queries": len(every), "cells": searched, "mark": mark_of(vectors)}
        return ApproximateIndex(index, facts)

    def candidates(self, queries: Sequence[Tensor], k: int) -> Ints:
        """Return about the `k` items closest to the only query, in ascending order, (at most k,)."""
        found = self.index.search(_rows(queries, np.zeros(1, np.int64)), k)[1][0]
        return np.sort(found[found >= 0]).astype(np.int64)

    def serialized(self) -> NDArray[np.uint8]:
        """Return the index of faiss as bytes."""
        import faiss

        content: NDArray[np.uint8] = faiss.serialize_index(self.index)
        return content

    @property
    def line(self) -> str:
        """A sentence about the recall."""
        recall, queries = self.facts["recall"], self.facts["queries"]
        return f"approximate search: {recall:.1%} of the {BEST} best are found, measured on {queries} queries"


def mark_of(vectors: Sequence[Tensor]) -> str:
    """Return a digest of some rows, which tells whether an index was built from these vectors."""
    n = len(vectors[0])
    rows = np.unique(np.linspace(0, max(n - 1, 0), 64).astype(np.int64))[:n]
    return hashlib.sha256(f"{n} ".encode() + _rows(vectors, rows).tobytes()).hexdigest()[:32]


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
        places = np.broadcast_to(np.arange(start, start + block.shape[1]), block.shape)
        indices, scores = np.concatenate([indices, places], axis=1), np.concatenate([scores, block], axis=1)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        indices, scores = np.take_along_axis(indices, best, axis=1), np.take_along_axis(scores, best, axis=1)
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


def _rows(vectors: Sequence[Tensor], rows: Ints) -> Floats:
    """Return these rows of all networks side by side, (len(rows), sum of d)."""
    picked = [part[torch.from_numpy(rows).to(part.device)].float().cpu() for part in vectors]
    return np.ascontiguousarray(torch.cat(picked, 1).numpy())
