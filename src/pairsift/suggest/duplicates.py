"""Images and captions that occur several times, and captions that fit many images."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from scipy.stats import binom

from pairsift.arrays import Bools, Floats, Ints, equal_numbers, unit_rows

BLOCK = 1024  # rows that are compared each with each
NEAREST = 16  # number of earlier rows that a row of a later block is compared with
LOOKS = 0.99  # smallest correlation of the thumbnails of copies
LOOKS_OF_NEAR = 0.9  # smallest correlation of the thumbnails of copies whose encoder's vectors are near-duplicates
DIRECTIONS = 16  # of the thumbnails, along which candidates are searched
VAGUE_IMAGES = 5  # smallest number of images of a vague caption
CHANCE = 1e-3  # probability below which it is no chance that so many pairs of a caption look mismatched


def same_pictures(thumbnails: Floats, group: Ints, looks: float = LOOKS) -> Ints:
    """Return the group of copies of each image, (n,), numbered from 0.

    Two images are copies if their thumbnails have a correlation of at least `looks`: pictures that were resized or
    compressed. If their encoder's vectors are near-duplicates, 0.9 is enough: pictures that were also cropped or made
    brighter. A chain of copies is a group.

    Args:
        thumbnails: Cells of each image, (n, d).
        group: Group of near-duplicates of each image by the encoder's vectors, (n,).
        looks: Smallest correlation of copies whose vectors are no near-duplicates, from 0.9 to 1.
    """
    cells, place = np.unique(thumbnails, axis=0, return_inverse=True)
    place = place.ravel()
    unit = unit_rows(cells - cells.mean(1, keepdims=True))
    links = np.concatenate([_links(unit, looks), *_links_in_groups(place, group, unit)])
    return np.unique(_components(links, len(cells))[place], return_inverse=True)[1].astype(np.int64)


def _links(unit: Floats, least: float) -> Ints:
    """Return pairs of rows with an inner product of at least `least`, (m, 2).

    They are as many as connect whatever all such pairs connect. Their number grows with the number of rows, not with
    its square. Up to `BLOCK` rows are compared each with each. Of more, each block is compared in itself and with the
    nearest rows of earlier blocks. Later blocks are not compared with a row that is like `NEAREST` others with which
    they are: these stand for it.
    """
    links, points, earlier = [np.zeros((0, 2), np.int64)], _projected(unit), list[tuple[Ints, cKDTree]]()
    for start in range(0, len(unit), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(unit)))
        alike = np.tril(unit[rows] @ unit[rows].T >= least, -1)
        links.append(start + _connecting(alike))
        count = np.zeros(len(rows), np.int64)
        for others, tree in earlier:
            found = _near_links(points, unit, rows, others, tree, least)
            links.append(found)
            count += np.bincount(found[:, 0] - start, minlength=len(rows))
        if rows[-1] + 1 < len(unit):
            kept = start + _kept(alike, count)
            while earlier and len(earlier[-1][0]) <= 2 * len(kept):  # few trees, of which few are built again
                kept = np.concatenate([earlier.pop()[0], kept])
            earlier.append((kept, cKDTree(points[kept])))
    return np.concatenate(links)


def _projected(unit: Floats) -> Floats:
    """Return projections of unit vectors to a few directions, where they are no farther from each other."""
    if len(unit) <= BLOCK:
        return unit
    centred = unit - unit.mean(0)
    return np.asarray(centred @ np.linalg.eigh(centred.T @ centred)[1][:, -DIRECTIONS:])


def _kept(alike: Bools, count: Ints) -> Ints:
    """Return the rows of a block that are like fewer than `NEAREST` rows that were kept before them, (m,).

    Args:
        alike: Whether each row of the block is like each earlier one of it, (n, n).
        count: Number of kept rows of earlier blocks that each row is like, (n,).
    """
    keep = np.ones(len(alike), np.bool_)
    for row in np.flatnonzero(count + alike.sum(1) >= NEAREST).tolist():
        keep[row] = count[row] + np.count_nonzero(alike[row] & keep) < NEAREST
    return np.flatnonzero(keep)


def _connecting(alike: Bools) -> Ints:
    """Return entries that connect the same rows and columns as all entries that are set, (m, 2)."""
    if len(alike) <= NEAREST:
        return np.argwhere(alike)
    label = connected_components(alike, directed=False)[1]
    first = np.unique(label, return_index=True)[1]
    return np.stack([np.arange(len(alike)), first[label]], 1)


def _near_links(points: Floats, unit: Floats, rows: Ints, others: Ints, tree: cKDTree, least: float) -> Ints:
    """Return the pairs of each row with its nearest others that have an inner product of at least `least`, (m, 2).

    Args:
        points: Projections of the unit vectors.
        unit: The unit vectors.
        rows: Rows to compare.
        others: Rows to compare them with.
        tree: The projections of these.
        least: The smallest inner product.
    """
    reach = np.sqrt(2 - 2 * least) + 1e-5  # unit vectors are at most this far from each other
    near = tree.query(points[rows], NEAREST, distance_upper_bound=reach)[1]
    place, column = np.nonzero(near < len(others))
    one, other = rows[place], others[near[place, column]]
    return np.asarray(np.stack([one, other], 1)[(unit[one] * unit[other]).sum(1) >= least], np.int64)


def _links_in_groups(place: Ints, group: Ints, unit: Floats) -> Iterator[Ints]:
    """Yield links of rows in the same group of near-duplicates with an inner product of at least `LOOKS_OF_NEAR`.

    Args:
        place: Row of each image, (n,).
        group: Group of near-duplicates of each image, (n,).
        unit: Thumbnails of unit length.
    """
    shared = np.flatnonzero(np.bincount(group, minlength=1)[group] > 1)
    order = shared[np.argsort(group[shared], kind="stable")]
    for members in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        rows = np.unique(place[members])
        yield rows[_links(unit[rows], LOOKS_OF_NEAR)]


def _components(links: Ints, size: int) -> Ints:
    """Return the number of the component of each row, (size,)."""
    graph = coo_matrix((np.ones(len(links), np.bool_), links.T), (size, size))
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)


class _Letters(dict[int, str]):
    """A table for `str.translate` that replaces what is no letter, number or mark by a space."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        return self.setdefault(code, letter if unicodedata.category(letter)[0] in "LNM" else " ")


def word_numbers(captions: Iterable[str]) -> Ints:
    """Return a number for each caption, the same for captions of the same words, (n,); see `words_of`."""
    return equal_numbers(words_of(captions))


def words_of(captions: Iterable[str]) -> Iterator[str]:
    """Yield the words of each caption.

    Case, punctuation and spaces do not count. `pairsift.arrays.text_numbers` tells captions apart by punctuation.
    """
    letters = _Letters()
    for text in captions:
        yield " ".join(text.casefold().translate(letters).split()) or text  # of emoji, no word is left


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
        text: Number of each pair's caption, any numbers, (n,).
        image: Group of copies of each pair's image, (n,).
        is_mismatch: Whether each pair is flagged, (n,).
    """
    vague = np.zeros(len(text), np.bool_)
    ascending, apart = np.sort(text), VAGUE_IMAGES - 1
    common = np.unique(ascending[apart:][ascending[apart:] == ascending[:-apart]])  # captions of so many pairs
    if not len(common):
        return vague
    rows = np.flatnonzero(common[np.searchsorted(common, text).clip(max=len(common) - 1)] == text)
    text = np.searchsorted(common, text[rows])
    flagged = np.bincount(text, is_mismatch[rows])
    unlikely = (binom.sf(flagged - 1, np.bincount(text), is_mismatch.mean()) < CHANCE)[text]
    rows, text = rows[unlikely], text[unlikely]
    images = np.bincount(np.unique(np.stack([text, image[rows]]), axis=1)[0], minlength=len(common))
    vague[rows] = is_mismatch[rows] & (images >= VAGUE_IMAGES)[text]
    return vague
