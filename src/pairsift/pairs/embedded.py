"""Images that a source contains as bytes, and the files that they are written to."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from pairsift.cache_folder import default_cache
from pairsift.errors import InputError
from pairsift.files import replacing

INDEX = "index.txt"
MODIFIED = 946_684_800  # seconds; equal for all files, because cached features depend on the modification time
SIGNATURES = (
    (b"\xff\xd8\xff", ".jpg"),
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"GIF8", ".gif"),
    (b"BM", ".bmp"),
    (b"II*\0", ".tif"),
    (b"MM\0*", ".tif"),
)


@dataclass(frozen=True, slots=True)
class Embedded:
    """An image that a source contains as bytes.

    Attributes:
        name: Name of the image in the source, or its row.
        file: File that the image was written to.
    """

    name: str
    file: Path


def image_suffix(data: bytes) -> str:
    """Return the extension that fits the first bytes of an image, or an empty string for an unknown format."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".webp"
    return next((suffix for start, suffix in SIGNATURES if data.startswith(start)), "")


def _state(file: Path) -> str:
    """Return the size and the modification time of a file."""
    status = os.stat(file)
    return f"{status.st_size} {status.st_mtime_ns}"


def _state_of_folder(folder: Path, files: Sequence[Path]) -> str:
    """Return a hash of the names of files in a folder, their sizes and their modification times."""
    lines = (f"{os.path.relpath(file, folder)} {_state(file)}\n" for file in files)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


class Store:
    """The folder with the images of one source.

    The files are named by a hash of their content. An index lists the file of each row.

    Args:
        source: File that contains the images, or a folder with such files.
        column: Column that contains the images.
        cache: Cache folder, or None for the default folder.
        files: Files of a folder that contain the images; None where the source is a file.
    """

    def __init__(self, source: Path, column: str, cache: Path | None, files: Sequence[Path] | None = None) -> None:
        real_path = os.path.realpath(source)
        self._stamp = f"{_state(source)} {column!r}" if files is None else _state_of_folder(source, files)
        self._source = source
        self.folder = (cache or default_cache()) / "images" / hashlib.sha256(real_path.encode()).hexdigest()[:16]

    def files(self) -> list[str] | None:
        """Return the file of each row as `finish` stored it, or None if the images must be read again.

        The file of a row without an image is an empty string. The images must be read again if the source has changed
        or if a file is missing.
        """
        try:
            stamp, *names = (self.folder / INDEX).read_text(encoding="utf-8").split("\n")
            present_files = {
                f"{part.name}/{file}" for part in os.scandir(self.folder) if part.is_dir() for file in os.listdir(part)
            }
        except (OSError, UnicodeDecodeError):
            return None
        return names if stamp == self._stamp and present_files.issuperset(filter(None, names)) else None

    def add(self, data: bytes, name: str) -> str:
        """Write an image, unless its file exists already, and return its path within the folder.

        Args:
            data: Bytes of the image file.
            name: Name of the image in the source. Its extension is used if the bytes do not determine one.

        Raises:
            InputError: The image cannot be written.
        """
        digest = hashlib.sha256(data).hexdigest()[:32]
        file = f"{digest[:2]}/{digest}{image_suffix(data) or PurePath(name).suffix.lower()[:5] or '.bin'}"
        self._write(file, data)
        return file

    def finish(self, files: Sequence[str]) -> None:
        """Store the file of each row, so that the images need not be read again.

        Raises:
            InputError: The index cannot be written.
        """
        self._write(INDEX, "\n".join([self._stamp, *files]).encode(), replace=True)

    def _write(self, name: str, data: bytes, replace: bool = False) -> None:
        """Write a file atomically: either the complete file appears, or no file.

        Unless `replace` is True, an existing file of the same size is kept.
        """
        target = self.folder / name
        try:
            if not replace and target.exists() and target.stat().st_size == len(data):
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as part:
                part.write_bytes(data)
                os.utime(part, (MODIFIED, MODIFIED))
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(
                f"{self.folder}: the images within {self._source} cannot be written there ({reason}); "
                "free space or name another folder with --cache"
            ) from error
