"""A nearest neighbour search in bounded memory, over all vectors or over clean pairs only."""

from __future__ import annotations

import numpy as np

from pairsift.arrays import Floats, Ints, unit_rows

CELLS = 2**24  # largest number of products in memory at once


def nearest(queries: Floats, keys: Floats, cells: int = CELLS) -> Ints:
    """Return the index of the key with the largest cosine for every query, the first of equal ones, (n,).

    Args:
        queries: Vectors of any norm, (n, d).
        keys: Vectors of any norm, at least one, (m, d).
        cells: Largest number of products in memory at once.
    """
    keys = unit_rows(keys)
    indices = np.zeros(len(queries), np.int64)
    rows = max(1, cells // len(keys))
    for start in range(0, len(queries), rows):
        block = unit_rows(queries[start : start + rows])
        indices[start : start + rows] = (block @ keys.T).argmax(1)
    return indices


def nearest_clean(vectors: Floats, items: Ints, clean: Ints) -> Ints:
    """Return for each row the clean row with the nearest item by cosine, (n,).

    Of several clean rows with this item, it is the one of least loss. A clean row may be its own.

    Args:
        vectors: Vectors of the items, (n, d); rows of the same item have equal vectors.
        items: The image or caption of each row, (n,).
        clean: Clean rows, ascending by loss.
    """
    # Each item once: `first` is a row with it, `group` the item of each row.
    _, first, group = np.unique(items, return_index=True, return_inverse=True)
    # The items of clean rows, each by its row of least loss.
    keys = clean[np.unique(items[clean], return_index=True)[1]]
    matches = np.full(len(first), -1)
    matches[group[keys]] = keys  # an item of a clean row is nearest to itself
    others = np.flatnonzero(matches < 0)
    matches[others] = keys[nearest(vectors[first[others]], vectors[keys])]
    return np.asarray(matches[group], np.int64)
