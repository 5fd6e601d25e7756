"""An entry of the feature cache: an array that is written once, resumed after a kill and checked when it is opened."""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from pairsift.arrays import Ints
from pairsift.encode.features import Table
from pairsift.files import in_turn, replacing

CHECKPOINT_SECONDS = 5.0  # a kill loses at most this much work
MARK = 16  # bytes of the hash that identifies the content of a file
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
    """The state of an array: rows done, rows left out on purpose, and rows that failed with their reasons."""

    layout: Layout
    left_out: list[int]
    done: int = 0
    values: tuple[int, int] = (0, 0)  # bytes and CRC-32
    lengths: tuple[int, int] = (0, 0)
    failures: dict[int, str] = field(default_factory=dict)


_PROGRESS = TypeAdapter(Progress)


class Entry:
    """The files of one array: `<stem>.npy`, `<stem>.offsets.npy` if ragged, and `<stem>.json`, written last."""

    def __init__(self, folder: Path, stem: str) -> None:
        self.values = folder / f"{stem}.npy"
        self.offsets = folder / f"{stem}.offsets.npy"
        self.meta = folder / f"{stem}.json"
        self.journal = folder / f"{stem}.partial.json"
        self.partial = folder / f"{stem}.partial"
        self.partial_lengths = folder / f"{stem}.partial.lengths"
        self.lock_file = folder / f"{stem}.lock"

    def load(self, layout: Layout, needed: NDArray[np.bool_]) -> tuple[Table, dict[int, str]] | None:
        """Open the array and verify its checksums; return None if it is missing, damaged or lacks needed rows."""
        meta = _read(self.meta)
        if meta is None or meta.layout != layout or needed[meta.left_out].any():
            return None
        table = self._read_checked(meta)
        return None if table is None else (Table(*table), meta.failures)

    def read_values(self) -> NDArray[np.generic] | None:
        """Return the values of a complete array that is not ragged, of any layout; None if there is no such array."""
        meta = _read(self.meta)
        table = None if meta is None or meta.layout.ragged else self._read_checked(meta)
        return None if table is None else table[0]

    def _read_checked(self, meta: Progress) -> tuple[NDArray[np.generic], Ints | None] | None:
        layout = meta.layout
        try:
            values = _map(self.values)
            offsets = _map(self.offsets).astype(np.int64) if layout.ragged else None
        except (OSError, ValueError, EOFError, SyntaxError):
            return None
        rows = layout.rows if offsets is None else int(offsets[-1]) if len(offsets) == layout.rows + 1 else -1
        if values.shape != (rows, *layout.item) or values.dtype != np.dtype(layout.dtype):
            return None
        lengths = b"" if offsets is None else np.diff(offsets).astype("<i8").tobytes()
        if (
            zlib.crc32(values.reshape(-1).view(np.uint8).data) != meta.values[1]
            or zlib.crc32(lengths) != meta.lengths[1]
        ):
            return None
        return values, offsets

    def write_marks(self, marks: NDArray[np.uint8]) -> None:
        """Write the hashes of the files of the rows beside the array, (n, 16); the entry's lock is held."""
        with replacing(self.values.with_suffix(".marks"), locked=True) as part, part.open("wb") as file:
            np.save(file, marks)

    def tidy(self) -> None:
        """Remove the files of a writer that was killed after it had finished its entry."""
        leftovers = [path for path in (self.journal, self.partial_lengths) if path.exists()]
        if not leftovers or self.partial.exists():
            return
        with suppress(OSError), self.lock():  # a read-only cache can be used too
            if not self.partial.exists():
                for path in leftovers:
                    path.unlink(missing_ok=True)

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
        journal = _read(entry.journal)
        usable = (
            journal is not None
            and journal.layout == layout
            and journal.left_out == left_out
            and _intact(entry, journal)
        )
        self.progress = journal if journal is not None and usable else Progress(layout, left_out)
        self._values = _reopen(entry.partial, _HEADER + self.progress.values[0])
        self._lengths = _reopen(entry.partial_lengths, self.progress.lengths[0])
        self._noted = time.monotonic()

    def append(self, values: NDArray[np.generic], lengths: Ints | None = None) -> None:
        """Append items: (k, *item) values, or (total, *item) values with the lengths of the k items."""
        progress = self.progress
        progress.values = _write_values(self._values, values.astype(progress.layout.dtype, copy=False), progress.values)
        if lengths is not None:
            progress.lengths = _write_values(self._lengths, lengths.astype("<i8"), progress.lengths)
        progress.done += len(values) if lengths is None else len(lengths)
        if time.monotonic() - self._noted >= CHECKPOINT_SECONDS:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write all values so far to disk, and then the journal that counts them."""
        for file in (self._values, self._lengths):
            file.flush()
            os.fsync(file.fileno())
        _write(self.entry.journal, _PROGRESS.dump_json(self.progress))
        self._noted = time.monotonic()

    def finish(self) -> None:
        """Turn the partial files into the files of the entry; the entry is valid as soon as its `.json` exists."""
        entry, progress, layout = self.entry, self.progress, self.progress.layout
        self._lengths.flush()
        lengths = np.fromfile(entry.partial_lengths, "<i8")
        rows = int(lengths.sum()) if layout.ragged else layout.rows
        self._values.seek(0)
        self._values.write(_header((rows, *layout.item), np.dtype(layout.dtype)))
        self.checkpoint()
        self.close()
        entry.meta.unlink(missing_ok=True)
        if layout.ragged:
            offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("<i8")
            _write(entry.offsets, _header(offsets.shape, offsets.dtype) + offsets.tobytes())
        os.replace(entry.partial, entry.values)
        _write(entry.meta, _PROGRESS.dump_json(progress))
        for leftover in (entry.journal, entry.partial_lengths):
            leftover.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files; the recorded progress stays for the next attempt."""
        for file in (self._values, self._lengths):
            with suppress(OSError):
                file.close()


class KnownImages:
    """The images in the entries of the feature cache, by the content of their files.

    An entry of images has a file `<stem>.marks` beside `<stem>.npy`. It contains 16 bytes for each row, zeros for a row
    without features. If a data set was moved, or if images were added or removed, only its new images are encoded. An
    entry is opened and checked when one of its images is requested.

    Args:
        folder: Folder of the feature cache.
        prefix: Beginning of the stems of the entries of one encoder.
    """

    def __init__(self, folder: Path, prefix: str) -> None:
        self._places: dict[bytes, tuple[Path, int]] = {}
        self._values: dict[Path, NDArray[np.generic] | None] = {}
        self._lock = Lock()
        for path in sorted(folder.glob(f"{prefix}*.marks")):
            try:
                marks = np.load(path, allow_pickle=False)
            except (OSError, ValueError, EOFError):
                continue
            if marks.dtype == np.uint8 and marks.ndim == 2 and marks.shape[1] == MARK:
                self._places |= {marks[row].tobytes(): (path, row) for row in np.flatnonzero(marks.any(1)).tolist()}

    def find(self, mark: bytes) -> NDArray[np.generic] | None:
        """Return the features of the file with this content, or None if there are none."""
        place = self._places.get(mark)
        if place is None:
            return None
        path, row = place
        with self._lock:
            if path not in self._values:
                self._values[path] = Entry(path.parent, path.stem).read_values()
        values = self._values[path]
        return None if values is None or row >= len(values) else values[row]


def mark_of(path: Path) -> bytes:
    """Return a hash of the content of a file, or zeros if the file cannot be read."""
    try:
        with path.open("rb") as file:
            hasher = hashlib.blake2b(digest_size=MARK)
            while block := file.read(1 << 20):
                hasher.update(block)
    except (OSError, ValueError):
        return bytes(MARK)
    return hasher.digest()


def _read(path: Path) -> Progress | None:
    try:
        return _PROGRESS.validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None


def _map(path: Path) -> NDArray[np.generic]:
    """Open a .npy file memory-mapped (an empty array cannot be mapped and is read)."""
    empty = path.stat().st_size <= _HEADER
    array: NDArray[np.generic] = np.load(path, mmap_mode=None if empty else "r", allow_pickle=False)
    return array


def _intact(entry: Entry, progress: Progress) -> bool:
    """Return whether the bytes that a journal counts exist and match its checksums."""
    parts = ((entry.partial, _HEADER, progress.values), (entry.partial_lengths, 0, progress.lengths))
    return all(_crc(path, skip, size) == crc for path, skip, (size, crc) in parts)


def _crc(path: Path, skip: int, size: int) -> int:
    """Return the CRC-32 of `size` bytes after the first `skip`, or -1 if they cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(skip)
            crc = 0
            while size > 0:
                block = file.read(min(size, 1 << 20))
                if not block:
                    return -1
                crc, size = zlib.crc32(block, crc), size - len(block)
            return crc
    except OSError:
        return -1


def _reopen(path: Path, size: int) -> IO[bytes]:
    """Open a file for writing at `size`, and drop what was written after the last checkpoint."""
    file = path.open("r+b" if path.exists() else "w+b")
    file.truncate(size)
    file.seek(size)
    return file


def _write_values(file: IO[bytes], values: NDArray[np.generic], progress: tuple[int, int]) -> tuple[int, int]:
    data = np.ascontiguousarray(values).tobytes()
    file.write(data)
    return progress[0] + len(data), zlib.crc32(data, progress[1])


def _write(path: Path, data: bytes) -> None:
    """Write a file atomically: either the whole file appears, or no file; the entry's lock is held."""
    with replacing(path, durable=True, locked=True) as part:
        part.write_bytes(data)


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return a .npy header (format 1.0) of a fixed size.

    With a fixed size, the header can be written at the end, when the number of rows is known.
    """
    text = repr({"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    body = text.encode("latin-1").ljust(_HEADER - 11) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body
