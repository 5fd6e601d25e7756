"""The images of a run's pairs, by the id of the pair, in the sizes that a page shows."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from pairsift.encode.decode import BadImage, decode_image, open_image
from pairsift.errors import InputError
from pairsift.remote import is_remote, read_range
from pairsift.run_folder import KNOWN, SOURCE

Size = Literal["small", "large"]
WITHIN = ("image_file_offset", "image_file_size")  # where an image lies in a tar file
SIDES: dict[Size, int] = {"small": 320, "large": 1280}  # longest side in pixels


class Images:
    """The image files of a run.

    Only files that the run was made of, or was judged with, are opened; a request names a pair and never a path.

    Args:
        folder: The run's folder.
        base: The folder that the relative paths of the source start from.

    Raises:
        InputError: The folder lacks the record of the run's pairs.
    """

    def __init__(self, folder: Path, base: Path) -> None:
        path = folder / SOURCE
        if not path.exists():
            raise InputError(f"{path} is missing: take it from a copy of the run, or fit again")
        known = folder / KNOWN if (folder / KNOWN).exists() else path
        names = ["file", "image_row", "planted_row"]
        places = [name for name in ("image_file", *WITHIN) if name in pq.read_schema(known).names]
        table = pq.read_table(known, columns=[*names, *places], memory_map=True)
        facts = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        root = facts.get("images")  # of the images that the vectors of a run are those of
        self._base, self._files = (Path(root), table["image_file"]) if root else (base, table["file"])
        self._within = [table[name] for name in WITHIN] if root else []
        self._image_of = table["planted_row"].to_numpy()
        rows, first = np.unique(table["image_row"].to_numpy(), return_index=True)
        self._image_rows, self._first_pairs = rows, first
        self.exist = bool(root) or not facts.get("shape")  # a source of features has no images

    def _row(self, pair: int) -> int:
        """Return the row of the first pair with a pair's image; -1 where the run has no image for it."""
        if not self.exist or not 0 <= pair < len(self._image_of):
            return -1
        row = int(self._image_of[pair])
        place = int(np.searchsorted(self._image_rows, row))
        if row < 0 or place == len(self._image_rows) or self._image_rows[place] != row:
            return -1
        return int(self._first_pairs[place])

    def path(self, pair: int) -> Path | str | None:
        """Return the file of a pair's image, or its URL, or None if the run has none for it."""
        row = self._row(pair)
        name = os.fsdecode((None if row < 0 else self._files[row].as_py()) or "")
        if not name:
            return None
        return name if self._within and is_remote(name) else self._base / name

    def jpeg(self, pair: int, size: Size) -> bytes | None:
        """Return a pair's image as JPEG, at most as large as the size; None if it cannot be shown."""
        path = self.path(pair)
        if path is None:
            return None
        start, length = (column[self._row(pair)].as_py() for column in self._within) if self._within else (None, None)
        try:
            if isinstance(path, str):
                return _encode(decode_image(read_range(path, start or 0, length or 0), SIDES[size]), size)
            if start is None:
                return _encode(open_image(path, smallest=SIDES[size]), size)
            with path.open("rb") as stream:
                stream.seek(start)
                return _encode(decode_image(stream.read(length), SIDES[size]), size)
        except (BadImage, InputError, OSError):
            return None

    def version(self, pair: int) -> str:
        """Return a text that changes with a pair's image file. Empty if there is no file here."""
        path = self.path(pair)
        try:
            status = path.stat() if isinstance(path, Path) else None
        except OSError:
            return ""
        return "" if status is None else f"{status.st_mtime_ns:x}-{status.st_size:x}"


def _encode(image: Image.Image, size: Size) -> bytes:
    """Return an image as JPEG."""
    image.thumbnail((SIDES[size], SIDES[size]), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=85)
    return stream.getvalue()
