"""The features of an image that is not among the pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pairsift.encode.decode import BadImage, decode_image, open_image
from pairsift.encode.encoder import ImageEncoder
from pairsift.encode.features import Table
from pairsift.encode.front import Front
from pairsift.errors import InputError


def encode_image(image: Path | bytes, encoder: ImageEncoder | Front) -> Table:
    """Encode an image as `encode_pairs` encodes the images of pairs, without the cache.

    Args:
        image: A file, or the content of a file that somebody sent: see `decode_image`.
        encoder: Encoder from `image_encoder(...)`, or the preprocessing of a matcher that reads pixels.

    Returns:
        A table of one row.

    Raises:
        InputError: The image cannot be used.
    """
    side = 2 * (max(encoder.size) if isinstance(encoder, Front) else encoder.size)
    try:
        decoded = decode_image(image, side) if isinstance(image, bytes) else open_image(image, side)
    except BadImage as error:
        name = "" if isinstance(image, bytes) else f"{image}: "
        raise InputError(f"{name}{error.reason}") from error
    if isinstance(encoder, Front):
        return Table(encoder.crop(decoded)[None])
    values = encoder.encode(encoder.prepare(decoded)[None]).float().numpy()
    if not np.isfinite(values).all():
        raise InputError(f"{encoder.name} gives values for the image that are not finite: give another image")
    return Table(values)
