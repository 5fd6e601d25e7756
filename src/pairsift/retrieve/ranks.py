"""Exact retrieval ranks and recall, in bounded memory.

The protocol is the field's: an image finds its captions (i2t) when the best of them is among the first K, a
caption finds its image (t2i) when it is among the first K. Ties count against the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairsift.errors import InputError
from pairsift.pairs.pairs import Ints

FloatArray = NDArray[np.floating[Any]]
Block = Callable[[Ints], FloatArray]

KEPT_BYTES = 2**26  # scores kept from the first pass, so that small sets are never computed twice


@dataclass(frozen=True)
class Ranks:
    """How many items rank ahead of the right one; 0 is best.

    Attributes:
        i2t: For each image, the rank of the best of its captions, (n_images,); -1 where it has no caption.
        t2i: For each caption, the rank of its image, (n_texts,).
    """

    i2t: Ints
    t2i: Ints


def ranks(block: Block, image_of: Ints, n_images: int, chunk: int = 256) -> Ranks:
    """`ranks_by_view` for one view, whose blocks are (len(rows), n_texts)."""
    return ranks_by_view(lambda rows: np.asarray(block(rows))[None], image_of, n_images, chunk)[0]


def ranks_by_view(block: Block, image_of: Ints, n_images: int, chunk: int = 256) -> list[Ranks]:
    """Exact ranks of every image among the captions and of every caption among the images, in several views.

    Another item with an equal score ranks ahead of the right one; a tie between an image's own captions costs
    nothing.

    The images are walked in chunks. A chunk settles its images' ranks at once, and gives the scores that its
    own captions' images must be measured by. A caption whose image comes in a later chunk cannot be counted
    yet: its column is kept for the end, up to 64 MiB in all, and computed again beyond that. A right score is
    so never compared with a second computation of itself, which could differ in its last bit and break a tie.

    Args:
        block: Gives the similarity of these images with all captions in every view, (n_views, len(rows),
            n_texts); rows are ascending and consecutive. Called once or twice for the same rows.
        image_of: Image of each caption, (n_texts,), each in [0, n_images).
        n_images: Number of images, at least 1.
        chunk: Images to a block, at least 1. Memory is that of one block, and the kept 64 MiB.

    Returns:
        The ranks in each view.

    Raises:
        ValueError: `image_of` or a block's shape does not fit, or a score is not a number.
    """
    image_of = _checked(image_of, n_images, chunk)
    chunks = np.split(np.arange(n_images, dtype=np.int64), range(chunk, n_images, chunk))
    pending: list[tuple[Ints, Ints, FloatArray | None]] = []
    kept, tally = 0, None
    for rows in chunks:
        scores = _scores(block, rows, len(image_of))
        tally = tally or _Tally.empty(len(scores), n_images, image_of)
        tally.add(rows, scores)
        later = np.flatnonzero(image_of > rows[-1])
        if len(later):
            size = scores.itemsize * len(scores) * len(rows) * len(later)
            keep = kept + size <= KEPT_BYTES
            kept += size if keep else 0
            pending.append((rows, later, scores[:, :, later] if keep else None))
    assert tally is not None
    for rows, later, held in pending:
        scores = _scores(block, rows, len(image_of))[:, :, later] if held is None else held
        tally.add_late(later, scores)
    return tally.ranks()


@dataclass(frozen=True)
class _Tally:
    """Ranks in the making.

    Attributes:
        image_of: Image of each caption, (n_texts,).
        own: Score of each caption with its image, (n_views, n_texts); NaN until it is known.
        t2i: How many images rank no worse than each caption's own, itself included, (n_views, n_texts).
        i2t: As in `Ranks`, (n_views, n_images).
    """

    image_of: Ints
    own: FloatArray
    t2i: Ints
    i2t: Ints

    @staticmethod
    def empty(n_views: int, n_images: int, image_of: Ints) -> _Tally:
        own = np.full((n_views, len(image_of)), np.nan)
        return _Tally(image_of, own, np.zeros(own.shape, np.int64), np.full((n_views, n_images), -1, np.int64))

    def add(self, rows: Ints, scores: FloatArray) -> None:
        """Count a chunk's images for the captions whose own score is known or among these, and rank the images."""
        here = np.flatnonzero((self.image_of >= rows[0]) & (self.image_of <= rows[-1]))
        at = self.image_of[here] - rows[0]
        self.own[:, here] = scores[:, at, here]
        for ranks, view, own in zip(self.i2t, scores, self.own, strict=True):
            ranks[rows] = _image_ranks(view, own, here, at)
        self.add_late(np.arange(len(self.image_of)), scores)  # counts nothing where `own` is still NaN

    def add_late(self, captions: Ints, scores: FloatArray) -> None:
        """Count a chunk's images for these captions by their scores, (n_views, len(rows), len(captions))."""
        self.t2i[:, captions] += (scores >= self.own[:, None, captions]).sum(axis=1)

    def ranks(self) -> list[Ranks]:
        """What was counted: the right image too, which equals itself."""
        return [Ranks(i2t, t2i - 1) for i2t, t2i in zip(self.i2t, self.t2i, strict=True)]


def recall(ranks: Ranks, ks: tuple[int, ...] = (1, 5, 10)) -> dict[str, float]:
    """Share of queries whose right answer is among the first K, in percent, and the sum of all (rSum).

    Returns:
        `i2t_r1`, `i2t_r5`, `i2t_r10`, `t2i_r1`, `t2i_r5`, `t2i_r10` (for other `ks` likewise) and `rsum`.
        Images without a caption are no queries.

    Raises:
        ValueError: There is no caption at all.
    """
    if not len(ranks.t2i):
        raise ValueError("no caption to measure recall with")
    directions = {"i2t": ranks.i2t[ranks.i2t >= 0], "t2i": ranks.t2i}
    found = {f"{name}_r{k}": 100 * float(np.mean(r < k)) for name, r in directions.items() for k in ks}
    return {**found, "rsum": sum(found.values())}


def folded(image_of: Ints, n_images: int, folds: int = 5) -> list[tuple[Ints, Ints]]:
    """Consecutive folds of the images, each to be ranked only within its own images and captions.

    COCO-1K is the mean over five folds of 1,000 of the 5,000 test images. Folds differ by one image at most where
    `n_images` does not divide.

    Args:
        image_of: Image of each caption, (n_texts,), each in [0, n_images).
        n_images: Number of images.
        folds: Number of folds, from 1 to `n_images`.

    Returns:
        The images and the captions of each fold, ascending.

    Raises:
        ValueError: `image_of` does not fit.
        InputError: The number of folds does not.
    """
    image_of = _checked(image_of, n_images)
    if not 1 <= folds <= n_images:
        raise InputError(f"{folds} folds of {n_images} images: give between 1 and {n_images}")
    parts = np.array_split(np.arange(n_images, dtype=np.int64), folds)
    return [(rows, np.flatnonzero((image_of >= rows[0]) & (image_of <= rows[-1]))) for rows in parts]


def _image_ranks(scores: FloatArray, own: FloatArray, here: Ints, row: Ints) -> Ints:
    """Rank of the best own caption of each image of a chunk, (rows,); `here` are its captions, at `row`."""
    best = np.full(len(scores), -np.inf)
    np.maximum.at(best, row, own[here])
    ahead = (scores >= best[:, None]).sum(axis=1)
    ahead -= np.bincount(row, own[here] >= best[row], minlength=len(scores)).astype(np.int64)
    return np.where(np.bincount(row, minlength=len(scores)) > 0, ahead, -1)


def _scores(block: Block, rows: Ints, n_texts: int) -> FloatArray:
    scores = np.asarray(block(rows))
    if scores.ndim != 3 or scores.shape[1:] != (len(rows), n_texts):
        raise ValueError(f"a block of {len(rows)} images and {n_texts} captions has shape {scores.shape[1:]}")
    bad = np.argwhere(np.isnan(scores))
    if len(bad):
        image, text = int(rows[bad[0, 1]]), int(bad[0, 2])
        raise InputError(
            f"{len(bad)} scores are not a number, the first at image row {image} and caption row {text}: "
            "look for NaN in the features and for a training that diverged"
        )
    return scores


def _checked(image_of: Ints, n_images: int, chunk: int = 1) -> Ints:
    image_of = np.asarray(image_of, dtype=np.int64)
    if image_of.ndim != 1 or chunk < 1:
        raise ValueError(f"image_of has {image_of.ndim} dimensions, chunk is {chunk}: expected 1 and at least 1")
    if len(image_of) and not (image_of.min() >= 0 and image_of.max() < n_images):
        raise ValueError(f"captions point at images {image_of.min()} to {image_of.max()} of {n_images}")
    return image_of
