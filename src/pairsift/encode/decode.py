"""Image files to RGB pixels, where any file may be broken."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError


class BadImage(Exception):
    """An image that cannot be used.

    Attributes:
        reason: One line, without a final stop.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def open_image(path: Path, smallest: int | None = None) -> Image.Image:
    """Decode an image file into RGB.

    The first frame counts where there are several. EXIF orientation is applied, transparency is laid over white, and
    grey values of more than 8 bits are scaled to 8 bits.

    Args:
        path: The file.
        smallest: A JPEG may be decoded at half, a quarter or an eighth of its size as long as both sides keep this many
            pixels, which is far faster for photographs; None decodes in full.

    Raises:
        BadImage: The file is missing, empty, not an image, broken, truncated, or holds more pixels than
            `PIL.Image.MAX_IMAGE_PIXELS` (such a file is refused before it is decoded).
    """
    try:
        _check_file(path)
        with Image.open(path) as image:
            _check_size(image)
            if smallest is not None and image.format == "JPEG":
                image.draft(image.mode, (smallest, smallest))
            image.load()
            return _to_rgb(_upright(image))
    except BadImage:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImage("the image has too many pixels") from error
    except UnidentifiedImageError as error:
        raise BadImage("the file is not an image of a known format") from error
    except MemoryError as error:
        raise BadImage("the image does not fit into memory") from error
    except Exception as error:  # broken files surface as nearly any exception in Pillow's readers
        said = " ".join(str(error).split()) or type(error).__name__
        raise BadImage(f"the image is broken or truncated ({said})".rstrip(".")) from error


def _check_file(path: Path) -> None:
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise BadImage("the file does not exist") from error
    except (OSError, ValueError) as error:
        raise BadImage(f"the file cannot be reached ({getattr(error, 'strerror', None) or error})") from error
    if not stat.S_ISREG(status.st_mode):
        raise BadImage("it is not a file")
    if status.st_size == 0:
        raise BadImage("the file is empty")


def _check_size(image: Image.Image) -> None:
    width, height = image.size
    if width < 1 or height < 1:
        raise BadImage(f"the image has no pixels ({width}x{height})")
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and width * height > limit:
        raise BadImage(f"the image has too many pixels ({width}x{height}, at most {limit} in all)")


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # broken EXIF says nothing about the pixels
        return image


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and not image.has_transparency_data:
        return image if type(image) is Image.Image else image.copy()
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _eight_bits(image).convert("RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey values of 16 bits by their full range, of 32 bits or floats by their own largest value."""
    values = np.nan_to_num(np.asarray(image).astype(np.float64), posinf=0.0, neginf=0.0)
    top = float(values.max(initial=0.0))
    least = 1.0 if image.mode == "F" and top <= 1.0 else 255.0 if image.mode == "F" else 65535.0
    full = max(top, least)
    return Image.fromarray(np.clip(np.rint(values * (255.0 / full)), 0, 255).astype(np.uint8))
