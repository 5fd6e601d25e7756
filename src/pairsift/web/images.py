"""The images of a run's pairs, by the id of the pair, in the sizes that a page shows."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from pairsift.encode.decode import BadImage, open_image
from pairsift.errors import InputError
from pairsift.run_folder import KNOWN, SOURCE

Size = Literal["small", "large"]
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
        table = pq.read_table(known, columns=["file", "image_row", "planted_row"], memory_map=True)
        self._base, self._files = base, table["file"]
        self._image_of = table["planted_row"].to_numpy()
        rows, first = np.unique(table["image_row"].to_numpy(), return_index=True)
        self._image_rows, self._first_pairs = rows, first
        self.exist = not (table.schema.metadata or {}).get(b"shape")  # a source of features has no images

    def path(self, pair: int) -> Path | None:
        """Return the file of a pair's image, or None if the run has none for it."""
        if not self.exist or not 0 <= pair < len(self._image_of):
            return None
        row = int(self._image_of[pair])
        place = int(np.searchsorted(self._image_rows, row))
        if row < 0 or place == len(self._image_rows) or self._image_rows[place] != row:
            return None
        return self._base / os.fsdecode(self._files[int(self._first_pairs[place])].as_py())

    def jpeg(self, pair: int, size: Size) -> bytes | None:
        """Return a pair's image as JPEG, at most as large as the size; None if it cannot be shown."""
        path = self.path(pair)
        try:
            return None if path is None else _encode(path, size)
        except BadImage:
            return None

    def version(self, pair: int) -> str:
        """Return a text that changes with a pair's image file. Empty if there is no file."""
        path = self.path(pair)
        try:
            status = None if path is None else path.stat()
        except OSError:
            return ""
        return "" if status is None else f"{status.st_mtime_ns:x}-{status.st_size:x}"


def _encode(path: Path, size: Size) -> bytes:
    """Return an image file as JPEG.

    Raises:
        BadImage: It cannot be read.
    """
    image = open_image(path, smallest=SIDES[size])
    image.thumbnail((SIDES[size], SIDES[size]), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=85)
    return stream.getvalue()
