"""Thumbnails as data URIs."""

from __future__ import annotations

import base64
import io
from pathlib import Path

SIDE = 200  # pixels of the longer side; shown at 132
QUALITY = 78


def thumbnail(path: Path) -> str | None:
    """The image as a small JPEG in a data URI, upright, transparency on white; None where it cannot be read."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            opened.draft("RGB", (2 * SIDE, 2 * SIDE))
            image = ImageOps.exif_transpose(opened)
            image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
            if image.has_transparency_data:
                image = image.convert("RGBA")
                white = Image.new("RGBA", image.size, "white")
                image = Image.alpha_composite(white, image)
            out = io.BytesIO()
            image.convert("RGB").save(out, "JPEG", quality=QUALITY, optimize=True)
    except Exception:  # whatever a broken file makes the decoder raise, the report is still written
        return None
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode("ascii")
