"""The decoding of image files to RGB pixels; any file may be broken."""

from __future__ import annotations

import io
import stat
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

LARGE = 89_478_485  # pixels above which an image is reduced; Pillow warns above the same number
LARGEST = 1 << 30  # pixels; only JPEGs may have so many, because they can be decoded at an eighth of their size
LARGEST_DECODED = 1 << 28  # pixels in memory at a time, of up to 4 bytes each
MOST_COMPRESSED = 300.0  # bytes of pixels per byte of the file, for a large image; zlib reaches 1,030
KEPT_SIDE = 2048  # pixels that the sides of a large image keep if no size is requested
BITS = {"1": 1, "L": 8, "P": 8, "LA": 16, "I;16": 16, "I;16B": 16, "RGBA": 32, "CMYK": 32, "I": 32, "F": 32}
SENT_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")  # no reader of these runs another program
DECODING = "2"  # version of the pixels that this module makes, part of the key of cached vectors
FAINT = 0.1  # contrast to white, of 1, below which what is visible of a transparent image is laid over black
GROUND_SIDE = 64  # pixels of the side at which the ground is chosen
JPEGS = ("JPEG", "MPO")  # MPO: several JPEGs in one file, written by phones
TURNED = range(5, 9)  # EXIF orientations that exchange width and height
_large_images = threading.Lock()


class BadImage(Exception):
    """An error for an image that cannot be used.

    Attributes:
        reason: Reason in one line, without a full stop.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def open_image(path: Path, smallest: int | None = None) -> Image.Image:
    """Decode an image file to RGB.

    Of several frames, the first is used. The EXIF orientation is applied, transparent images are laid over white, or
    over black where they would vanish on white, and grey values of more than 8 bits are scaled to 8 bits. Images of
    more than `LARGE` pixels are reduced in size and decoded one by one, which limits the memory.

    Args:
        path: The file.
        smallest: Number of pixels that both sides keep. A JPEG may be decoded at half, a quarter or an eighth of its
            size down to this limit, which is far faster for photographs; None decodes in full. Large images of any
            format are reduced down to this limit, or to `KEPT_SIDE` if it is None.

    Raises:
        BadImage: The file is missing, empty, not an image, broken, truncated, or would take too much memory: see
            `LARGEST`, `LARGEST_DECODED` and `MOST_COMPRESSED` (such a file is refused before it is decoded).
    """
    with _one_reason():
        bytes_on_disk = _check_file(path)
        with path.open("rb") as stream, _opened(stream) as image:
            _check_size(image, bytes_on_disk)
            large = image.width * image.height > LARGE
            with _large_images if large else nullcontext():
                return _to_rgb(
                    _upright(_loaded(image, smallest or (KEPT_SIDE if large else None), large, LARGEST_DECODED))
                )


def image_size(path: Path) -> tuple[int, int]:
    """Read the width and the height of an image file in pixels, as it is shown upright, from its header.

    Raises:
        BadImage: The file is missing, empty or not an image.
    """
    with _one_reason():
        _check_file(path)
        with path.open("rb") as stream, _opened(stream) as image:
            return image.size[::-1] if _is_turned(image) else image.size


def decode_image(content: bytes, smallest: int) -> Image.Image:
    """Decode the content of an image file that somebody sent, like `open_image` but within narrower limits.

    Args:
        content: The bytes of a file in one of the formats `SENT_FORMATS`.
        smallest: Number of pixels that both sides keep, as for `open_image`.

    Raises:
        BadImage: The bytes are no image of these formats, are broken or truncated, or more than `LARGE` pixels would
            have to be decoded (they are refused before that).
    """
    with _one_reason(), _opened(io.BytesIO(content), SENT_FORMATS) as image:
        _check_size(image, len(content))
        return _to_rgb(_upright(_loaded(image, smallest, image.width * image.height > LARGE, LARGE)))


@contextmanager
def _one_reason() -> Iterator[None]:
    """Turn whatever the decoding of an image raises into a `BadImage`."""
    try:
        yield
    except BadImage:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImage("the image has too many pixels") from error
    except UnidentifiedImageError as error:
        raise BadImage("the file is not an image of a known format") from error
    except MemoryError as error:
        raise BadImage("the image does not fit into memory") from error
    except Exception as error:  # for broken files, Pillow's readers raise nearly any exception
        message = " ".join(str(error).split()) or type(error).__name__
        raise BadImage(f"the image is broken or truncated ({message})".rstrip(".")) from error


def _opened(stream: BinaryIO, formats: Sequence[str] = ()) -> Image.Image:
    """Read the header of an image with the first of Pillow's readers that accepts it; with formats, only with theirs.

    `Image.open` does the same, but it refuses large images by a limit that the whole process shares, and it warns below
    this limit.
    """
    Image.preinit()  # loads the common formats, so that they are tried first
    Image.init()
    start = stream.read(16)
    for name in [name for name in formats or Image.ID if name in Image.OPEN]:  # a build may lack WebP
        reader, accepts = Image.OPEN[name]
        if accepts is not None and accepts(start) is not True:  # False, or a message about missing support
            continue
        stream.seek(0)
        try:
            return reader(stream, "")
        except (SyntaxError, IndexError, TypeError, struct.error):  # a reader raises these for another format
            continue
    raise UnidentifiedImageError


def _loaded(image: Image.Image, smallest: int | None, large: bool, most: int) -> Image.Image:
    """Decode the pixels, at most `most`, and immediately reduce a large image."""
    progressive = "progressive" in image.info  # if so, the decoder holds all of it, whatever size is requested
    pixels = image.width * image.height
    if smallest is not None and image.format in JPEGS:
        image.draft(image.mode, (smallest, smallest))
    decoded = pixels if progressive else image.width * image.height
    if decoded > most:
        raise BadImage(f"the image has too many pixels to decode ({decoded:,}, at most {most:,})")
    image.load()
    factor = min(image.size) // smallest if large and smallest else 1
    return _reducible(image).reduce(factor) if factor > 1 else image


def _reducible(image: Image.Image) -> Image.Image:
    """Convert the image to a mode whose pixels can be averaged."""
    if image.mode == "P":
        return image.convert("RGBA" if image.has_transparency_data else "RGB")
    if image.mode == "1" or image.mode.startswith("I;16"):
        return image.convert("L" if image.mode == "1" else "I")
    return image


def _check_file(path: Path) -> int:
    """Return the file's size in bytes.

    Raises:
        BadImage: The file is missing, cannot be reached, is not a regular file, or is empty.
    """
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
    return status.st_size


def _check_size(image: Image.Image, bytes_on_disk: int) -> None:
    """Raise BadImage if the image has no pixels, or if it would take too much memory."""
    width, height = image.size
    if width < 1 or height < 1:
        raise BadImage(f"the image has no pixels ({width}x{height})")
    if width * height > LARGEST:
        raise BadImage(f"the image has too many pixels ({width}x{height}, at most {LARGEST:,} in all)")
    if width * height <= LARGE or image.format in JPEGS:  # each block of a JPEG takes bytes in the file
        return
    share = width * height * BITS.get(image.mode, 24) / 8 / bytes_on_disk
    if share > MOST_COMPRESSED:
        raise BadImage(
            f"the image has too many pixels for its file ({width}x{height} in {bytes_on_disk:,} bytes): "
            "it looks like a decompression bomb"
        )


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # the pixels may be valid although the EXIF data is broken
        return image


def _is_turned(image: Image.Image) -> bool:
    """Return whether the EXIF orientation exchanges the width and the height."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1)) in TURNED
    except Exception:  # as in `_upright`
        return False


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and not image.has_transparency_data:
        return image if type(image) is Image.Image else image.copy()
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _eight_bits(image).convert("RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, _ground(layer)), layer).convert("RGB")
    return image.convert("RGB")


def _ground(layer: Image.Image) -> str:
    """Return the colour under a transparent image: white, or black if what is visible would vanish on white."""
    small = layer.resize((min(layer.width, GROUND_SIDE), min(layer.height, GROUND_SIDE)), Image.Resampling.BOX)
    cells = np.asarray(small, np.float64).reshape(-1, 4) / 255
    contrast, visible = 1 - cells[:, :3].min(1), cells[:, 3]
    return "black" if visible.any() and np.average(contrast, weights=visible) < FAINT else "white"


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale grey values to 8 bits.

    Integers are scaled by 65535, floats by 1 if no value is above 1, else by 255. If an image has a larger value, its
    largest value is used instead.
    """
    values = np.nan_to_num(np.asarray(image).astype(np.float64), posinf=0.0, neginf=0.0)
    top = float(values.max(initial=0.0))
    least = 1.0 if image.mode == "F" and top <= 1.0 else 255.0 if image.mode == "F" else 65535.0
    white = max(top, least)
    return Image.fromarray(np.clip(np.rint(values * (255.0 / white)), 0, 255).astype(np.uint8))
