"""The features that a source contains: several .npy files with one index, of which only gathered rows are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pairsift.arrays import Ints
from pairsift.errors import InputError
from pairsift.pairs.precomputed import Floats, Precomputed, open_rows

READ_ROWS = 64  # rows per read, so that a gathered batch is not in memory twice


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

        The rows are read and not mapped. A row has hundreds of kilobytes, which page faults read several times slower,
        and mapped pages would count as memory of this process.

        Raises:
            InputError: The file cannot be read, or a value is not finite.
        """
        values: Floats = np.empty((len(rows), *self.item), self.dtype)
        size = values[:1].nbytes
        try:
            with self.file.open("rb", buffering=0) as stream:
                for place, row in zip(values, rows.tolist(), strict=True):
                    stream.seek(self.offset + row * size)
                    if stream.readinto(place) != size:
                        raise InputError(f"{self.file}: ends before row {row} does; copy or make it again")
        except OSError as error:
            raise InputError(f"{self.file}: cannot be read: {error.strerror or error}") from error
        finite = np.isfinite(values).reshape(len(rows), -1).all(1)
        if not finite.all():
            bad = rows[~finite][0]
            raise InputError(f"{self.file}: row {bad} holds values that are not finite; mend it or leave it out")
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
        rows = self._rows[index]
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(rows, kind="stable")  # files are read from front to back
        gathered = np.empty((len(rows), *self.shape[1:]), np.float32)
        for number in np.unique(owner).tolist():
            part_places = order[owner[order] == number]
            for places in (part_places[start : start + READ_ROWS] for start in range(0, len(part_places), READ_ROWS)):
                values = self._parts[number].read(rows[places] - self._starts[number])
                values = values.reshape(len(places), -1, self.shape[-1])
                gathered[places] = values.mean(1, dtype=np.float32) if self._pooled else values
        return gathered


def open_stacked(features: Precomputed, kind: Literal["vector", "regions"]) -> Stacked:
    """Open the precomputed features of the images for a matcher.

    Args:
        features: Location of the features.
        kind: `regions` for all regions (single vectors are one region), `vector` for their mean.

    Returns:
        (n_images, dim) or (n_images, regions, dim).

    Raises:
        InputError: A file cannot be read, or its rows have changed their shape since the source was read.
    """
    parts = [RowsFile.open(file) for file in features.parts]
    for part in parts:
        if part.item != features.shape:
            raise InputError(f"{part.file}: has changed while it was read; start again")
    return Stacked(parts, features.rows, kind)
