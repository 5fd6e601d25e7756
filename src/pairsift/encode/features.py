"""Arrays of frozen features, and the batches that matchers take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsift.arrays import Ints
from pairsift.encode.lazy_rows import ImagePixels, JoinedRows, LazyRows


@dataclass(frozen=True)
class Items:
    """A batch of images or of texts.

    Attributes:
        values: (n, d) vectors, (n, length, d) regions or token vectors, (n, length) token ids, or (n, 3, height, width)
            pixels as bytes; padding is 0.
        mask: True at real tokens, (n, length), or None if every entry is real.
        whole: Number of items of the batch that these are one process's share of; None where they are the batch.
    """

    values: Tensor
    mask: Tensor | None = None
    whole: int | None = None

    def to(self, device: torch.device) -> Items:
        """Return the same batch on another device."""
        mask = None if self.mask is None else self.mask.to(device, non_blocking=True)
        return Items(self.values.to(device, non_blocking=True), mask, self.whole)


@dataclass(frozen=True)
class Table:
    """The features of many items, usually memory-mapped.

    Attributes:
        values: One row per item, (n, d) or (n, regions, d). With `offsets`, the tokens of all items one after the
            other, (total, d) vectors or (total,) ids.
        offsets: Positions of the items in `values`, (n + 1,): item i is `values[offsets[i]:offsets[i + 1]]`. None if
            each item has one row.
    """

    values: NDArray[np.generic] | LazyRows
    offsets: Ints | None = None

    @staticmethod
    def from_items(encoded: NDArray[np.generic] | list[NDArray[np.generic]]) -> Table:
        """Convert the output of a text encoder to a table: (n, d), or a list of n arrays (length, ...)."""
        if not isinstance(encoded, list):
            return Table(encoded)
        lengths = np.array([len(tokens) for tokens in encoded], np.int64)
        return Table(np.concatenate(encoded), np.concatenate([np.zeros(1, np.int64), lengths.cumsum()]))

    def joined(self, other: Table, rows: Ints) -> Table:
        """Return a table of all items, followed by some items of another table, without a copy of either.

        Args:
            other: A table by the same encoder, or of features of the same shape.
            rows: The items of `other`, (n,).
        """
        if isinstance(self.values, ImagePixels) and isinstance(other.values, ImagePixels):
            return Table(self.values.joined(other.values, rows))
        if self.offsets is None or other.offsets is None:
            return Table(JoinedRows(self.values, other.values, rows))
        lengths = other.lengths[rows]
        ends = lengths.cumsum()
        places = np.arange(lengths.sum()) + np.repeat(other.offsets[rows] - (ends - lengths), lengths)
        return Table(
            JoinedRows(self.values, other.values, places), np.concatenate([self.offsets, self.offsets[-1] + ends])
        )

    def __len__(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    @property
    def dim(self) -> int:
        """The size of one vector (1 for token ids)."""
        ids = self.offsets is not None and self.values.ndim == 1
        return 1 if ids else int(self.values.shape[-1])

    @property
    def lengths(self) -> Ints:
        """The number of tokens of each item, 1 for a vector, (n,)."""
        if self.offsets is not None:
            return np.diff(self.offsets)
        if isinstance(self.values, ImagePixels):
            return np.full(len(self), self.values.tokens, np.int64)
        return np.full(len(self), self.values.shape[1] if self.values.ndim == 3 else 1, np.int64)

    def batch(self, rows: Ints) -> Items:
        """Gather these rows, padding ragged items with 0 to the longest, (len(rows), ...)."""
        if self.offsets is None:
            return Items(torch.from_numpy(_standard(self.values[rows])))
        start, length = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        position = np.arange(max(1, int(length.max(initial=0))))
        mask = position < length[:, None]
        gathered = np.zeros(mask.shape + self.values.shape[1:], self.values.dtype)
        gathered[mask] = self.values[(start[:, None] + position)[mask]]
        return Items(torch.from_numpy(_standard(gathered)), torch.from_numpy(mask))


@dataclass(frozen=True)
class Features:
    """The features of the pairs: row i of `images` belongs to image i, row i of `texts` to the caption of pair i."""

    images: Table
    texts: Table


def _standard(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """Convert values to float32 or int64, the types that matchers compute with; bytes stay bytes."""
    if values.dtype == np.uint8:
        return values
    return np.ascontiguousarray(values, dtype=np.int64 if values.dtype.kind in "iu" else np.float32)
