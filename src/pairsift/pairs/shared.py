"""The pairs of a split that several collections share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import PurePath

import numpy as np

from pairsift.arrays import Ints
from pairsift.pairs.pairs import SPLITS, Pairs

Keys = list[Hashable]


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
    names = image_names(collections, split)
    keys = [_pair_keys(pairs, split, rows) for pairs, rows in zip(collections, names, strict=True)]
    places = [
        dict(zip(own, pairs.ids(split).tolist(), strict=True)) for own, pairs in zip(keys, collections, strict=True)
    ]
    shared = [key for key in keys[0] if all(key in place for place in places)]
    return [np.array([place[key] for key in shared], np.int64) for place in places]


def image_names(collections: Sequence[Pairs], split: str) -> list[list[str]]:
    """Return the names by which the images of each collection are compared, each (n_images,)."""
    short = [[PurePath(name).name for name in pairs.names] for pairs in collections]
    in_split = [pairs.images(split).tolist() for pairs in collections]
    full = [{pairs.names[row] for row in rows} for pairs, rows in zip(collections, in_split, strict=True)]
    unique = [len({names[row] for row in rows}) == len(rows) for names, rows in zip(short, in_split, strict=True)]
    if not set.intersection(*full) and all(unique):
        return short
    return [pairs.names for pairs in collections]


def images_elsewhere(first: Pairs, other: Pairs, split: str) -> int:
    """Return the number of images in a split of the first collection that another split of the other one has."""
    left, right = image_names([first, other], split)
    elsewhere = other.images(*(name for name in SPLITS if name != split))
    return len({left[row] for row in first.images(split)} & {right[row] for row in elsewhere})


def _pair_keys(pairs: Pairs, split: str, names: Sequence[str]) -> Keys:
    """Return a unique key for each pair of a split: the image's name and the caption, repeats numbered."""
    key_of = dict(
        zip(pairs.images(split).tolist(), _numbered([names[row] for row in pairs.images(split)]), strict=True)
    )
    return _numbered([(key_of[int(pairs.image_of[pair])], pairs.captions[pair]) for pair in pairs.ids(split)])


def _numbered(keys: Sequence[Hashable]) -> Keys:
    """Return the keys with the number of equal keys before each."""
    seen: Counter[Hashable] = Counter()
    numbered: Keys = []
    for key in keys:
        numbered.append((key, seen[key]))
        seen[key] += 1
    return numbered
