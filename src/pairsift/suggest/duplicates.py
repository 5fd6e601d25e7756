"""Images and captions that occur several times, and captions that fit many images."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from scipy.stats import binom

from pairsift.arrays import Bools, Floats, Ints, unit_rows

CHUNK = 4096  # rows compared at once
LOOKS = 0.99  # smallest correlation of the thumbnails of copies
LOOKS_OF_NEAR = 0.9  # smallest correlation of the thumbnails of copies whose encoder's vectors are near-duplicates
DIRECTIONS = 16  # of the thumbnails, along which candidates are searched
VAGUE_IMAGES = 5  # smallest number of images of a vague caption
CHANCE = 1e-3  # probability below which it is no chance that so many pairs of a caption look mismatched


def same_pictures(thumbnails: Floats, group: Ints) -> Ints:
    """Return the group of copies of each image, (n,), numbered from 0.

    Two images are copies if their thumbnails have a correlation of at least 0.99: pictures that were resized or
    compressed. If their encoder's vectors are near-duplicates, 0.9 is enough: pictures that were also cropped or made
    brighter. A chain of copies is a group.

    Args:
        thumbnails: Cells of each image, (n, d).
        group: Group of near-duplicates of each image by the encoder's vectors, (n,).
    """
    cells, place = np.unique(thumbnails, axis=0, return_inverse=True)
    place = place.ravel()
    unit = unit_rows(cells - cells.mean(1, keepdims=True))
    edges = [_alike(unit), _chains(place, group, unit)]
    rows, columns = np.concatenate(edges).T
    graph = coo_matrix((np.ones(len(rows), np.bool_), (rows, columns)), (len(cells), len(cells)))
    component = connected_components(graph, directed=False)[1]
    return np.unique(component[place], return_inverse=True)[1].astype(np.int64)


def _alike(unit: Floats) -> Ints:
    """Return the pairs of rows with an inner product of at least `LOOKS`, (m, 2)."""
    if len(unit) < 2:
        return np.zeros((0, 2), np.int64)
    centred = unit - unit.mean(0)
    directions = np.linalg.eigh(centred.T @ centred)[1][:, -DIRECTIONS:]
    # Unit vectors are at most this far from each other, and their projections are no farther.
    distance = np.sqrt(2 - 2 * LOOKS) + 1e-5
    near = cKDTree(centred @ directions).query_pairs(distance, output_type="ndarray").astype(np.int64)
    keep = [
        (unit[part[:, 0]] * unit[part[:, 1]]).sum(1) >= LOOKS
        for part in np.array_split(near, max(1, len(near) // CHUNK))
    ]
    return np.asarray(near[np.concatenate(keep)], np.int64)


def _chains(place: Ints, group: Ints, unit: Floats) -> Ints:
    """Return pairs of rows in the same group of near-duplicates with an inner product of at least `LOOKS_OF_NEAR`.

    Args:
        place: Row of each image, (n,).
        group: Group of near-duplicates of each image, (n,).
        unit: Thumbnails of unit length.
    """
    edges = [np.zeros((0, 2), np.int64)]
    shared = np.flatnonzero(np.bincount(group, minlength=1)[group] > 1)
    order = shared[np.argsort(group[shared], kind="stable")]
    for members in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        rows = np.unique(place[members])
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            one, other = np.nonzero(unit[part] @ unit[rows].T >= LOOKS_OF_NEAR)
            edges.append(np.stack([part[one], rows[other]], axis=1))
    return np.concatenate(edges)


class _Letters(dict[int, str]):
    """A table for `str.translate` that replaces what is no letter, number or mark by a space."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        return self.setdefault(code, letter if unicodedata.category(letter)[0] in "LNM" else " ")


def word_numbers(captions: Sequence[str]) -> Ints:
    """Return a number for each caption, the same for captions of the same words, (n,).

    Case, punctuation and spaces do not count. `pairsift.arrays.text_numbers` tells captions apart by punctuation.
    """
    number: dict[str, int] = {}
    numbers, letters = np.empty(len(captions), np.int64), _Letters()
    for place, text in enumerate(captions):
        words = " ".join(text.casefold().translate(letters).split()) or text  # of emoji, no word is left
        numbers[place] = number.setdefault(words, len(number))
    return numbers


def repeated(group: Ints, item: Ints) -> Ints:
    """Return the group of each row if different items are in it, else -1, (n,).

    Args:
        group: Group of each row, such as the number of its caption, (n,).
        item: What must differ, such as its image, (n,).
    """
    both = np.unique(np.stack([group, item]), axis=1)[0]
    count = np.bincount(both, minlength=int(group.max(initial=-1)) + 1)
    return np.where(count[group] > 1, group, -1)


def vague_captions(text: Ints, image: Ints, is_mismatch: NDArray[np.bool_]) -> Bools:
    """Return whether each flagged pair has a vague caption, such as "photo", (n,).

    A caption is vague if it is given with at least five images, and so many of these pairs are flagged as chance would
    rarely flag (p < 0.001, binomial test). Such a caption does not belong to another image: it describes none of them.

    Args:
        text: Number of each pair's caption, (n,).
        image: Group of copies of each pair's image, (n,).
        is_mismatch: Whether each pair is flagged, (n,).
    """
    size = int(text.max(initial=-1)) + 1
    images = np.bincount(np.unique(np.stack([text, image]), axis=1)[0], minlength=size)
    pairs, flagged = np.bincount(text, minlength=size), np.bincount(text, is_mismatch, minlength=size)
    rate = is_mismatch.mean() if len(is_mismatch) else 0.0
    unlikely = binom.sf(flagged - 1, pairs, rate) < CHANCE
    return np.asarray(is_mismatch & ((images >= VAGUE_IMAGES) & unlikely)[text], np.bool_)
