"""Arrays whose rows are read or decoded when they are gathered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from pairsift.arrays import Ints
from pairsift.encode.decode import BadImage, open_image
from pairsift.errors import InputError

Bytes = NDArray[np.uint8]


class LazyRows(ABC):
    """An array that is read row by row.

    Attributes:
        shape: Number of rows, followed by the shape of a row.
        dtype: Type of the values.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, index: NDArray[Any]) -> NDArray[Any]:
        """Gather these rows, (len(index), ...)."""


Rows = NDArray[Any] | LazyRows


class JoinedRows(LazyRows):
    """The rows of an array, followed by some rows of another array, without a copy of either.

    Args:
        first: The first rows.
        second: An array whose rows have the same shape and type.
        rows: The rows of `second` that follow, (n,).
    """

    def __init__(self, first: Rows, second: Rows, rows: Ints) -> None:
        self._first, self._second, self._rows = first, second, rows
        self.shape = (first.shape[0] + len(rows), *first.shape[1:])
        self.dtype = first.dtype

    def __getitem__(self, index: NDArray[Any]) -> NDArray[Any]:
        """Gather these rows, (len(index), ...)."""
        size = self._first.shape[0]
        behind = index >= size
        gathered = np.empty((len(index), *self.shape[1:]), self.dtype)
        gathered[~behind] = self._first[index[~behind]]
        gathered[behind] = self._second[self._rows[index[behind] - size]]
        return gathered


class ImagePixels(LazyRows):
    """The pixels of image files, decoded by as many threads as torch has.

    Pixels are bytes. A matcher scales them on its device, so only a quarter of the memory is transferred.

    Args:
        paths: The files, (n,).
        crop: Function from an RGB image to bytes of shape `size`; it is called in several threads at the same time.
        size: (3, height, width).
        broken: Rows that cannot be decoded; their pixels are black.

    Attributes:
        tokens: Weight of an image when batches are cut: one for every 32 x 32 pixels.
    """

    dtype = np.dtype(np.uint8)

    def __init__(
        self,
        paths: Sequence[Path],
        crop: Callable[[Image.Image], Bytes],
        size: tuple[int, int, int],
        broken: Collection[int] = (),
    ) -> None:
        self._paths, self._crop, self._broken = paths, crop, frozenset(broken)
        self._pool = ThreadPoolExecutor(torch.get_num_threads(), "decode")
        self.shape = (len(paths), *size)
        self.tokens = max(1, size[1] * size[2] // 1024)

    def joined(self, other: ImagePixels, rows: Ints) -> ImagePixels:
        """Return these images, followed by some images of `other` with the same preprocessing, (n,) rows."""
        paths = [*self._paths, *(other._paths[row] for row in rows.tolist())]
        broken = [*self._broken, *(len(self) + np.flatnonzero(np.isin(rows, list(other._broken)))).tolist()]
        return ImagePixels(paths, self._crop, (self.shape[1], self.shape[2], self.shape[3]), broken)

    def __getitem__(self, index: NDArray[Any]) -> Bytes:
        """Decode these images, each once, (len(index), 3, height, width).

        Raises:
            InputError: An image cannot be decoded.
        """
        rows, places = np.unique(index, return_inverse=True)
        images = np.zeros((len(rows), *self.shape[1:]), np.uint8)

        def decode(task: tuple[int, int]) -> None:
            place, row = task
            try:
                images[place] = self._crop(open_image(self._paths[row], smallest=2 * max(self.shape[2:])))
            except BadImage as error:
                advice = f"{error.reason}; it was readable before: put it back, or fit again"
                raise InputError(f"{self._paths[row]}: {advice}") from error

        tasks = [(place, row) for place, row in enumerate(rows.tolist()) if row not in self._broken]
        for _ in self._pool.map(decode, tasks):
            pass
        return images if len(rows) == len(places) and (places[1:] > places[:-1]).all() else images[places]
