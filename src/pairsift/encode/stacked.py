"""Features that came with the source: several .npy files behind one index, read row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pairsift.errors import InputError
from pairsift.pairs.pairs import Ints
from pairsift.pairs.precomputed import Floats, Precomputed, open_rows


class Stacked:
    """Rows of several arrays laid end to end; what is not asked for is never read.

    Args:
        parts: The arrays, usually memory-mapped, each (rows, regions, dim) or (rows, dim), alike in all but the rows.
        rows: For each item its row in the parts laid end to end, (n,).
        pooled: Whether an item is the mean over its regions, (dim,), computed when it is gathered.

    Attributes:
        shape: (n, regions, dim), or (n, dim) where items are single vectors.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, parts: Sequence[Floats], rows: Ints, pooled: bool = False) -> None:
        self._parts, self._rows, self._pooled = tuple(parts), rows, pooled
        self._starts = np.cumsum([0, *map(len, parts)])
        item = parts[0].shape[1:]
        self.shape: tuple[int, ...] = (len(rows), *(item[1:] if pooled else item))

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: NDArray[Any]) -> NDArray[np.float32]:
        """Gather these items, (len(index), ...).

        Raises:
            InputError: A value is not finite.
        """
        rows = self._rows[index]
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        out = np.empty((len(rows), *self.shape[1:]), np.float32)
        for number in np.unique(owner).tolist():
            at = np.flatnonzero(owner == number)
            values = self._parts[number][rows[at] - self._starts[number]]
            out[at] = values.mean(1, dtype=np.float32) if self._pooled else values
        if not np.isfinite(out).all():
            bad = int(np.flatnonzero(~np.isfinite(out.reshape(len(out), -1)).all(1))[0])
            file = getattr(self._parts[owner[bad]], "filename", "the features")
            raise InputError(f"{file}: row {rows[bad] - self._starts[owner[bad]]} holds values that are not finite")
        return out


def open_stacked(features: Precomputed, kind: Literal["vector", "regions"]) -> Stacked:
    """The images' features as a matcher takes them, memory-mapped.

    Args:
        features: Where they lie.
        kind: `regions` for all regions (single vectors are one region), `vector` for their mean.

    Returns:
        (n_images, dim) or (n_images, regions, dim).

    Raises:
        InputError: A file cannot be read, or is not what it was when the source was read.
    """
    parts = []
    for file in features.parts:
        values = open_rows(file)
        if values.shape[1:] != features.shape:
            raise InputError(f"{file}: has changed while it was read; start again")
        parts.append(values[:, None] if values.ndim == 2 else values)
    return Stacked(parts, features.rows, pooled=kind == "vector")
