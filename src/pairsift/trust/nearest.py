"""The nearest of some vectors, without ever holding all products at once."""

from __future__ import annotations

import numpy as np

from pairsift.pairs.pairs import Ints
from pairsift.trust.mixture import Floats

CELLS = 2**24  # products held at once


def nearest(queries: Floats, keys: Floats, banned: Ints | None = None, cells: int = CELLS) -> Ints:
    """Index of the key with the largest cosine for every query; the first of several.

    Args:
        queries: (n, d), of any length.
        keys: (m, d), of any length, at least one.
        banned: Index of a key that each query must not take, (n,); -1 for none.
        cells: Products held at once.

    Returns:
        (n,); a query whose only key is banned takes it all the same.
    """
    keys = _unit(keys)
    found = np.zeros(len(queries), np.int64)
    rows = max(1, cells // len(keys))
    for start in range(0, len(queries), rows):
        cosine = _unit(queries[start : start + rows]) @ keys.T
        if banned is not None:
            column = banned[start : start + rows]
            held = np.flatnonzero(column >= 0)
            cosine[held, column[held]] = -np.inf
        found[start : start + rows] = cosine.argmax(1)
    return found


def _unit(x: Floats) -> Floats:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12), np.float32)
