"""Images that a source holds within itself, written out once as files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from pairsift.cache_folder import default_cache
from pairsift.errors import InputError

INDEX = "index.txt"
MODIFIED = 946_684_800  # seconds; the same for every file, so that features keep fitting images that are written again
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
    """An image that a source holds within itself.

    Attributes:
        name: As the source names it, or its row.
        file: Where it was written.
    """

    name: str
    file: Path


def image_suffix(data: bytes) -> str:
    """Return the extension that fits an image's first bytes; empty where they are no image's that is known."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".webp"
    return next((suffix for start, suffix in SIGNATURES if data.startswith(start)), "")


class Store:
    """The folder of one source's images: files named by their content, and an index of each row's file.

    Args:
        source: The file that holds the images.
        column: The column that they stand in.
        cache: The cache folder, or None for the default one.
    """

    def __init__(self, source: Path, column: str, cache: Path | None) -> None:
        status, whole = os.stat(source), os.path.realpath(source)
        self._stamp = f"{status.st_size} {status.st_mtime_ns} {column!r}"
        self._source = source
        self.folder = (cache or default_cache()) / "images" / hashlib.sha256(whole.encode()).hexdigest()[:16]

    def files(self) -> list[str] | None:
        """Return the file of each row, empty where a row has none, as `finish` kept them.

        None where the source has changed since or a file is missing.
        """
        try:
            stamp, *names = (self.folder / INDEX).read_text(encoding="utf-8").split("\n")
            there = {
                f"{part.name}/{file}" for part in os.scandir(self.folder) if part.is_dir() for file in os.listdir(part)
            }
        except (OSError, UnicodeDecodeError):
            return None
        return names if stamp == self._stamp and there.issuperset(filter(None, names)) else None

    def add(self, data: bytes, name: str) -> str:
        """Write an image unless it is there, and return its file within the folder.

        Args:
            data: The image file's bytes.
            name: Its name in the source, which gives the extension where the bytes do not.

        Raises:
            InputError: It cannot be written.
        """
        digest = hashlib.sha256(data).hexdigest()[:32]
        file = f"{digest[:2]}/{digest}{image_suffix(data) or PurePath(name).suffix.lower()[:5] or '.bin'}"
        self._write(file, data)
        return file

    def finish(self, files: Sequence[str]) -> None:
        """Keep the file of each row, so that the images need not be read again.

        Raises:
            InputError: The index cannot be written.
        """
        self._write(INDEX, "\n".join([self._stamp, *files]).encode(), replace=True)

    def _write(self, name: str, data: bytes, replace: bool = False) -> None:
        """Write a file so that it appears whole or not at all."""
        target = self.folder / name
        part = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            if not replace and target.exists() and target.stat().st_size == len(data):
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                part.write_bytes(data)
                os.utime(part, (MODIFIED, MODIFIED))
                part.replace(target)
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            said = error.strerror or str(error)
            raise InputError(
                f"{self.folder}: the images within {self._source} cannot be written there ({said}); "
                "free space or name another folder with --cache"
            ) from error
