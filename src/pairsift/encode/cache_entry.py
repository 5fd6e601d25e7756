"""An entry of the feature cache: an array that is written once, and resumed after a kill."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from pairsift.arrays import Ints
from pairsift.encode.features import Table
from pairsift.files import in_turn, replacing

CHECKPOINT_SECONDS = 5.0  # a kill loses at most this much work
_HEADER = 128  # bytes of the header of each .npy file written here


@dataclass(frozen=True)
class Layout:
    """The layout of an array: `rows` items of shape `item`, or, if ragged, of shape (length, *item)."""

    rows: int
    item: tuple[int, ...]
    dtype: str
    ragged: bool


@dataclass
class Progress:
    """The state of an array.

    Attributes:
        layout: Layout of the array.
        left_out: Rows that are left out on purpose.
        done: Number of rows that are written.
        size: Bytes of their values.
        lengths: Length of each written row, if ragged.
        marks: Hash of the file of each written row, for images; None for a row without features.
        failures: Reasons of the rows that failed.
    """

    layout: Layout
    left_out: list[int]
    done: int = 0
    size: int = 0
    lengths: list[int] = field(default_factory=list)
    marks: list[str | None] = field(default_factory=list)
    failures: dict[int, str] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all values, once all rows are written."""
        return (sum(self.lengths) if self.layout.ragged else self.layout.rows, *self.layout.item)


@dataclass(frozen=True)
class Chunk:
    """The features of some consecutive rows.

    Attributes:
        values: (k, *item) values of k rows, or (total, *item) values with the lengths of the rows.
        lengths: The lengths, if ragged.
        marks: Hash of the file of each row, for images.
        failures: Reasons of the rows that failed.
    """

    values: NDArray[np.generic]
    lengths: Ints | None = None
    marks: list[str | None] = field(default_factory=list)
    failures: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values if self.lengths is None else self.lengths)


_PROGRESS = TypeAdapter(Progress)


class Entry:
    """The files of one array: its values as `<stem>.npy`, and `<stem>.json`, which says how many rows are written."""

    def __init__(self, folder: Path, stem: str) -> None:
        self.values = folder / f"{stem}.npy"
        self.journal = folder / f"{stem}.json"
        self.lock_file = folder / f"{stem}.lock"

    def read(self) -> Progress | None:
        """Return the state of the array; None if there is none that can be read."""
        try:
            return _PROGRESS.validate_json(self.journal.read_bytes())
        except (OSError, ValueError):
            return None

    def load(self, layout: Layout, needed: NDArray[np.bool_]) -> tuple[Table, dict[int, str]] | None:
        """Open the array; return None if it is missing, unfinished, damaged or lacks needed rows."""
        progress = self.read()
        if progress is None or progress.layout != layout or needed[progress.left_out].any():
            return None
        values, offsets = self.values_of(progress), None
        if progress.layout.ragged:
            offsets = np.concatenate([[0], np.cumsum(progress.lengths, dtype=np.int64)])
        return None if values is None else (Table(values, offsets), progress.failures)

    def values_of(self, progress: Progress) -> NDArray[np.generic] | None:
        """Open the values; return None if they are missing, unfinished or damaged."""
        layout = progress.layout
        if progress.done < layout.rows:
            return None
        try:
            empty = self.values.stat().st_size <= _HEADER  # and cannot be mapped
            values: NDArray[np.generic] = np.load(self.values, None if empty else "r", allow_pickle=False)
        except Exception:  # for broken headers, numpy raises nearly any exception
            return None
        fits = values.shape == progress.shape and values.dtype == np.dtype(layout.dtype)
        return values if fits else None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock this entry; a second process waits here until the first process is done or dead."""
        with in_turn(self.lock_file, "another process is encoding the same data: waiting for it"):
            yield


class Writer:
    """A writer of an entry's rows, in order, which records its progress on disk every few seconds.

    The journal counts values only after they have reached the disk, so the data of a killed process can be trusted. If
    bytes that the journal counts are missing, the array starts anew.
    """

    def __init__(self, entry: Entry, layout: Layout, needed: NDArray[np.bool_]) -> None:
        self.entry = entry
        left_out = np.flatnonzero(~needed).tolist()
        begun, written = entry.read(), entry.values.stat().st_size if entry.values.exists() else 0
        usable = begun is not None and (begun.layout, begun.left_out) == (layout, left_out) and begun.done < layout.rows
        if begun is None or not usable or written < _HEADER + begun.size:
            entry.values.unlink(missing_ok=True)  # another process may have it open, and keeps it
            begun = Progress(layout, left_out)
        self.progress = begun
        self._values = entry.values.open("r+b" if entry.values.exists() else "w+b")
        self._values.truncate(_HEADER + begun.size)  # drops what was written after the last checkpoint
        self._values.seek(_HEADER + begun.size)
        self._noted = time.monotonic()

    def append(self, chunk: Chunk) -> None:
        """Append rows."""
        progress = self.progress
        data = chunk.values.astype(progress.layout.dtype, copy=False).tobytes()
        self._values.write(data)
        progress.size += len(data)
        progress.lengths += [] if chunk.lengths is None else chunk.lengths.tolist()
        progress.marks += chunk.marks
        progress.failures.update(chunk.failures)
        progress.done += len(chunk)
        if time.monotonic() - self._noted >= CHECKPOINT_SECONDS and progress.done < progress.layout.rows:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write all values so far to disk, and then the journal that counts them."""
        self._values.flush()
        os.fsync(self._values.fileno())
        with replacing(self.entry.journal, durable=True, locked=True) as part:
            part.write_bytes(_PROGRESS.dump_json(self.progress))
        self._noted = time.monotonic()

    def finish(self) -> None:
        """Write the header of the array, and then the journal that makes the entry valid."""
        facts = {"descr": self.progress.layout.dtype, "fortran_order": False, "shape": self.progress.shape}
        self._values.seek(0)
        np.lib.format.write_array_header_1_0(self._values, facts)  # of 128 bytes, with room for larger numbers
        self.checkpoint()

    def close(self) -> None:
        """Close the file; the recorded progress stays for the next attempt."""
        self._values.close()


def known_images(folder: Path, prefix: str) -> dict[str | None, NDArray[np.generic]]:
    """Return the features of the images in the entries of the feature cache, by the hashes of their files.

    If a data set was moved, or if images were added or removed, only its new images are encoded.

    Args:
        folder: Folder of the feature cache.
        prefix: Beginning of the stems of the entries of one encoder.
    """
    known: dict[str | None, NDArray[np.generic]] = {}
    for path in sorted(folder.glob(f"{prefix}*.json")):
        entry = Entry(folder, path.stem)
        progress = entry.read()
        values = None if progress is None else entry.values_of(progress)
        if progress is not None and values is not None:
            known |= zip(progress.marks, np.asarray(values), strict=False)  # without marks, nothing is known
    known.pop(None, None)
    return known


def mark_of(path: Path) -> str | None:
    """Return a hash of the content of a file, or None if the file cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except (OSError, ValueError):
        return None
