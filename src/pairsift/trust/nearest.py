"""The nearest of some vectors, without ever holding all products at once; and so the bank of clean pairs."""

from __future__ import annotations

import numpy as np

from pairsift.arrays import Floats, Ints

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


def nearest_clean(vectors: Floats, items: Ints, clean: Ints, self_match: bool = True) -> Ints:
    """For each row the clean row whose item is nearest by cosine; of several, the one of least loss, (n,).

    Args:
        vectors: Of the items, (n, d); rows of the same item are alike.
        items: The image or caption of each row, (n,).
        clean: Clean rows, ascending by loss.
        self_match: Whether a clean row may be its own answer.
    """
    _, first, group = np.unique(items, return_index=True, return_inverse=True)
    keys = clean[np.unique(items[clean], return_index=True)[1]]
    entry = np.full(len(first), -1)
    entry[group[keys]] = keys  # an item of a clean row is nearest to itself
    others = np.flatnonzero(entry < 0)
    entry[others] = keys[nearest(vectors[first[others]], vectors[keys])]
    found = entry[group]
    if not self_match:
        place = np.full(len(items), -1)
        place[clean] = np.arange(len(clean))
        own = np.flatnonzero(found == np.arange(len(items)))
        found[own] = clean[nearest(vectors[own], vectors[clean], place[own])]
    return np.asarray(found, np.int64)


def _unit(x: Floats) -> Floats:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12), np.float32)
