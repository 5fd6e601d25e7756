"""The images of the report: thumbnails as data URIs, and links to the files."""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path
from urllib.parse import quote_from_bytes

from pairsift.encode.decode import BadImage, open_image

SIDE = 160  # pixels of the longer side, which is shown at 132 pixels
SMALL_SIDE = 112  # pixels of the longer side on the folded pages, which is shown at 96 pixels
QUALITY = 75


def thumbnail(path: Path, side: int = SIDE) -> str | None:
    """Return a small upright JPEG of an image as a data URI, as it is decoded; None if it cannot be read.

    Args:
        path: Path of the image.
        side: Pixels of the longer side; a smaller image keeps its size.
    """
    from PIL import Image

    try:
        image = open_image(path, smallest=2 * side)
    except BadImage:  # the report is still written
        return None
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=QUALITY, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode("ascii")


def address(path: Path, folder: Path) -> str:
    """Return the relative address of a file for a link on a page.

    Args:
        path: Absolute path of the file.
        folder: Absolute path of the folder of the page.
    """
    return quote_from_bytes(os.fsencode(os.path.relpath(path, folder)))
