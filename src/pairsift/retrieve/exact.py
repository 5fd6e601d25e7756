"""Exact search over the global vectors of several networks, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from pairsift.arrays import Floats, Ints
from pairsift.errors import InputError
from pairsift.match.base import products
from pairsift.retrieve.search import merged

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
    indices, scores = merged(_blocks(queries, vectors), len(queries[0]), k)
    return indices, np.asarray(scores, np.float32)


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
