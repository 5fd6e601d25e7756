"""Which row of a changed source is which pair of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from pairsift.pairs.kept import Kept
from pairsift.pairs.pairs import Ints, Pairs

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Matching:
    """A run's pairs and images found again in a source.

    Attributes:
        rows: Row in the source of each of the run's pairs, (n_pairs,); -1 where it is gone.
        images: Row among the run's images of each image of the source, (n_images,); new ones get rows behind them.
    """

    rows: Ints
    images: Ints


def match_rows(kept: Kept, now: Pairs) -> Matching:
    """Find a run's pairs again in a source whose rows may have moved, changed, come or gone.

    A row is taken for a pair where it lies in its place and has its image and caption, else where it has both
    elsewhere, else where it lies in its place and has the image, else where it has the image elsewhere. Images are the
    same by name (with precomputed features by name and row). Where no name is the same, such as after absolute paths
    have moved, the files' own names decide, if every one of them is there once.

    Args:
        kept: What the run was made of.
        now: The source as it is read today.
    """
    old, new = _image_keys(kept, now)
    known = {key: row for row, key in enumerate(old)}
    fresh = count(len(old))
    images = np.array([known[key] if key in known else known.setdefault(key, next(fresh)) for key in new], np.int64)
    before = kept.image_of.tolist()
    after = [int(images[row]) if row >= 0 else -1 for row in now.image_of.tolist()]
    rows = np.full(len(before), -1, np.int64)
    free = np.ones(len(after), np.bool_)
    exact = list(zip(before, kept.captions, strict=True)), list(zip(after, now.captions, strict=True))
    for own, other in (exact, (before, after)):
        _in_place(own, other, rows, free)
        _elsewhere(own, other, rows, free)
    return Matching(rows, images)


def _in_place(old: Sequence[Hashable], new: Sequence[Hashable], rows: Ints, free: Bools) -> None:
    """Match open pairs with rows of the same number and key; changes `rows` and `free`."""
    for pair, (own, other) in enumerate(zip(old, new, strict=False)):
        if own == other and rows[pair] < 0 and free[pair]:
            rows[pair], free[pair] = pair, False


def _elsewhere(old: Sequence[Hashable], new: Sequence[Hashable], rows: Ints, free: Bools) -> None:
    """Match open pairs with free rows of the same key, both in order; changes `rows` and `free`."""
    places: dict[Hashable, deque[int]] = {}
    for row in np.flatnonzero(free).tolist():
        places.setdefault(new[row], deque()).append(row)
    for pair in np.flatnonzero(rows < 0).tolist():
        if waiting := places.get(old[pair]):
            rows[pair] = waiting.popleft()
            free[rows[pair]] = False


def _image_keys(kept: Kept, now: Pairs) -> tuple[list[Hashable], list[Hashable]]:
    """Return what tells the run's images apart, and the source's."""
    if now.features is not None:
        return _zipped(kept.names, kept.feature_rows), _zipped(now.names, now.features.rows)
    if not set(kept.names) & set(now.names):
        ends = [[PurePath(name).name for name in names] for names in (kept.names, now.names)]
        if all(len(set(names)) == len(names) for names in ends):
            return list(ends[0]), list(ends[1])
    return list(kept.names), list(now.names)


def _zipped(names: Iterable[str], rows: Ints) -> list[Hashable]:
    return list(zip(names, rows.tolist(), strict=True))
