"""An approximate index for millions of vectors, whose best candidates are ranked again exactly; needs faiss."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsift.arrays import Floats, Ints
from pairsift.retrieve.exact import nearest

CANDIDATES = 200  # items that are ranked again
QUERIES, BEST = 200, 10  # recall is measured on so many queries, over so many best items of each
ENOUGH = 0.98  # recall from which no further cells are searched
TRAINED = 40  # vectors for each cell that the cells are fitted to
ROWS = 4096
SEED = 0


@dataclass(frozen=True)
class Approximate:
    """An inverted index of faiss with vectors of 8 bits per number, and its recall.

    Attributes:
        index: The index of faiss, over the vectors of all networks side by side.
        facts: `recall`, the share of the exact `BEST` items of a query that are among the candidates, a mean over
            `queries` queries, in [0, 1]; `cells` that a query searches; `mark` of the vectors.
    """

    index: Any
    facts: dict[str, Any]

    @staticmethod
    def build(vectors: Sequence[Tensor], queries: Sequence[Tensor]) -> Approximate:
        """Build the index, and search as many cells as a recall of `ENOUGH` takes.

        Args:
            vectors: Each network's vectors of the items, (n, d) each.
            queries: Each network's vectors of queries of the kind that will be asked, (q, d) each; evenly spaced
                `QUERIES` of them are taken.
        """
        import faiss

        n = len(vectors[0])
        cells = min(2 * isqrt(n), max(1, n // TRAINED))
        width = sum(part.shape[1] for part in vectors)
        index: Any = faiss.index_factory(width, f"IVF{cells},SQ8", faiss.METRIC_INNER_PRODUCT)
        rng = np.random.default_rng(SEED)
        index.train(_rows(vectors, np.sort(rng.choice(n, min(n, TRAINED * cells), replace=False))))
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
        return Approximate(index, facts)

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


def closest(
    queries: Sequence[Tensor], vectors: Sequence[Tensor], k: int, index: Approximate | None = None
) -> tuple[Ints, Floats]:
    """Return the `k` items with the largest mean inner product with the only query, best first; see `nearest`.

    With an index, these are the best of its candidates.
    """
    found = None if index is None else index.candidates(queries, max(k, CANDIDATES))
    if found is None or len(found) < min(k, len(vectors[0])):
        rows, scores = nearest(queries, vectors, k)
        return rows[0], scores[0]
    places = torch.from_numpy(found).to(vectors[0].device)
    rows, scores = nearest(queries, [part[places] for part in vectors], k)
    return found[rows[0]], scores[0]


def _rows(vectors: Sequence[Tensor], rows: Ints) -> Floats:
    """Return these rows of all networks side by side, (len(rows), sum of d)."""
    picked = [part[torch.from_numpy(rows).to(part.device)].float().cpu() for part in vectors]
    return np.ascontiguousarray(torch.cat(picked, 1).numpy())


def mark_of(vectors: Sequence[Tensor]) -> str:
    """Return a digest of some rows, by which an index of other vectors is recognised."""
    n = len(vectors[0])
    rows = np.unique(np.linspace(0, max(n - 1, 0), 64).astype(np.int64))[:n]
    return hashlib.sha256(f"{n} ".encode() + _rows(vectors, rows).tobytes()).hexdigest()[:32]
