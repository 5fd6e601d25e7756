"""The rows of one array followed by rows of another, without a copy of either."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pairsift.arrays import Ints


class Rows(Protocol):
    """An array whose rows can be gathered."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows, and the shape of a row."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""

    def __getitem__(self, index: NDArray[Any]) -> NDArray[Any]:
        """Gather these rows."""


class Followed:
    """The rows of an array, followed by some rows of another array; only requested rows are read.

    Args:
        first: The first rows.
        second: An array whose rows have the same shape and type.
        rows: The rows of `second` that follow, (n,).

    Attributes:
        shape: (len(first) + n, *shape of a row).
        dtype: The type of the values.
    """

    def __init__(self, first: Rows, second: Rows, rows: Ints) -> None:
        self._first, self._second, self._rows = first, second, rows
        self.shape: tuple[int, ...] = (first.shape[0] + len(rows), *first.shape[1:])
        self.dtype = first.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: NDArray[Any]) -> NDArray[Any]:
        """Gather these rows, (len(index), ...)."""
        size = self._first.shape[0]
        behind = index >= size
        gathered = np.empty((len(index), *self.shape[1:]), self.dtype)
        gathered[~behind] = self._first[index[~behind]]
        gathered[behind] = self._second[self._rows[index[behind] - size]]
        return gathered
