"""The matching of the rows of a changed source to the pairs of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import PurePath

import numpy as np

from pairsift.arrays import Bools, Ints
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

    Four rules apply in this order: a row with the same position, image and caption; a row with the same image and
    caption at another position; a row with the same position and image; a row with the same image at another position.
    Images are the same if their names are equal (with precomputed features, their names and rows, unless captions have
    vectors too, where a row belongs to a row of a table). If no name is equal,
    for example after absolute paths have moved, the file names without folders decide, provided that each of them is
    unique.

    Args:
        stored: The pairs of the run, as they were stored.
        source: The source as it is read now.
    """
    run_keys, source_keys = _image_keys(stored, source)
    row_of = {key: row for row, key in enumerate(run_keys)}
    next_rows = count(len(run_keys))
    images = np.array(
        [row_of[key] if key in row_of else row_of.setdefault(key, next(next_rows)) for key in source_keys], np.int64
    )
    run_images = stored.image_of.tolist()
    source_images = [int(images[row]) if row >= 0 else -1 for row in source.image_of.tolist()]
    rows = np.full(len(run_images), -1, np.int64)
    free = np.ones(len(source_images), np.bool_)
    exact = list(zip(run_images, stored.captions, strict=True)), list(zip(source_images, source.captions, strict=True))
    for run_side, source_side in (exact, (run_images, source_images)):
        _in_place(run_side, source_side, rows, free)
        _elsewhere(run_side, source_side, rows, free)
    return Matching(rows, images)


def _in_place(run_keys: Sequence[Hashable], source_keys: Sequence[Hashable], rows: Ints, free: Bools) -> None:
    """Match open pairs to free rows with the same number and the same key; change `rows` and `free` in place."""
    for pair, (run_key, source_key) in enumerate(zip(run_keys, source_keys, strict=False)):
        if run_key == source_key and rows[pair] < 0 and free[pair]:
            rows[pair], free[pair] = pair, False


def _elsewhere(run_keys: Sequence[Hashable], source_keys: Sequence[Hashable], rows: Ints, free: Bools) -> None:
    """Match open pairs to free rows with the same key, both in order; change `rows` and `free` in place."""
    places: dict[Hashable, deque[int]] = {}
    for row in np.flatnonzero(free).tolist():
        places.setdefault(source_keys[row], deque()).append(row)
    for pair in np.flatnonzero(rows < 0).tolist():
        if rows_of_key := places.get(run_keys[pair]):
            rows[pair] = rows_of_key.popleft()
            free[rows[pair]] = False


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
