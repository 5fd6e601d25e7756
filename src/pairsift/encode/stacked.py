"""The features that a source contains: several .npy files with one index, of which only gathered rows are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pairsift.arrays import Ints
from pairsift.errors import InputError
from pairsift.pairs.precomputed import FeatureFiles, Floats, open_rows

READ_ROWS = 64  # least rows per read; more only while they take less than this, so that no batch is in memory twice:
READ_BYTES = 1 << 20


@dataclass(frozen=True)
class RowsFile:
    """A .npy file of rows.

    Attributes:
        file: The file.
        rows: Number of rows.
        item: Shape of a row.
        dtype: Type of the values.
        offset: Byte at which the first row begins.
    """

    file: Path
    rows: int
    item: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int

    @staticmethod
    def open(file: Path) -> RowsFile:
        """Read the header of a file.

        Raises:
            InputError: It is not a file of features.
        """
        values = open_rows(file)
        return RowsFile(file, len(values), values.shape[1:], values.dtype, values.offset)

    def read(self, rows: Ints) -> Floats:
        """Read these rows, (len(rows), *item).

        The rows are read and not mapped. A row may have hundreds of kilobytes, which page faults read several times
        slower, and mapped pages would count as memory of this process. Consecutive rows are read together.

        Raises:
            InputError: The file cannot be read.
        """
        values: Floats = np.empty((len(rows), *self.item), self.dtype)
        size = values[:1].nbytes
        starts = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist()]
        try:
            with self.file.open("rb", buffering=0) as stream:
                for start, end in pairwise([*starts, len(rows)]):
                    stream.seek(self.offset + int(rows[start]) * size)
                    count = stream.readinto(values[start:end].data)
                    if count != (end - start) * size:
                        row = rows[start] + count // size
                        raise InputError(f"{self.file}: ends before row {row} does; copy or make it again")
        except OSError as error:
            raise InputError(f"{self.file}: cannot be read: {error.strerror or error}") from error
        return values


class Stacked:
    """The rows of several concatenated files; only requested rows are read.

    Args:
        parts: The files, with equal shapes of their rows: (regions, dim) or (dim,).
        rows: Row of each item in the concatenated parts, (n,).
        kind: `regions` for all regions of an item (a single vector is one region), `vector` for their mean, computed
            when the item is gathered.

    Attributes:
        shape: (n, regions, dim) or (n, dim).
        dtype: float32, whatever the type in the files.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, parts: Sequence[RowsFile], rows: Ints, kind: Literal["vector", "regions"]) -> None:
        self._parts, self._rows, self._pooled = tuple(parts), rows, kind == "vector"
        self._starts = np.cumsum([0, *(part.rows for part in parts)])
        dim, regions = parts[0].item[-1], parts[0].item[0] if len(parts[0].item) > 1 else 1
        self.shape: tuple[int, ...] = (len(rows), dim) if self._pooled else (len(rows), regions, dim)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: NDArray[Any]) -> NDArray[np.float32]:
        """Gather these items, (len(index), ...).

        Raises:
            InputError: A file cannot be read, or a value is not finite.
        """
        gathered = np.empty((len(index), *self.shape[1:]), np.float32)
        for places, values in self._parts_of(index):
            finite = np.isfinite(values).reshape(len(places), -1).all(1)
            if not finite.all():
                place = self.place(int(index[places[~finite][0]]))
                raise InputError(f"{place} holds values that are not finite; mend it or leave it out")
            gathered[places] = values
        return gathered

    def place(self, item: int) -> str:
        """Return the file and the row of an item in words, such as `text.npy: row 17`."""
        owner, row = self._owners(np.array([item]))
        part = int(owner[0])
        return f"{self._parts[part].file}: row {row[0] - self._starts[part]}"

    def unusable(self, items: Ints) -> dict[int, str]:
        """Return why items have no direction as float32, by item in ascending order; a few rows at a time are read.

        They have values that are not finite, or a squared length of 0 or beyond float32.

        Raises:
            InputError: A file cannot be read.
        """
        found: dict[int, str] = {}
        for places, values in self._parts_of(items):
            rows = values.reshape(len(places), -1)
            with np.errstate(over="ignore", invalid="ignore", under="ignore"):
                length = np.square(rows).sum(1)
            finite = np.isfinite(rows).all(1)
            for bad, reason in (
                (~finite, "holds values that are not finite"),
                (finite & ~np.isfinite(length), "holds values that are too large for float32"),
                (length == 0, "holds nothing but zeros"),
            ):
                found |= dict.fromkeys(items[places[bad]].tolist(), reason)
        return dict(sorted(found.items()))

    def _owners(self, index: Ints) -> tuple[Ints, Ints]:
        """Return the part and the row of items."""
        rows = self._rows[index]
        return np.searchsorted(self._starts, rows, side="right") - 1, rows

    def _parts_of(self, index: Ints) -> Iterator[tuple[Ints, NDArray[np.float32]]]:
        """Yield places in the index with the values of the items there, from the front of the files to their back."""
        owner, rows = self._owners(index)
        order = np.argsort(rows, kind="stable")
        step = max(READ_ROWS, READ_BYTES // (4 * int(np.prod(self._parts[0].item))))
        for number in np.unique(owner).tolist():
            part_places = order[owner[order] == number]
            for places in (part_places[start : start + step] for start in range(0, len(part_places), step)):
                values = self._parts[number].read(rows[places] - self._starts[number])
                values = values.reshape(len(places), -1, self.shape[-1])
                with np.errstate(over="ignore", invalid="ignore"):  # such values are reported
                    values = values.mean(1, dtype=np.float32) if self._pooled else values.astype(np.float32)
                yield places, values


def open_stacked(features: FeatureFiles, kind: Literal["vector", "regions"]) -> Stacked:
    """Open precomputed features for a matcher.

    Args:
        features: Location of the features.
        kind: `regions` for all regions (single vectors are one region), `vector` for their mean.

    Returns:
        (n, dim) or (n, regions, dim).

    Raises:
        InputError: A file cannot be read, or its rows have changed their shape since the source was read.
    """
    parts = [RowsFile.open(file) for file in features.parts]
    for part in parts:
        if part.item != features.shape:
            raise InputError(f"{part.file}: has changed while it was read; start again")
    return Stacked(parts, features.rows, kind)
