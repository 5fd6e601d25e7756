"""Pairs of vectors in arrays, checked, and taken by rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from pairsift.arrays import Array, Bools, Floats, Ints, first_numbers
from pairsift.detect.folds import fingerprints
from pairsift.encode.lazy_rows import LazyRows
from pairsift.errors import InputError
from pairsift.match.two_tower import check_one_space

SMALLEST, LARGEST = 1e-6, 1e12  # of the largest value, since squares are added in float32
ROWS = 16_384  # rows that are checked at once


class Texts(ABC):
    """Texts that are read when they are needed."""

    @abstractmethod
    def __len__(self) -> int:
        """Return their number."""

    @abstractmethod
    def at(self, rows: Ints) -> list[str]:
        """Return the texts in these rows."""


@dataclass(frozen=True)
class VectorPairs:
    """Pairs of vectors, in memory, mapped from a file, or read when they are needed.

    Attributes:
        images: Vector of each pair's image, (n, d), of any floating type.
        captions: Vector of each pair's caption, (n, e), of any floating type.
        image_of: Number of each pair's image, from 0 in the order in which images first appear, (n,).
        texts: The captions, (n,); None where they are not known.
        train: Whether each pair is a training pair, (n,).
        verified: Whether each pair is known to match, (n,).
        aligned: Whether images and captions share a space.
    """

    images: Array | LazyRows
    captions: Array | LazyRows
    image_of: Ints
    texts: Sequence[str] | pa.ChunkedArray | Texts | None
    train: Bools
    verified: Bools
    aligned: bool

    @staticmethod
    def of(
        image_vectors: Any, caption_vectors: Any, captions: Sequence[str] | None, image_ids: Any, aligned: bool
    ) -> VectorPairs:
        """Make pairs of arrays.

        Raises:
            InputError: The arrays cannot be used or do not fit each other.
        """
        images, texts = (
            _vectors(name, values)
            for name, values in (("image_vectors", image_vectors), ("caption_vectors", caption_vectors))
        )
        shapes = f"image_vectors has shape {images.shape} and caption_vectors {texts.shape}"
        if len(images) != len(texts):
            raise InputError(f"{shapes}: give one row of each for every pair")
        if not len(images):
            raise InputError(f"{shapes}: give at least one pair")
        if aligned:
            check_one_space(images.shape[1], texts.shape[1])
        if captions is not None:
            captions = _texts(captions, len(texts))
        ids = fingerprints(images) if image_ids is None else _ids(image_ids, len(images))
        everywhere = np.ones(len(texts), np.bool_)
        return VectorPairs(images, texts, first_numbers(ids), captions, everywhere, ~everywhere, aligned)

    def __len__(self) -> int:
        return len(self.captions)

    @cached_property
    def first_rows(self) -> Ints:
        """The first pair of each image, (m,)."""
        return np.unique(self.image_of, return_index=True)[1]

    def image_vectors(self) -> Floats:
        """Return the vector of each image, (m, d)."""
        return np.asarray(self.images[self.first_rows], np.float32)

    def texts_at(self, rows: Ints) -> list[str]:
        """Return the captions in these rows.

        Raises:
            ValueError: The captions are not known.
        """
        if self.texts is None:
            raise ValueError("the captions are not known")
        if isinstance(self.texts, Texts):
            return self.texts.at(rows)
        if isinstance(self.texts, pa.ChunkedArray):
            found: list[str] = self.texts.take(pa.array(rows)).to_pylist()
            return found
        return [self.texts[row] for row in rows.tolist()]

    def caption_keys(self) -> Iterator[Any]:
        """Yield each caption, or a number that equal vectors have in common where the captions are not known."""
        if self.texts is None:
            yield from fingerprints(whole(self.captions)).tolist()
            return
        for start in range(0, len(self), ROWS):
            yield from self.texts_at(np.arange(start, min(start + ROWS, len(self))))

    def subset(self, rows: Ints) -> VectorPairs:
        """Return the pairs in these rows alone, in memory."""
        return VectorPairs(
            np.asarray(self.images[rows], np.float32),
            np.asarray(self.captions[rows], np.float32),
            first_numbers(self.image_of[rows]),
            None if self.texts is None else self.texts_at(rows),
            self.train[rows],
            self.verified[rows],
            self.aligned,
        )

    def concatenated(self, new: VectorPairs) -> VectorPairs:
        """Return these pairs and new ones, all in memory; a new image may be one of these."""
        own, added = (fingerprints(whole(pairs.images)) for pairs in (self, new))
        values, first = np.unique(own, return_index=True)
        place = np.minimum(np.searchsorted(values, added), len(values) - 1)
        number = np.where(values[place] == added, self.image_of[first[place]], self.image_of.max() + 1 + new.image_of)
        texts = None
        if self.texts is not None and new.texts is not None:
            texts = [text for pairs in (self, new) for text in pairs.texts_at(np.arange(len(pairs)))]
        return VectorPairs(
            np.concatenate([whole(self.images), whole(new.images)]),
            np.concatenate([whole(self.captions), whole(new.captions)]),
            first_numbers(np.concatenate([self.image_of, number])),
            texts,
            np.concatenate([self.train, new.train]),
            np.concatenate([self.verified, new.verified]),
            self.aligned,
        )


def whole(rows: Array | LazyRows) -> Array:
    """Return all rows as an array."""
    return rows if isinstance(rows, np.ndarray) else rows[np.arange(len(rows))]


def _vectors(name: str, values: Any) -> Array:
    """Return vectors of a floating type, (n, d).

    Raises:
        InputError: They are no rows of finite numbers.
    """
    if isinstance(values, torch.Tensor):
        values = values.detach().to("cpu", torch.float32).numpy()
    elif isinstance(values, pa.ChunkedArray | pa.Array):
        values = _arrow_rows(name, values)
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = np.zeros(0, np.object_)
    if array.dtype.kind not in "fiu":
        raise InputError(
            f"{name} is an array of {array.dtype}: give rows of numbers of one length, such as np.stack(rows)"
        )
    if array.ndim != 2 or not array.shape[1]:
        raise InputError(f"{name} has shape {array.shape}: give one row of numbers for every pair, (n, d)")
    if array.dtype.kind != "f":
        array = array.astype(np.float32)
    largest = 0.0
    for start in range(0, len(array), ROWS):
        with np.errstate(over="ignore"):
            part = np.asarray(array[start : start + ROWS], np.float32)
        finite = np.isfinite(part.sum(1)) if np.isfinite(part.sum()) else np.isfinite(part).all(1)
        if not finite.all():
            row = start + int(finite.argmin())
            raise InputError(
                f"{name} has shape {array.shape}, and row {row} holds NaN or infinity: leave such pairs out"
            )
        largest = max(largest, float(part.max(initial=0)), -float(part.min(initial=0)))
    if largest and not SMALLEST <= largest <= LARGEST:
        raise InputError(f"{name} holds values of up to {largest:.0e}, which float32 cannot compare: scale them to 1")
    return array


def _arrow_rows(name: str, values: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Return the rows of an Arrow array of lists.

    Raises:
        InputError: It holds no lists of one length, or nulls.
    """
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    kinds = pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list
    flat = array.flatten() if any(kind(array.type) for kind in kinds) else array
    if flat is array or array.null_count or flat.null_count or (len(array) and len(flat) % len(array)):
        raise InputError(
            f"{name} is an Arrow array of {array.type}, {array.null_count} of them null: give lists of one length"
        )
    if not pa.types.is_fixed_size_list(array.type) and len(set(array.value_lengths().to_pylist())) > 1:
        raise InputError(f"{name} is an Arrow array of lists of different lengths: give lists of one length")
    return np.asarray(flat.to_numpy(zero_copy_only=False).reshape(len(array), -1))


def _texts(captions: Any, rows: int) -> Sequence[str] | pa.ChunkedArray:
    """Return captions as texts in a list or in Arrow.

    Raises:
        InputError: They are no texts, or not as many as rows.
    """
    if isinstance(captions, str):
        raise InputError(f"captions is one text, {captions[:20]!r}: give one for every pair")
    texts: Any = captions if isinstance(captions, pa.ChunkedArray) else list(captions)
    if isinstance(captions, pa.Array):
        texts = pa.chunked_array([captions])
    if not isinstance(texts, pa.ChunkedArray):
        wrong = [text for text in texts if not isinstance(text, str)]
    elif pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type):
        wrong = [None] * min(1, texts.null_count)
    else:
        wrong = [text for text in texts.to_pylist() if not isinstance(text, str)]
        texts = texts.to_pylist()
    if wrong:
        raise InputError(f"captions holds {wrong[0]!r}: give one text for every pair")
    if len(texts) != rows:
        raise InputError(f"captions has {len(texts)} texts and caption_vectors {rows} rows: give one for every pair")
    return texts


def _ids(image_ids: Any, rows: int) -> np.ndarray:
    ids = np.asarray(image_ids)
    if ids.shape != (rows,):
        raise InputError(f"image_ids has shape {ids.shape} and image_vectors {rows} rows: give one for every pair")
    return ids.astype(str) if ids.dtype.kind == "O" else ids


def mask_of(name: str, values: Any, rows: int) -> Bools:
    """Return a mask of the pairs, (n,).

    Raises:
        InputError: It holds no bool for every pair.
    """
    mask = np.asarray(values)
    if mask.shape != (rows,) or mask.dtype.kind != "b":
        raise InputError(f"{name} has shape {mask.shape} and type {mask.dtype}: give a bool for every pair, ({rows},)")
    return mask
