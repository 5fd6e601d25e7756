"""The pairs that a judge learns from, and the shards of the others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pairsift.arrays import Ints, first_numbers

LEARNED = 50_000  # most pairs that a judge learns from, and about as many are in a shard
LARGE_IMAGE = 500  # an image with more pairs is not kept together


def learned_rows(image_of: Ints, seed: int) -> tuple[Ints, Ints]:
    """Return the pairs that a judge learns from, by whole images, and the others in the order of their images.

    Up to 50,000 pairs, it learns from all.

    Args:
        image_of: Number of each pair's image, from 0 in the order in which images first appear, (n,).
        seed: Seed of the choice.
    """
    if len(image_of) <= LEARNED:
        return np.arange(len(image_of)), np.zeros(0, np.int64)
    unit, size = image_of, np.bincount(image_of)
    if size.max() > LARGE_IMAGE:  # its pairs are drawn one by one
        unit = np.where(size[image_of] > LARGE_IMAGE, len(image_of) + np.arange(len(image_of)), image_of)
        unit = first_numbers(unit)
        size = np.bincount(unit)
    order = np.random.default_rng((seed, 19)).permutation(len(size))
    chosen = np.zeros(len(size), np.bool_)
    chosen[order[np.cumsum(size[order]) <= LEARNED]] = True
    learned = chosen[unit]
    rest = np.flatnonzero(~learned)
    return np.flatnonzero(learned), rest[np.argsort(image_of[rest], kind="stable")]


def cut(image_of: Ints, rows: Ints) -> Iterator[Ints]:
    """Yield parts of rows that are ordered by their images, each with about 50,000 pairs of whole images."""
    start, image = 0, image_of[rows]
    while start < len(rows):
        end = min(start + LEARNED, len(rows))
        last = int(np.searchsorted(image, image[end - 1], "right"))
        end = min(last, end + LARGE_IMAGE)
        yield rows[start:end]
        start = end
