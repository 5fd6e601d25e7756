"""Images as the report shows them: thumbnails as data URIs, and addresses of the files."""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path
from urllib.parse import quote_from_bytes

from pairsift.encode.decode import BadImage, open_image

SIDE = 160  # pixels of the longer side; shown at 132
QUALITY = 75
NEAR = 2  # folders that a relative address may go up, as from runs/mine to a source beside runs


def thumbnail(path: Path) -> str | None:
    """Make a small JPEG of an image, upright, transparency on white, as a data URI; None where it cannot be read."""
    from PIL import Image

    try:
        image = open_image(path, smallest=2 * SIDE)
    except BadImage:  # the report is still written
        return None
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=QUALITY, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode("ascii")


def address(path: Path, folder: Path) -> str:
    """Return a file's address for a link on a page: relative where the file lies near, else with `file://`.

    Args:
        path: The file, absolute.
        folder: The page's folder, absolute.
    """
    relative = os.path.relpath(path, folder)
    if relative.split(os.sep).count(os.pardir) > NEAR:
        return path.as_uri()
    return quote_from_bytes(os.fsencode(relative.replace(os.sep, "/")))
