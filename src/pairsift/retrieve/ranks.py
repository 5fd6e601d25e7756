"""Exact retrieval ranks, recall and the other measures of retrieval, in bounded memory.

The protocol is the usual one. For image to text (i2t), a query counts as correct when the best of the captions of the
image is among the first K. For text to image (t2i), a query counts as correct when the image of the caption is among
the first K. Ties count against the model.

With R right answers, R-precision is the share of them among the first R items, and average precision at R is the mean
over the R of the precision down to each of them, which is 0 for one that is not among the first R (Musgrave et al.,
ECCV 2020; mAP@R is the mean over the queries). With one right answer both equal R@1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairsift.arrays import Ints
from pairsift.errors import InputError

FloatArray = NDArray[np.floating[Any]]
SimilarityRows = Callable[[Ints], FloatArray]

KEPT_BYTES = 2**26  # scores kept from the first pass, so that small sets are computed only once
OTHERS = ("median_rank", "map_at_r", "r_precision")  # the measures of a direction beside its recall


@dataclass(frozen=True)
class Ranks:
    """The ranks of the correct items: the number of items ahead of each; 0 is best.

    Attributes:
        image_of: Image of each caption, (n_texts,).
        n_images: Number of images.
        ahead: Number of captions of other images that are ahead of each caption for its image, (n_texts,).
        t2i: Rank of the image of each caption, (n_texts,).
    """

    image_of: Ints
    n_images: int
    ahead: Ints
    t2i: Ints

    @cached_property
    def i2t(self) -> Ints:
        """The rank of the best caption of each image, (n_images,); -1 for an image without captions."""
        best = np.full(self.n_images, np.iinfo(np.int64).max)
        np.minimum.at(best, self.image_of, self.ahead)
        return np.where(np.bincount(self.image_of, minlength=self.n_images) > 0, best, -1)


def ranks(block: SimilarityRows, image_of: Ints, n_images: int, chunk: int = 256) -> Ranks:
    """Return the result of `ranks_by_view` for a single view; `block` returns (len(rows), n_texts)."""
    return ranks_by_view(lambda rows: np.asarray(block(rows))[None], image_of, n_images, chunk)[0]


def ranks_by_view(block: SimilarityRows, image_of: Ints, n_images: int, chunk: int = 256) -> list[Ranks]:
    """Return the exact ranks for both directions, image to text and text to image, in several views.

    Another item with an equal score ranks ahead of the correct one. Ties between captions of the same image do not
    count.

    The images are processed in chunks. A chunk gives the final ranks of its images, and the score of each of their
    captions with its image. Captions whose image is in a later chunk cannot be counted yet. Their scores are kept until
    the end, up to 64 MiB in all; further scores are computed again. The score of a correct pair is never compared with
    a second computation of itself, because the two could differ in the last bit and break a tie.

    Args:
        block: Function from image rows to their similarity with all captions in every view, (n_views, len(rows),
            n_texts). Rows are ascending and consecutive. It is called once or twice for the same rows.
        image_of: Image of each caption, (n_texts,), each in [0, n_images).
        n_images: Number of images, at least 1.
        chunk: Number of images in a block, at least 1. The memory needed is one block and the kept 64 MiB.

    Returns:
        The ranks of each view.

    Raises:
        ValueError: `image_of` or the shape of a block does not fit.
        InputError: A score is not a number.
    """
    image_of = _checked(image_of, n_images, chunk)
    chunks = np.split(np.arange(n_images, dtype=np.int64), range(chunk, n_images, chunk))
    pending: list[tuple[Ints, Ints, FloatArray | None]] = []
    kept, tally = 0, None
    for rows in chunks:
        scores = checked_scores(block, rows, len(image_of))
        tally = tally or _Tally.empty(len(scores), image_of)
        tally.add(rows, scores)
        later = np.flatnonzero(image_of > rows[-1])
        if len(later):
            size = scores.itemsize * len(scores) * len(rows) * len(later)
            keep = kept + size <= KEPT_BYTES
            kept += size if keep else 0
            pending.append((rows, later, scores[:, :, later] if keep else None))
    assert tally is not None
    for rows, later, saved in pending:
        scores = checked_scores(block, rows, len(image_of))[:, :, later] if saved is None else saved
        tally.add_late(later, scores)
    return tally.ranks(n_images)


@dataclass(frozen=True)
class _Tally:
    """The counts that give the ranks.

    Attributes:
        image_of: Image of each caption, (n_texts,).
        correct: Score of each caption with its image, (n_views, n_texts); NaN while it is not known.
        t2i: Number of images that score at least as high as the image of each caption, which is included,
            (n_views, n_texts).
        ahead: As in `Ranks`, (n_views, n_texts).
    """

    image_of: Ints
    correct: FloatArray
    t2i: Ints
    ahead: Ints

    @staticmethod
    def empty(n_views: int, image_of: Ints) -> _Tally:
        correct = np.full((n_views, len(image_of)), np.nan)
        return _Tally(image_of, correct, np.zeros(correct.shape, np.int64), np.zeros(correct.shape, np.int64))

    def add(self, rows: Ints, scores: FloatArray) -> None:
        """Rank the images of a chunk, and count them for the captions whose image is in this or an earlier chunk."""
        captions = np.flatnonzero((self.image_of >= rows[0]) & (self.image_of <= rows[-1]))
        row = self.image_of[captions] - rows[0]
        self.correct[:, captions] = scores[:, row, captions]
        for ahead, view in zip(self.ahead, scores, strict=True):
            ahead[captions] = count_ahead(view, row, captions)
        self.add_late(np.arange(len(self.image_of)), scores)  # counts nothing for captions whose `correct` is NaN

    def add_late(self, captions: Ints, scores: FloatArray) -> None:
        """Count the images of a chunk for these captions, from scores (n_views, len(rows), len(captions))."""
        self.t2i[:, captions] += (scores >= self.correct[:, None, captions]).sum(axis=1)

    def ranks(self, n_images: int) -> list[Ranks]:
        """Return the ranks of each view; the count of a caption includes its image, so 1 is subtracted."""
        sides = zip(self.ahead, self.t2i, strict=True)
        return [Ranks(self.image_of, n_images, ahead, t2i - 1) for ahead, t2i in sides]


def recall(ranks: Ranks, ks: tuple[int, ...] = (1, 5, 10)) -> dict[str, float]:
    """Return the measures of retrieval as `both_ways` does; images without a caption are not queries.

    Raises:
        ValueError: There are no captions.
    """
    if not len(ranks.t2i):
        raise ValueError("no caption to measure recall with")
    i2t = measures(ranks.image_of, ranks.ahead, ks)
    return both_ways(i2t, measures(np.arange(len(ranks.t2i)), ranks.t2i, ks))


def both_ways(i2t: Mapping[str, float], t2i: Mapping[str, float]) -> dict[str, float]:
    """Return the measures of both directions together.

    Returns:
        `i2t_r1`, `i2t_r5`, `i2t_r10`, `t2i_r1`, `t2i_r5`, `t2i_r10` and their sum `rsum`; then `i2t_median_rank`,
        `i2t_map_at_r`, `i2t_r_precision` and those of `t2i`.
    """
    named = {f"{way}_{name}": value for way, side in (("i2t", i2t), ("t2i", t2i)) for name, value in side.items()}
    shares = {name: value for name, value in named.items() if name[4:] not in OTHERS}
    return {**shares, "rsum": sum(shares.values()), **named}


def measures(query: Ints, ahead: Ints, ks: tuple[int, ...] = (1, 5, 10)) -> dict[str, float]:
    """Return the measures of one direction from the right answers of its queries.

    Args:
        query: Number of the query of each right answer, (n,), at least one.
        ahead: Number of wrong items that rank ahead of each right answer, (n,).
        ks: The ranks to count.

    Returns:
        The share of queries with a right answer among the first K (`r1`, `r5`, `r10`), the mean average precision at R
        (`map_at_r`) and the mean R-precision (`r_precision`), in percent; and the median of the rank of the first right
        answer, counted from 1 (`median_rank`).
    """
    order = np.lexsort((ahead, query))
    _, start, right = np.unique(query[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(start, right)  # among the right answers of the query
    rank = ahead[order] + place
    found = rank < np.repeat(right, right)
    first = rank[start]
    precision = np.where(found, (place + 1) / (rank + 1), 0)
    return {
        **{f"r{k}": 100 * float(np.mean(first < k)) for k in ks},
        "median_rank": float(np.median(first)) + 1,
        "map_at_r": 100 * float(np.mean(np.add.reduceat(precision, start) / right)),
        "r_precision": 100 * float(np.mean(np.add.reduceat(found.astype(np.int64), start) / right)),
    }


def image_folds(image_of: Ints, n_images: int, folds: int = 5) -> list[tuple[Ints, Ints]]:
    """Cut the images into consecutive folds, each with its images and their captions.

    A fold is ranked separately. COCO-1K is the mean over five folds of 1,000 of the 5,000 test images. Where `n_images`
    is not a multiple of `folds`, the sizes of the folds differ by at most one image.

    Args:
        image_of: Image of each caption, (n_texts,), each in [0, n_images).
        n_images: Number of images.
        folds: Number of folds, from 1 to `n_images`.

    Returns:
        The images and the captions of each fold, ascending.

    Raises:
        ValueError: `image_of` does not fit.
        InputError: The number of folds is below 1 or above `n_images`.
    """
    image_of = _checked(image_of, n_images)
    if not 1 <= folds <= n_images:
        raise InputError(f"{folds} folds of {n_images} images: give between 1 and {n_images}")
    parts = np.array_split(np.arange(n_images, dtype=np.int64), folds)
    return [(rows, np.flatnonzero((image_of >= rows[0]) & (image_of <= rows[-1]))) for rows in parts]


def count_ahead(scores: FloatArray, query: Ints, item: Ints) -> Ints:
    """Return how many wrong items score at least as high as each right answer, (n,).

    Args:
        scores: Scores of the items for each query, (n_queries, n_items).
        query: Query of each right answer, (n,).
        item: Item of each right answer, (n,).
    """
    wrong = scores.copy()
    wrong[query, item] = np.nan  # never at least as high as anything
    counts = [np.count_nonzero(wrong[q] >= scores[q, i]) for q, i in zip(query, item, strict=True)]
    return np.array(counts, np.int64)


def checked_scores(block: SimilarityRows, rows: Ints, n_texts: int) -> FloatArray:
    """Return the scores of a block, (n_views, len(rows), n_texts).

    Raises:
        ValueError: The block has another shape.
        InputError: A score is not a number.
    """
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
