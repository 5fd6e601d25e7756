"""Images that a source contains as bytes, and the files that they are written to."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from PIL import Image

from pairsift.cache_folder import default_cache
from pairsift.errors import writing
from pairsift.files import replacing

INDEX = "index.json"
NAMES = "by content"  # how images without a name are called, which a stored index must have too
MODIFIED = 946_684_800  # seconds; equal for all files, because cached features depend on the modification time
SIGNATURES = (
    (b"\xff\xd8\xff", ".jpg"),
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"GIF8", ".gif"),
    (b"BM", ".bmp"),
    (b"II*\0", ".tif"),
    (b"MM\0*", ".tif"),
    (b"\xff\x0a", ".jxl"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", ".jxl"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", ".jp2"),
)
BRANDS = {b"avif": ".avif", b"avis": ".avif", b"heic": ".heic", b"heix": ".heic", b"mif1": ".heic"}  # after `ftyp`


@dataclass(frozen=True, slots=True)
class Embedded:
    """An image that a source contains as bytes.

    Attributes:
        name: Name of the image in the source, or one by its content.
        file: File that the image was written to; None if there are no bytes.
    """

    name: str
    file: Path | None


def in_rows(rows: Iterable[Embedded | list[Embedded]]) -> Iterator[Embedded]:
    """Yield the images of rows with an image or a list of images each."""
    for row in rows:
        yield from row if isinstance(row, list) else [row]


def image_suffix(data: bytes) -> str:
    """Return the extension that fits the first bytes of an image, or an empty string for an unknown format."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".webp"
    if data[4:8] == b"ftyp":
        return BRANDS.get(data[8:12], "")
    return next((suffix for start, suffix in SIGNATURES if data.startswith(start)), "")


def holds_image(data: bytes) -> bool:
    """Return whether bytes are an image of a format that Pillow knows, by their beginning."""
    try:
        with Image.open(io.BytesIO(data)):
            return True
    except Exception:  # decoders raise many kinds of errors
        return False


def _state(source: Path, files: Sequence[Path]) -> str:
    """Return a hash of the names of files in a source, their sizes and their modification times."""
    states = ((os.path.relpath(file, source), os.stat(file)) for file in files)
    lines = (f"{name} {state.st_size} {state.st_mtime_ns}\n" for name, state in states)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


class Store:
    """The folder with the images of one source.

    The files are named by a hash of their content. An index lists the image of each row.

    Args:
        source: File that contains the images, or a folder with such files.
        column: Column that contains the images.
        cache: Cache folder, or None for the default folder.
        files: Files of a folder that contain the images; None where the source is a file.
    """

    def __init__(self, source: Path, column: str, cache: Path | None, files: Sequence[Path] | None = None) -> None:
        real_path = os.path.realpath(source)
        self._stamp = f"{NAMES} {column!r} {_state(source, files or [source])}"
        self.folder = (cache or default_cache()) / "images" / hashlib.sha256(real_path.encode()).hexdigest()[:16]

    def images(self) -> list[Embedded | list[Embedded]] | None:
        """Return the image of each row, or its images, as `finish` stored them.

        None if the images must be read again, because the source has changed or a file is missing.
        """
        try:
            stamp, *rows = json.loads((self.folder / INDEX).read_text(encoding="utf-8"))
            present = {
                f"{part.name}/{file}" for part in self.folder.iterdir() if part.is_dir() for file in os.listdir(part)
            }
        except (OSError, ValueError):
            return None
        images = [
            self._image(*row) if row and isinstance(row[0], str) else [self._image(*part) for part in row]
            for row in rows
        ]
        files = (image.file.relative_to(self.folder).as_posix() for image in in_rows(images) if image.file)
        return images if stamp == self._stamp and present.issuperset(files) else None

    def _image(self, name: str, file: str | None) -> Embedded:
        return Embedded(name, self.folder / file if file else None)

    def add(self, data: bytes, name: str) -> Embedded:
        """Write an image, unless its file exists already, and return it.

        Args:
            data: Bytes of the image file.
            name: Name of the image in the source; empty for a name by its content, which stays where rows go. Its
                extension is used if the bytes do not determine one.

        Raises:
            WriteError: The image cannot be written.
        """
        digest = hashlib.sha256(data).hexdigest()[:32]
        suffix = image_suffix(data) or PurePath(name).suffix.lower()[:5] or ".bin"
        file = self.folder / digest[:2] / f"{digest}{suffix}"
        if not file.exists():
            self._write(file, data)
        return Embedded(name or f"image {digest[:16]}", file)

    def finish(self, images: Sequence[Embedded | list[Embedded]]) -> None:
        """Store the image of each row, or its images, so that they need not be read again.

        Raises:
            WriteError: The index cannot be written.
        """
        rows = [[self._row(part) for part in row] if isinstance(row, list) else self._row(row) for row in images]
        self._write(self.folder / INDEX, json.dumps([self._stamp, *rows]).encode())

    def _row(self, image: Embedded) -> list[str | None]:
        return [image.name, None if image.file is None else image.file.relative_to(self.folder).as_posix()]

    def _write(self, file: Path, data: bytes) -> None:
        """Write a file, whole or not at all."""
        with writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(file) as part:
                part.write_bytes(data)
                os.utime(part, (MODIFIED, MODIFIED))
