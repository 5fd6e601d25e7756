"""The features that a source brings: files of image features, and vectors in place of a text encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pairsift.arrays import Ints
from pairsift.encode.encoder import Array, TextEncoder, digest
from pairsift.encode.lazy_rows import LazyRows
from pairsift.encode.options import EMBEDDINGS
from pairsift.errors import InputError
from pairsift.pairs.pairs import SKIPPED, Pairs, Skip
from pairsift.pairs.precomputed import FeatureFiles, Floats, open_rows

READ_ROWS = 64  # least rows per read; more only while they take less than this, so that no batch is in memory twice:
READ_BYTES = 1 << 20


Mapped = np.memmap[Any, Any]


def read_rows(mapped: Mapped, rows: Ints) -> Floats:
    """Read these rows of a mapped .npy file, (len(rows), *shape of a row).

    The rows are read and not taken from the map. A row may have hundreds of kilobytes, which page faults read several
    times slower, and mapped pages would count as memory of this process. Consecutive rows are read together.

    Raises:
        InputError: The file cannot be read.
    """
    values: Floats = np.empty((len(rows), *mapped.shape[1:]), mapped.dtype)
    file, size = Path(str(mapped.filename)), values[:1].nbytes
    starts = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist()]
    try:
        with file.open("rb", buffering=0) as stream:
            for start, end in pairwise([*starts, len(rows)]):
                stream.seek(mapped.offset + int(rows[start]) * size)
                count = stream.readinto(values[start:end].data)
                if count != (end - start) * size:
                    row = rows[start] + count // size
                    raise InputError(f"{file}: ends before row {row} does; copy or make it again")
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from error
    return values


class SourceFeatures(LazyRows):
    """The rows of several concatenated files; only requested rows are read.

    Args:
        parts: The mapped files, with equal shapes of their rows: (regions, dim) or (dim,).
        rows: Row of each item in the concatenated parts, (n,).
        kind: `regions` for all regions of an item (a single vector is one region), `vector` for their mean, computed
            when the item is gathered.

    Attributes:
        shape: (n, regions, dim) or (n, dim).
        dtype: float32, whatever the type in the files.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, parts: Sequence[Mapped], rows: Ints, kind: Literal["vector", "regions"]) -> None:
        self._parts, self._rows, self._pooled = tuple(parts), rows, kind == "vector"
        self._starts = np.cumsum([0, *map(len, parts)])
        dim, regions = parts[0].shape[-1], parts[0].shape[1] if parts[0].ndim > 2 else 1
        self.shape = (len(rows), dim) if self._pooled else (len(rows), regions, dim)

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
        return f"{self._parts[part].filename}: row {row[0] - self._starts[part]}"

    def unusable(self, items: Ints) -> dict[int, str]:
        """Return why items have no direction as float32, by item in ascending order; a few rows at a time are read.

        They have values that are not finite, or a squared length of 0 or beyond float32.

        Raises:
            InputError: A file cannot be read.
        """
        found: dict[int, str] = {}
        for places, values in self._parts_of(items):
            found |= _without_direction(items[places], values)
        return dict(sorted(found.items()))

    def checked(self, items: Ints) -> tuple[NDArray[np.float32], dict[int, str]]:
        """Return the values of items, whatever they are, and those of `unusable`.

        Raises:
            InputError: A file cannot be read.
        """
        gathered = np.empty((len(items), *self.shape[1:]), np.float32)
        for places, values in self._parts_of(items):
            gathered[places] = values
        return gathered, _without_direction(items, gathered)

    def _owners(self, index: Ints) -> tuple[Ints, Ints]:
        """Return the part and the row of items."""
        rows = self._rows[index]
        return np.searchsorted(self._starts, rows, side="right") - 1, rows

    def _parts_of(self, index: Ints) -> Iterator[tuple[Ints, NDArray[np.float32]]]:
        """Yield places in the index with the values of the items there, from the front of the files to their back."""
        owner, rows = self._owners(index)
        order = np.argsort(rows, kind="stable")
        step = max(READ_ROWS, READ_BYTES // (4 * self._parts[0][0].size))
        for number in np.unique(owner).tolist():
            part_places = order[owner[order] == number]
            for places in (part_places[start : start + step] for start in range(0, len(part_places), step)):
                values = read_rows(self._parts[number], rows[places] - self._starts[number])
                values = values.reshape(len(places), -1, self.shape[-1])
                with np.errstate(over="ignore", invalid="ignore"):  # such values are reported
                    values = values.mean(1, dtype=np.float32) if self._pooled else values.astype(np.float32)
                yield places, values


def _without_direction(items: Ints, values: NDArray[np.float32]) -> dict[int, str]:
    """Return why items with these values have no direction as float32, by item."""
    rows = values.reshape(len(items), -1)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        length = np.einsum("nd,nd->n", rows, rows)
    if np.isfinite(length).all() and length.all():
        return {}
    finite = np.isfinite(rows).all(1)
    found: dict[int, str] = {}
    for bad, reason in (
        (~finite, "holds values that are not finite"),
        (finite & ~np.isfinite(length), "holds values that are too large for float32"),
        (length == 0, "holds nothing but zeros"),
    ):
        found |= dict.fromkeys(items[bad].tolist(), reason)
    return found


def open_source_features(features: FeatureFiles, kind: Literal["vector", "regions"]) -> SourceFeatures:
    """Open precomputed features for a matcher.

    Args:
        features: Location of the features.
        kind: `regions` for all regions (single vectors are one region), `vector` for their mean.

    Returns:
        (n, dim) or (n, regions, dim).

    Raises:
        InputError: A file cannot be read, or its rows have changed their shape since the source was read.
    """
    parts = [open_rows(file) for file in features.parts]
    for part in parts:
        if part.shape[1:] != features.shape:
            raise InputError(f"{part.filename}: has changed while it was read; start again")
    return SourceFeatures(parts, features.rows, kind)


class SourceVectors:
    """A text encoder for captions whose vectors came with the source; it can encode no text.

    The vectors are opened by `caption_vectors`.
    """

    name = EMBEDDINGS
    kind: Literal["vector", "tokens", "ids"] = "vector"
    dim = 0  # the source decides

    def key(self) -> str:
        """Return a hexadecimal digest over the name."""
        return digest([self.name])

    def encode(self, captions: list[str]) -> Array:
        """Refuse to encode captions.

        Raises:
            InputError: Always.
        """
        raise InputError(
            "the captions' vectors came with the source, and nothing here can encode another text in the same way: fit "
            "with a text encoder, such as --text-encoder muse, for a run that can search by text"
        )


def caption_vectors(pairs: Pairs, texts: TextEncoder) -> SourceFeatures | None:
    """Open the vectors that the source has for its captions, one row per pair.

    Args:
        pairs: The pairs.
        texts: The text encoder of the run.

    Returns:
        (n_pairs, dim); None where the source has none, or where a text encoder gives vectors in their place.

    Raises:
        InputError: A file cannot be read, or its rows have changed their shape since the source was read.
    """
    captions = None if pairs.features is None else pairs.features.captions
    if captions is None or (texts.kind == "vector" and texts.name != EMBEDDINGS):
        return None
    return open_source_features(captions, "vector")


def broken_vectors(pairs: Pairs, images: SourceFeatures, captions: SourceFeatures | None) -> list[Skip]:
    """Return an entry for each pair whose image or caption has a vector without a direction
    (`SourceFeatures.unusable`).

    Args:
        pairs: The pairs. Those that are skipped are not read.
        images: Vectors of the images, one row per image.
        captions: Vectors of the captions, one row per pair, or None.

    Raises:
        InputError: A file cannot be read.
    """
    ids = np.flatnonzero(pairs.split != SKIPPED).astype(np.int64)
    bad_images = images.unusable(np.unique(pairs.image_of[ids]))
    owners = pairs.image_of[ids].tolist()
    skips = {
        pair: Skip(images.place(image), bad_images[image], pair)
        for pair, image in zip(ids.tolist(), owners, strict=True)
        if image in bad_images
    }
    if captions is not None:
        skips |= {pair: Skip(captions.place(pair), why, pair) for pair, why in captions.unusable(ids).items()}
    return [skips[pair] for pair in sorted(skips)]
