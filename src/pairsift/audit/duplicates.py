"""Images and captions that occur several times, and captions that fit many images."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.stats import binom

from pairsift.arrays import Bools, Ints
from pairsift.encode.decode import BadImage, open_image

DISTANCE = 10  # largest number of different bits, of 64, of two copies of a picture
VAGUE_IMAGES = 5  # smallest number of images of a vague caption
CHANCE = 1e-3  # probability below which it is no chance that so many pairs of a caption look mismatched


def difference_hash(image: Image.Image) -> int:
    """Return the difference hash of an image: for each of 8 x 8 cells, whether its right neighbour is brighter."""
    grey = np.asarray(image.convert("L").resize((9, 8), Image.Resampling.BOX), np.int16)
    return int("".join("1" if bit else "0" for bit in (grey[:, 1:] > grey[:, :-1]).ravel()), 2)


def same_pictures(paths: Sequence[Path], group: Ints) -> Ints:
    """Return the group of copies of each image, (n,), numbered from 0.

    Copies are images whose encoders' vectors are near-duplicates and whose difference hashes differ in at most 10 of 64
    bits, or a chain of such images. Images that cannot be read have no copies.

    Args:
        paths: File of each image, (n,). Only those of near-duplicates are read.
        group: Group of near-duplicates of each image by the encoder's vectors, (n,).
    """
    copies = np.arange(len(group))
    order = np.argsort(group, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        hashes = (
            {member: value for member in members.tolist() if (value := _hash(paths[member])) is not None}
            if (len(members) > 1)
            else {}
        )
        readable = np.array(list(hashes), np.int64)
        copies[readable] = readable[_first_near(np.array(list(hashes.values()), np.uint64))]
    return np.unique(copies, return_inverse=True)[1].astype(np.int64)


def _first_near(hashes: NDArray[np.uint64]) -> Ints:
    """Return for each hash the place of the first hash that it is near to, directly or by a chain, (n,)."""
    values, first, place = np.unique(hashes, return_index=True, return_inverse=True)
    edges = [np.flatnonzero(np.bitwise_count(values ^ value) <= DISTANCE) for value in values]
    rows = np.repeat(np.arange(len(values)), [len(near) for near in edges])
    ends = rows, np.concatenate([np.zeros(0, np.int64), *edges])
    graph = coo_matrix((np.ones(len(rows), np.bool_), ends), (len(values), len(values)))
    component = connected_components(graph, directed=False)[1]
    earliest = np.full(len(values), len(hashes), np.int64)
    np.minimum.at(earliest, component, first)
    return np.asarray(earliest[component][place], np.int64)


def text_numbers(captions: Sequence[str]) -> Ints:
    """Return a number for each caption, (n,): the same for captions that differ in case, punctuation and space only."""
    number: dict[str, int] = {}
    numbers = np.empty(len(captions), np.int64)
    for place, text in enumerate(captions):
        letters = "".join(c if unicodedata.category(c)[0] in "LNM" else " " for c in text.casefold())
        words = " ".join(letters.split()) or text  # of emoji, no word is left
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


def _hash(path: Path) -> int | None:
    try:
        return difference_hash(open_image(path, smallest=32))
    except BadImage:
        return None
