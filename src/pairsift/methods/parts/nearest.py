"""A nearest neighbour search in bounded memory, over all vectors or over clean pairs only."""

from __future__ import annotations

import numpy as np

from pairsift.arrays import Floats, Ints, unit_rows

CELLS = 2**24  # largest number of products in memory at once


def nearest(queries: Floats, keys: Floats, banned: Ints | None = None, cells: int = CELLS) -> Ints:
    """Return the index of the key with the largest cosine for every query, the first of equal ones.

    Args:
        queries: Vectors of any norm, (n, d).
        keys: Vectors of any norm, at least one, (m, d).
        banned: Index of a key that each query must not take, (n,); -1 for none.
        cells: Largest number of products in memory at once.

    Returns:
        Indices of keys, (n,); a query whose only key is banned still takes this key.
    """
    keys = unit_rows(keys)
    indices = np.zeros(len(queries), np.int64)
    rows = max(1, cells // len(keys))
    for start in range(0, len(queries), rows):
        cosine = unit_rows(queries[start : start + rows]) @ keys.T
        if banned is not None:
            column = banned[start : start + rows]
            banned_rows = np.flatnonzero(column >= 0)
            cosine[banned_rows, column[banned_rows]] = -np.inf
        indices[start : start + rows] = cosine.argmax(1)
    return indices


def nearest_clean(vectors: Floats, items: Ints, clean: Ints, self_match: bool = True) -> Ints:
    """Return for each row the clean row with the nearest item by cosine, (n,); of rows with this item, the least loss.

    Args:
        vectors: Vectors of the items, (n, d); rows of the same item have equal vectors.
        items: The image or caption of each row, (n,).
        clean: Clean rows, ascending by loss.
        self_match: Whether a clean row may match itself.
    """
    _, first, group = np.unique(items, return_index=True, return_inverse=True)
    keys = clean[np.unique(items[clean], return_index=True)[1]]
    entry = np.full(len(first), -1)
    entry[group[keys]] = keys  # an item of a clean row is nearest to itself
    others = np.flatnonzero(entry < 0)
    entry[others] = keys[nearest(vectors[first[others]], vectors[keys])]
    matches = entry[group]
    if not self_match:
        place = np.full(len(items), -1)
        place[clean] = np.arange(len(clean))
        self_matches = np.flatnonzero(matches == np.arange(len(items)))
        matches[self_matches] = clean[nearest(vectors[self_matches], vectors[clean], place[self_matches])]
    return np.asarray(matches, np.int64)
