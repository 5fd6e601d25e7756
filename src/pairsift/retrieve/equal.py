"""Recall where equal items are one item: copies of an image, and captions with equal text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pairsift.arrays import Ints, first_numbers
from pairsift.retrieve.ranks import KS, RightAnswers, SimilarityRows, WrongAhead, count_wrong

NOTABLE = 0.05  # smallest difference of a recall, in percent, that is told

Views = dict[str, dict[str, float]]


@dataclass(frozen=True)
class EqualItems:
    """Images and captions by what they are, so that equal ones have one number.

    Attributes:
        picture: Number of the picture of each image, (n_images,), each in [0, n_images).
        text: Number of the text of each caption, (n_texts,), each in [0, n_texts).
    """

    picture: Ints
    text: Ints

    @staticmethod
    def make(picture: Ints, text: Ints) -> EqualItems:
        """Make the numbers from any that are the same for equal items, such as those of a whole data set."""
        return EqualItems(first_numbers(picture), first_numbers(text))

    @property
    def repeats(self) -> bool:
        """Whether two images or two captions are equal."""
        return any(number.max(initial=-1) + 1 < len(number) for number in (self.picture, self.text))

    def right_answers(self, owner: Ints) -> RightAnswers:
        """Return the right answers: the pictures and the texts that are a pair somewhere.

        A picture or a text is there once among the items, by its first image or caption, so that a wrong one is ahead
        only once too. As a query it counts as often as it is there.

        Args:
            owner: Image of each caption, (n_texts,).
        """
        images, image_weight = np.unique(self.picture, return_index=True, return_counts=True)[1:]
        texts, text_weight = np.unique(self.text, return_index=True, return_counts=True)[1:]
        picture, text = np.unique(np.stack([self.picture[owner], self.text]), axis=1)
        return RightAnswers(images, texts, (picture, text), (picture, text), image_weight, text_weight)

    def repeated(self, split: str) -> str:
        """Return in words how many images and captions of a split are there several times."""
        sides = (("images are copies of another", self.picture), ("captions are equal to another", self.text))
        counts = [(int((np.bincount(number)[number] > 1).sum()), len(number), name) for name, number in sides]
        return " and ".join(f"{count:,} of {total:,} {split} {name}" for count, total, name in counts if count)


@dataclass(frozen=True)
class EqualRanks:
    """The ranks among images and captions where equal items are one, beside the papers' protocol.

    Attributes:
        items: The numbers of the images and captions.
        right: The right answers where equal items are one.
        wrong: The wrong items ahead of them.
        own: The right answers by the papers' protocol: an image and its own captions.
        own_wrong: The wrong items ahead of these.
    """

    items: EqualItems
    right: RightAnswers
    wrong: WrongAhead
    own: RightAnswers
    own_wrong: WrongAhead

    @staticmethod
    def by_view(block: SimilarityRows, owner: Ints, items: EqualItems, chunk: int = 256) -> list[EqualRanks]:
        """Rank by both protocols on the same scores, in every view.

        Args:
            block: As for `count_wrong`.
            owner: Image of each caption, (n_texts,); every image has one.
            items: The numbers of the images and captions.
            chunk: Number of images in a block.
        """
        sizes = len(items.picture), len(items.text)
        protocols = [RightAnswers.own(owner, sizes[0])]
        protocols += [items.right_answers(owner)] if items.repeats else []
        counts = count_wrong(block, protocols, sizes, chunk)
        both = zip(counts[0], counts[-1], strict=True)
        return [EqualRanks(items, protocols[-1], wrong, protocols[0], own) for own, wrong in both]

    @cached_property
    def i2t(self) -> Ints:
        """The rank of the first right caption of each image, (n_images,)."""
        return _first(self.right.i2t[0], self.wrong.i2t)[self.items.picture]

    @cached_property
    def t2i(self) -> Ints:
        """The rank of the first right image of each caption, (n_texts,)."""
        return _first(self.right.t2i[1], self.wrong.t2i)[self.items.text]

    def measures(self) -> dict[str, float]:
        """Return the measures of retrieval where equal items are one."""
        return self.right.measures(self.wrong)

    def strict(self) -> dict[str, float]:
        """Return the measures of retrieval by the papers' protocol."""
        return self.own.measures(self.own_wrong)

    def ties(self) -> Ties:
        """Count the ties of right answers with wrong ones."""
        sides = (
            (self.right.i2t[0], self.right.image_weight, self.wrong.i2t, self.wrong.i2t_ties),
            (self.right.t2i[1], self.right.text_weight, self.wrong.t2i, self.wrong.t2i_ties),
        )
        queries = 0
        for query, weight, ahead, ties in sides:
            first, lucky = _first(query, ahead), _first(query, ahead - ties)
            queries += int(weight[(lucky < first) & (lucky < max(KS))].sum())
        return Ties(queries, sum(map(len, (self.items.picture, self.items.text))), self._in_favour())

    def _in_favour(self) -> dict[str, float]:
        """Return the measures where a wrong item with the score of the right one is behind it."""
        return self.right.measures(self.wrong.without_ties())


@dataclass(frozen=True)
class Ties:
    """The ties of right answers with wrong ones.

    Attributes:
        queries: Number of queries that a tie may keep from a hit among the first ten.
        total: Number of queries.
        favour: The measures where ties count for the model.
    """

    queries: int
    total: int
    favour: Mapping[str, float]

    @staticmethod
    def together(folds: Sequence[Ties]) -> Ties:
        """Add the ties of folds up; the measures are their means."""
        favour = {key: float(np.mean([fold.favour[key] for fold in folds])) for key in folds[0].favour}
        return Ties(sum(fold.queries for fold in folds), sum(fold.total for fold in folds), favour)


@dataclass(frozen=True)
class Recall:
    """The measures of retrieval on a split, for `ensemble` and for each network.

    Attributes:
        views: The measures where copies of an image, and captions with equal text, are one item.
        strict: The measures by the papers' protocol, where only an image's own captions are right.
        notes: What equal items and ties change, in sentences; empty where they change no recall by more than 0.05.
    """

    views: Views
    strict: Views
    notes: list[str]


def recall_notes(
    split: str, items: EqualItems, found: Mapping[str, float], strict: Mapping[str, float], ties: Ties
) -> list[str]:
    """Return what equal items and ties change in recall, in sentences.

    Args:
        split: Name of the split.
        items: The numbers of its images and captions.
        found: The measures where equal items are one.
        strict: The measures by the papers' protocol.
        ties: The ties of its queries.
    """
    notes = []
    if _differ(found, strict):
        notes.append(
            f"{items.repeated(split)}. Equal items count as one right answer here: rSum is {found['rsum']:.1f}. By the "
            "papers' strict protocol, where only a pair's own image and caption are right, it is "
            f"{strict['rsum']:.1f}."
        )
    if _differ(found, ties.favour):
        notes.append(
            f"{ties.queries:,} of {ties.total:,} {split} queries have, among their first ten, a wrong answer with "
            "exactly the score of the right one: the encoders cannot tell them apart. Ties count against the model. If "
            f"they counted for it, rSum would be {ties.favour['rsum']:.1f}."
        )
    return notes


def _differ(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Return whether a recall differs by more than 0.05."""
    return any(abs(one[f"{way}_r{k}"] - other[f"{way}_r{k}"]) > NOTABLE for way in ("i2t", "t2i") for k in KS)


def _first(query: Ints, ahead: Ints) -> Ints:
    """Return the smallest number of wrong items ahead of a right answer of each query, each of which has one."""
    first = np.full(int(query.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, query, ahead)
    return first
