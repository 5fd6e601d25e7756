"""Exact retrieval ranks, recall and the other measures of retrieval, in bounded memory.

The protocol is the papers'. For image to text (i2t), a query counts as correct when the best of the captions of the
image is among the first K. For text to image (t2i), a query counts as correct when the image of the caption is among
the first K. Ties count against the model. `pairsift.retrieve.equal` counts equal images and equal captions as one.

With R right answers, R-precision is the share of them among the first R items, and average precision at R is the mean
over the R of the precision down to each of them, which is 0 for one that is not among the first R (Musgrave et al.,
ECCV 2020; mAP@R is the mean over the queries). With one right answer both equal R@1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairsift.arrays import Bools, Ints
from pairsift.errors import InputError

FloatArray = NDArray[np.floating[Any]]
SimilarityRows = Callable[[Ints], FloatArray]
Links = tuple[Ints, Ints]  # images and captions of which one answers the other, each (n,)

KS = (1, 5, 10)  # ranks to count
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

    Args:
        block: As for `count_wrong`.
        image_of: Image of each caption, (n_texts,), each in [0, n_images).
        n_images: Number of images, at least 1.
        chunk: Number of images in a block, at least 1.

    Returns:
        The ranks of each view.

    Raises:
        ValueError: `image_of` or the shape of a block does not fit.
        InputError: A score is not a number.
    """
    image_of = _checked(image_of, n_images, chunk)
    counts = count_wrong(block, [RightAnswers.own(image_of, n_images)], (n_images, len(image_of)), chunk)[0]
    return [Ranks(image_of, n_images, view.i2t, view.t2i) for view in counts]


@dataclass(frozen=True)
class RightAnswers:
    """The right answers among images and captions, each of which is an item and a query.

    Attributes:
        images: Rows of the images, ascending, (n_images,).
        texts: Rows of the captions, ascending, (n_texts,).
        i2t: Right captions of images: places in `images` and in `texts`.
        t2i: Right images of captions: places in `images` and in `texts`.
        image_weight: How often each image counts as a query, (n_images,).
        text_weight: How often each caption does, (n_texts,).
    """

    images: Ints
    texts: Ints
    i2t: Links
    t2i: Links
    image_weight: Ints
    text_weight: Ints

    @staticmethod
    def among_all(i2t: Links, t2i: Links, sizes: tuple[int, int]) -> RightAnswers:
        """Return right answers among as many images and captions as `sizes` says."""
        images, texts = (np.arange(size, dtype=np.int64) for size in sizes)
        return RightAnswers(images, texts, i2t, t2i, np.ones_like(images), np.ones_like(texts))

    @staticmethod
    def own(image_of: Ints, n_images: int) -> RightAnswers:
        """Return the right answers by the papers' protocol: an image and its own captions."""
        own = image_of, np.arange(len(image_of), dtype=np.int64)
        return RightAnswers.among_all(own, own, (n_images, len(image_of)))

    def measures(self, wrong: WrongAhead) -> dict[str, float]:
        """Return the measures of retrieval as `both_ways` does."""
        i2t = measures(self.i2t[0], wrong.i2t, weight=self.image_weight)
        return both_ways(i2t, measures(self.t2i[1], wrong.t2i, weight=self.text_weight))


@dataclass(frozen=True)
class WrongAhead:
    """The number of wrong items ahead of each right answer, and how many of these only tie with it.

    Attributes:
        i2t: Wrong captions with at least the score of each link of `RightAnswers.i2t`, (n,).
        t2i: Wrong images with at least the score of each link of `RightAnswers.t2i`, (m,).
        i2t_ties: Wrong captions with exactly its score, (n,).
        t2i_ties: Wrong images with exactly its score, (m,).
    """

    i2t: Ints
    t2i: Ints
    i2t_ties: Ints
    t2i_ties: Ints

    def without_ties(self) -> WrongAhead:
        """Return the counts where ties count for the model."""
        none = np.zeros_like(self.i2t_ties), np.zeros_like(self.t2i_ties)
        return WrongAhead(self.i2t - self.i2t_ties, self.t2i - self.t2i_ties, *none)


def count_wrong(
    block: SimilarityRows, protocols: Sequence[RightAnswers], sizes: tuple[int, int], chunk: int = 256
) -> list[list[WrongAhead]]:
    """Return the number of wrong items ahead of each right answer, by protocol and view.

    The images are processed in chunks. A chunk gives the final counts of its images, and the score of each of their
    right answers. Right answers whose image is in a later chunk cannot be counted yet. Their scores are kept until
    the end, up to 64 MiB in all; further scores are computed again. The score of a right answer is never compared with
    a second computation of itself, because the two could differ in the last bit and break a tie.

    Args:
        block: Function from image rows to their similarity with all captions in every view, (n_views, len(rows),
            n_texts). Rows are ascending and consecutive. It is called once or twice for the same rows.
        protocols: Right answers; all are counted on the same scores.
        sizes: Numbers of images, at least 1, and of captions.
        chunk: Number of images in a block, at least 1. The memory needed is a few blocks and the kept 64 MiB.

    Raises:
        ValueError: The shape of a block does not fit.
        InputError: A score is not a number.
    """
    kept, tallies = 0, [_Tally(right, sizes) for right in protocols]
    pending: list[tuple[Ints, list[tuple[_Tally, Ints, FloatArray | None]]]] = []
    for rows in np.split(np.arange(sizes[0], dtype=np.int64), range(chunk, sizes[0], chunk)):
        scores = checked_scores(block, rows, sizes[1])
        late: list[tuple[_Tally, Ints, FloatArray | None]] = []
        for tally in tallies:
            later, wrong = tally.add(rows, scores)
            if len(later) and wrong.size:
                size = wrong.itemsize * len(wrong) * wrong.shape[1] * len(later)
                keep = kept + size <= KEPT_BYTES
                kept += size if keep else 0
                late.append((tally, later, wrong[:, :, tally.right.t2i[1][later]] if keep else None))
        if late:
            pending.append((rows, late))
    for rows, late in pending:
        again = None if all(saved is not None for *_, saved in late) else checked_scores(block, rows, sizes[1])
        for tally, later, saved in late:
            if saved is None:
                assert again is not None
                saved = tally.wrong_scores(rows, again)[:, :, tally.right.t2i[1][later]]
            tally.count_images(later, saved)
    return [tally.counts() for tally in tallies]


class _Tally:
    """The counts of one protocol in every view, while the images are processed.

    Attributes:
        right: The right answers.
    """

    def __init__(self, right: RightAnswers, sizes: tuple[int, int]) -> None:
        self.right = right
        self._all = (len(right.images), len(right.texts)) == sizes
        self._correct: FloatArray = np.zeros((0, len(right.t2i[0])))  # score of each link of t2i, by view
        self._i2t: list[list[tuple[Ints, Ints, Ints]]] = []  # by view and chunk: links, wrong ahead, ties
        self._t2i = np.zeros((2, 0, len(right.t2i[0])), np.int64)  # wrong ahead and ties, by view

    def add(self, rows: Ints, scores: FloatArray) -> tuple[Ints, FloatArray]:
        """Count a chunk of images, for the right answers whose image is in this or an earlier chunk.

        Returns:
            The links of `t2i` whose image is in a later chunk, and the scores of the chunk for them.
        """
        if not self._i2t:
            self._correct = np.full((len(scores), self._correct.shape[1]), np.nan)
            self._i2t = [[] for _ in scores]
            self._t2i = np.zeros((2, *self._correct.shape), np.int64)
        part = self._items(rows, scores)
        links, image, text = self._within(self.right.i2t, rows)
        for found, view in zip(self._i2t, part, strict=True):
            found.append((links, *count_ahead(view, image, text)))
        links, image, text = self._within(self.right.t2i, rows)
        self._correct[:, links] = part[:, image, text]
        wrong = self._without_right(rows, part)
        last = self.right.images[self.right.t2i[0]]
        known = np.flatnonzero(last <= rows[-1])
        self.count_images(known, wrong[:, :, self.right.t2i[1][known]])
        return np.flatnonzero(last > rows[-1]), wrong

    def wrong_scores(self, rows: Ints, scores: FloatArray) -> FloatArray:
        """Return the scores of a chunk's items, NaN for right answers, which is never ahead."""
        return self._without_right(rows, self._items(rows, scores))

    def _without_right(self, rows: Ints, part: FloatArray) -> FloatArray:
        wrong = part.copy()
        _, image, text = self._within(self.right.t2i, rows)
        wrong[:, image, text] = np.nan
        return wrong

    def count_images(self, links: Ints, wrong: FloatArray) -> None:
        """Count the images of a chunk for these links, from scores (n_views, n_images, len(links))."""
        correct = self._correct[:, None, links]
        self._t2i[0][:, links] += (wrong >= correct).sum(axis=1)
        self._t2i[1][:, links] += (wrong == correct).sum(axis=1)

    def counts(self) -> list[WrongAhead]:
        """Return the counts of each view."""
        views = []
        for found, t2i, t2i_ties in zip(self._i2t, *self._t2i, strict=True):
            i2t = np.zeros((2, len(self.right.i2t[0])), np.int64)
            for links, *ahead_and_ties in found:
                i2t[:, links] = ahead_and_ties
            views.append(WrongAhead(i2t[0], t2i, i2t[1], t2i_ties))
        return views

    def _items(self, rows: Ints, scores: FloatArray) -> FloatArray:
        """Return the scores of the chunk's images and all captions that are items."""
        if self._all:
            return scores
        start, stop = np.searchsorted(self.right.images, [rows[0], rows[-1] + 1])
        return scores[:, self.right.images[start:stop] - rows[0]][:, :, self.right.texts]

    def _within(self, links: Links, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the links of a chunk's images: their numbers, the places of the images in it, and the captions."""
        start, stop = np.searchsorted(self.right.images, [rows[0], rows[-1] + 1])
        found = np.flatnonzero((links[0] >= start) & (links[0] < stop))
        return found, links[0][found] - start, links[1][found]


def recall(ranks: Ranks, ks: tuple[int, ...] = KS) -> dict[str, float]:
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


def measures(query: Ints, ahead: Ints, ks: tuple[int, ...] = KS, weight: Ints | None = None) -> dict[str, float]:
    """Return the measures of one direction from the right answers of its queries.

    Args:
        query: Number of the query of each right answer, (n,), at least one.
        ahead: Number of wrong items that rank ahead of each right answer, (n,).
        ks: The ranks to count.
        weight: How often each query counts, by its number; by default once.

    Returns:
        The share of queries with a right answer among the first K (`r1`, `r5`, `r10`), the mean average precision at R
        (`map_at_r`) and the mean R-precision (`r_precision`), in percent; and the median of the rank of the first right
        answer, counted from 1 (`median_rank`).
    """
    order = np.lexsort((ahead, query))
    queries, start, right = np.unique(query[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(start, right)  # among the right answers of the query
    rank = ahead[order] + place
    found = rank < np.repeat(right, right)
    first = rank[start]
    precision = np.where(found, (place + 1) / (rank + 1), 0)
    times = np.ones_like(queries) if weight is None else weight[queries]

    def mean(values: FloatArray | Bools) -> float:
        return float(np.repeat(values, times).mean())

    return {
        **{f"r{k}": 100 * mean(first < k) for k in ks},
        "median_rank": float(np.median(np.repeat(first, times))) + 1,
        "map_at_r": 100 * mean(np.add.reduceat(precision, start) / right),
        "r_precision": 100 * mean(np.add.reduceat(found.astype(np.int64), start) / right),
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


def count_ahead(scores: FloatArray, query: Ints, item: Ints) -> tuple[Ints, Ints]:
    """Return how many wrong items score at least as high as each right answer, and how many the same, both (n,).

    Args:
        scores: Scores of the items for each query, (n_queries, n_items).
        query: Query of each right answer, (n,).
        item: Item of each right answer, (n,).
    """
    wrong = scores.copy()
    wrong[query, item] = np.nan  # never at least as high as anything
    rights = list(zip(query, item, strict=True))
    ahead = [np.count_nonzero(wrong[q] >= scores[q, i]) for q, i in rights]
    ties = [np.count_nonzero(wrong[q] == scores[q, i]) for q, i in rights]
    return np.array(ahead, np.int64), np.array(ties, np.int64)


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
