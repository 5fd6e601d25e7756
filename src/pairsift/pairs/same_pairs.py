"""Pairs known again in another reading of their source: by the name of the image, and by the caption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from pathlib import PurePath

import numpy as np

from pairsift.arrays import Ints
from pairsift.pairs.pairs import SPLITS, Pairs

Keys = list[Hashable]


def numbered(keys: Iterable[Hashable]) -> Keys:
    """Return the keys with the number of equal keys before each, so that no two are equal."""
    seen: Counter[Hashable] = Counter()
    result: Keys = []
    for key in keys:
        result.append((key, seen[key]))
        seen[key] += 1
    return result


def without_folders(collections: Sequence[Sequence[str]]) -> bool:
    """Return whether images are compared by their file names alone, as after all of them were moved.

    This is so where no name is in all collections, and file names are unique in each.

    Args:
        collections: Names of the images of each collection.
    """
    if set.intersection(*map(set, collections)):
        return False
    return all(len({PurePath(name).name for name in names}) == len(names) for names in collections)


def image_names(names: Sequence[str], short: bool) -> list[str]:
    """Return the names of images for comparison, without their folders where `short`."""
    return [PurePath(name).name for name in names] if short else list(names)


def shared_pairs(collections: Sequence[Pairs], split: str) -> list[Ints]:
    """Return the ids of the pairs of a split that all collections share, in the order of the first collection.

    A pair is shared if every collection has it in the split: an image of the same name with the same caption, as often
    as the collection with the fewest repeats has it. Where no image of the split has the same name in all collections,
    such as after the images were moved, file names without folders are compared, if each of them is unique.

    Args:
        collections: The collections, at least one.
        split: `train`, `dev` or `test`.

    Returns:
        The ids in each collection, (n_shared,); the same place holds the same pair.
    """
    short = _short(collections, split)
    places = []
    for pairs in collections:
        rows, names = pairs.images(split).tolist(), image_names(pairs.names, short)
        image = dict(zip(rows, numbered(names[row] for row in rows), strict=True))
        ids = pairs.ids(split).tolist()
        keys = numbered((image[int(pairs.image_of[pair])], pairs.captions[pair]) for pair in ids)
        places.append(dict(zip(keys, ids, strict=True)))
    shared = [key for key in places[0] if all(key in place for place in places)]
    return [np.array([place[key] for key in shared], np.int64) for place in places]


def images_elsewhere(first: Pairs, other: Pairs, split: str) -> int:
    """Return the number of images in a split of the first collection that another split of the other one has."""
    short = _short([first, other], split)
    left, right = image_names(first.names, short), image_names(other.names, short)
    elsewhere = other.images(*(name for name in SPLITS if name != split))
    return len({left[row] for row in first.images(split)} & {right[row] for row in elsewhere})


def _short(collections: Sequence[Pairs], split: str) -> bool:
    """Return whether the images of a split are compared by their file names alone."""
    return without_folders([[pairs.names[row] for row in pairs.images(split)] for pairs in collections])
