"""The features of images that an earlier call encoded, even if their files have moved."""

from __future__ import annotations

import hashlib
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from pairsift.encode.store import Entry
from pairsift.files import replacing

MARK = 16  # bytes of the hash that identifies the content of a file


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


def write_marks(entry: Entry, marks: NDArray[np.uint8]) -> None:
    """Write the marks of an entry's rows beside the entry, (n, 16); the entry's lock is held."""
    with replacing(entry.values.with_suffix(".marks"), locked=True) as part, part.open("wb") as file:
        np.save(file, marks)
