"""The splits train, dev and test, from the source or drawn, and the captions that are left out of them."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np

from pairsift.errors import InputError
from pairsift.pairs.pairs import ADDED, SPLITS, UNUSED, Pairs

SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "restval": "train",
    "dev": "dev",
    "val": "dev",
    "valid": "dev",
    "validation": "dev",
    "test": "test",
    "testing": "test",
    "unused": UNUSED,
    "": UNUSED,
}
EVALUATION = ("eval", "evaluation")  # dev where a source has no dev, else test where it has no test
MIN_IMAGES = 3  # one for each split


def split_of_place(place: PurePath) -> str:
    """Return the word for a split in the folders or in the name of a file; an empty string without a single one.

    Args:
        place: Path of the file within the source, whose folders may be named as Hive does: `split=train`.
    """
    folders = [word for part in place.parts[:-1] if (word := part.rpartition("=")[2]).lower() in SPLIT_WORDS]
    words = folders[-1:] or [word for word in re.split(r"[^a-z]+", place.stem.lower()) if word and word in SPLIT_WORDS]
    return words[0] if len(set(words)) == 1 else ""


@dataclass(frozen=True)
class Draw:
    """The settings for drawn splits.

    Attributes:
        seed: Seed of the drawing order of images.
        dev: Share of the images in dev, in (0, 1), or their number, from 1 on.
        test: Likewise for test.
    """

    seed: int
    dev: float
    test: float


def is_split(words: Iterable[str]) -> bool:
    """Return whether the words of a column are its rows' splits.

    Most of the words that are there must be words for splits, `train` among them, or all must be.
    """
    counts = Counter(word.lower() for word in words if word)
    known = {word: count for word, count in counts.items() if word in SPLIT_WORDS or word in EVALUATION}
    if len(known) == len(counts):
        return bool(known)
    return 2 * sum(known.values()) >= counts.total() and "train" in map(SPLIT_WORDS.get, known)


def evaluation_splits(words: Iterable[str]) -> dict[str, str]:
    """Return the split that each word for an evaluation stands for, beside the other words of a column."""
    used = {word.lower() for word in words}
    splits = {SPLIT_WORDS.get(word) for word in used}
    free = [split for split in ("dev", "test") if split not in splits]
    return dict.fromkeys(used.intersection(EVALUATION), free[0]) if free else {}


def shuffled(rows: Iterable[int], names: Sequence[str], seed: int) -> list[int]:
    """Return image rows in a random order that depends on their names and the seed, not on their original order."""

    def place(row: int) -> bytes:
        return hashlib.sha256(f"{seed}\0{names[row]}".encode()).digest()

    return sorted(rows, key=place)


def draw_splits(order: Sequence[int], draw: Draw, missing: Sequence[str] = ("dev", "test")) -> dict[int, str]:
    """Draw the missing splits from these images, and assign the other images to train.

    Every missing split gets at least one image, and so does train.

    Args:
        order: Image rows in random order, at least one more than the number of missing splits.
        draw: Seed and shares.
        missing: The splits to draw, of dev and test.

    Returns:
        The split of each image row.
    """
    split_of = dict.fromkeys(order, "train")
    start = 0
    for position, split in enumerate(missing):
        share = draw.dev if split == "dev" else draw.test
        limit = len(order) - start - (len(missing) - position)  # keeps an image for train and for each later split
        size = min(int(share) if share >= 1 else max(1, int(share * len(order))), limit)
        split_of.update(dict.fromkeys(order[start : start + size], split))
        start += size
    return split_of


def split_images(
    source: str, source_splits: Mapping[int, str], names: Sequence[str], draw: Draw, has_splits: bool
) -> tuple[dict[int, str], str]:
    """Return the split of each usable image, and a description of what was drawn.

    Args:
        source: Path of the source, for the error message.
        source_splits: Split of each usable image row in the source, `unused` if the source has no split for it.
        names: Names of the images, by row.
        draw: Seed and shares for the splits that must be drawn.
        has_splits: Whether the source has splits at all.

    Raises:
        InputError: The source's splits leave too few images to train on.
    """
    if not has_splits:
        note = f"drawn by image with seed {draw.seed} (dev {draw.dev:g}, test {draw.test:g})"
        return draw_splits(shuffled(source_splits, names, draw.seed), draw), note
    counts = Counter(source_splits.values())
    missing = [split for split in ("dev", "test") if not counts[split]]
    if counts["train"] <= len(missing):
        numbers = ", ".join(f"{counts[split]} in {split}" for split in SPLITS)
        raise InputError(
            f"{source}: its splits leave too few images to train on: {numbers}; --split-column none draws others"
        )
    if not missing:
        return dict(source_splits), ""
    train = [row for row, split in source_splits.items() if split == "train"]
    shares = ", ".join(f"{split} {draw.dev if split == 'dev' else draw.test:g}" for split in missing)
    note = f"; {' and '.join(missing)} drawn from train by image with seed {draw.seed} ({shares})"
    return {**source_splits, **draw_splits(shuffled(train, names, draw.seed), draw, missing)}, note


def splits_of_images(pairs: Pairs) -> dict[int, str]:
    """Return the split of each image as a source names it, so that another reading gives it the same split.

    An image whose pairs came into the source after the run was made is in train, and one without a pair in any split is
    `unused`.
    """
    split_of = dict.fromkeys(pairs.image_of.tolist(), UNUSED)
    split_of |= dict.fromkeys(pairs.images(ADDED).tolist(), "train")
    for split in SPLITS:
        split_of |= dict.fromkeys(pairs.images(split).tolist(), split)
    return split_of


def keep_images(pairs: Pairs, sizes: Mapping[str, int], seed: int) -> Pairs:
    """Give the split `unused` to all but a number of images in some splits, in the order of drawn splits.

    Args:
        pairs: Pairs without planted noise.
        sizes: Number of images by split; a smaller split stays as it is.
        seed: Seed of the choice.
    """
    split = pairs.split.astype("<U7")
    for name, size in sizes.items():
        left_out = shuffled(pairs.images(name).tolist(), pairs.names, seed)[size:]
        split[np.isin(pairs.image_of, left_out) & (pairs.split == name)] = UNUSED
    return replace(pairs, split=split)


def check_sizes(pairs: Pairs, sizes: Mapping[str, int]) -> None:
    """Raise an error for a split with fewer images than are asked for.

    Raises:
        InputError: There are too few images.
    """
    for name, size in sizes.items():
        left = len(pairs.images(name))
        if left < size:
            option = "sample" if name == "train" else name
            raise InputError(f"{pairs.source}: leaves {left:,} images for {name}, fewer than --{option} {size}")


def keep_captions(pairs: Pairs, most: int, seed: int) -> Pairs:
    """Give the split `unused` to all but a few captions of each image.

    Which captions stay depends on the seed, the name of the image and the caption, not on the order of the records.

    Args:
        pairs: Pairs without planted noise.
        most: Number of captions to keep for each image, at least 1.
        seed: Seed of the choice.
    """

    def place(pair: int) -> tuple[bytes, int]:
        text = f"{seed}\0{pairs.names[pairs.image_of[pair]]}\0{pairs.captions[pair]}"
        return hashlib.sha256(text.encode()).digest(), pair

    captions: dict[int, list[int]] = {}
    for pair in pairs.ids().tolist():
        captions.setdefault(int(pairs.image_of[pair]), []).append(pair)
    split = pairs.split.astype("<U7")
    for rows in captions.values():
        split[sorted(rows, key=place)[most:]] = UNUSED
    return replace(pairs, split=split)
