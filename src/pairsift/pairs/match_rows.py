"""The matching of the rows of a changed source to the pairs of a run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import PurePath

import numpy as np

from pairsift.arrays import Ints
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.stored import StoredPairs


@dataclass(frozen=True)
class Matching:
    """The pairs and images of a run, matched to those of a source.

    Attributes:
        rows: Row in the source of each pair of the run, (n_pairs,); -1 for a pair that is gone.
        images: Row among the run's images of each image of the source, (n_images,). New images get the rows after them.
    """

    rows: Ints
    images: Ints


def match_rows(stored: StoredPairs, source: Pairs) -> Matching:
    """Match the pairs of a run to the rows of a source, where rows may have moved, changed, appeared or disappeared.

    A row with the same image and caption comes first, wherever it is; among equal ones the order decides, and pairs
    that were gone come last. Other pairs, unless they were gone, take a row with the same image, whose caption has then
    changed: in their order where an image has as many such rows as pairs, else a row at the same position, else in
    their order. Images are the same if their names are equal (with precomputed features, their names and rows, unless
    captions have vectors too, where a row belongs to a row of a table). If no name is equal, for example after absolute
    paths have moved, the file names without folders decide, provided that each of them is unique.

    Args:
        stored: The stored pairs of the run.
        source: The source as it is read now.
    """
    run_keys, source_keys = _image_keys(stored, source)
    row_of = {key: row for row, key in enumerate(run_keys)}
    next_rows = count(len(run_keys))
    images = np.array(
        [row_of[key] if key in row_of else row_of.setdefault(key, next(next_rows)) for key in source_keys], np.int64
    )
    run_images = stored.image_of
    source_images = np.where(source.image_of >= 0, np.append(images, -1)[source.image_of], -1)
    last = np.arange(len(run_images)) if stored.rows is None else stored.rows
    match = _Match(last, len(source_images))
    numbers: dict[Hashable, int] = {}
    match.in_order(
        _numbered(zip(run_images.tolist(), stored.captions, strict=True), numbers),
        _numbered(zip(source_images.tolist(), source.captions, strict=True), numbers),
    )
    match.give_up_gone()
    match.in_order(run_images, source_images, only_equal_counts=True)
    match.in_place(run_images, source_images)
    match.in_order(run_images, source_images)
    return Matching(match.rows, images)


class _Match:
    """The rows of pairs, found step by step.

    Args:
        last: Row that each pair had, (n_pairs,); -1 for a pair that was gone.
        n_rows: Number of rows now.

    Attributes:
        rows: Row of each pair so far, (n_pairs,); -1 for none.
    """

    def __init__(self, last: Ints, n_rows: int) -> None:
        self.rows = np.full(len(last), -1, np.int64)
        self._last = last
        self._free = np.ones(n_rows, np.bool_)
        self._order = np.lexsort((np.arange(len(last)), last, last < 0))  # pairs by their rows, gone ones behind them

    def give_up_gone(self) -> None:
        """Leave pairs that were gone without a row from now on."""
        self._order = self._order[self._last[self._order] >= 0]

    def in_order(self, run_keys: Ints, source_keys: Ints, only_equal_counts: bool = False) -> None:
        """Give pairs without a row the free rows with the same key, the first pair of a key the first row.

        Args:
            run_keys: Key of each pair, (n_pairs,).
            source_keys: Key of each row, (n_rows,).
            only_equal_counts: Whether to leave out keys that have not as many such rows as pairs.
        """
        pairs, free = self._order[self.rows[self._order] < 0], np.flatnonzero(self._free)
        keys = run_keys[pairs], source_keys[free]
        if only_equal_counts and len(pairs) and len(free):
            known, numbers = np.unique(np.concatenate(keys), return_inverse=True)
            split = numbers[: len(pairs)], numbers[len(pairs) :]
            equal = np.equal(*(np.bincount(side, minlength=len(known)) for side in split))
            pairs, free = pairs[equal[split[0]]], free[equal[split[1]]]
            keys = run_keys[pairs], source_keys[free]
        mine, theirs = ((side + 1) * (len(self._last) + len(self._free)) + _ranks(side) for side in keys)
        _, left, right = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
        self._take(pairs[left], free[right])

    def in_place(self, run_keys: Ints, source_keys: Ints) -> None:
        """Give pairs without a row the row that they had, if it is free and has the same key."""
        pairs = self._order[self.rows[self._order] < 0]
        pairs = pairs[self._last[pairs] < len(self._free)]
        rows = self._last[pairs]
        same = self._free[rows] & (run_keys[pairs] == source_keys[rows])
        self._take(pairs[same], rows[same])

    def _take(self, pairs: Ints, rows: Ints) -> None:
        self.rows[pairs], self._free[rows] = rows, False


def _ranks(keys: Ints) -> Ints:
    """Return how many equal keys stand before each key, (n,)."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = np.arange(len(keys)) - np.searchsorted(ordered, ordered)
    return ranks


def _numbered(keys: Iterable[Hashable], numbers: dict[Hashable, int]) -> Ints:
    """Return the number of each key, (n,); new keys get the next numbers."""
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def _image_keys(stored: StoredPairs, source: Pairs) -> tuple[list[Hashable], list[Hashable]]:
    """Return the keys that identify the images of the run, and those of the images of the source."""
    if source.features is not None and source.features.captions is None:
        return _zipped(stored.names, stored.feature_rows), _zipped(source.names, source.features.rows)
    if not set(stored.names) & set(source.names):
        ends = [[PurePath(name).name for name in names] for names in (stored.names, source.names)]
        if all(len(set(names)) == len(names) for names in ends):
            return list(ends[0]), list(ends[1])
    return list(stored.names), list(source.names)


def _zipped(names: Iterable[str], rows: Ints) -> list[Hashable]:
    return list(zip(names, rows.tolist(), strict=True))
