"""Images that a text holds as base64, alone or as a `data:` address."""

from __future__ import annotations

import base64
import binascii
import re

from pairsift.pairs.embedded import image_suffix

ADDRESS = re.compile(r"data:image/[\w.+-]+;base64,")
SHORTEST = 64  # characters of an image as base64
BEGINNING = 24  # characters that hold the first bytes of the image
ALPHABET = str.maketrans("-_", "+/", "\r\n")  # the other alphabet of base64, and lines of it


def from_base64(text: str) -> bytes | None:
    """Return the bytes that a text holds as base64, or None for an empty or a wrong text."""
    try:
        return base64.b64decode(_plain(text), validate=True) or None
    except (binascii.Error, ValueError):
        return None


def is_base64_image(text: str) -> bool:
    """Return whether a text begins like an image as base64."""
    if len(text) < SHORTEST:
        return False
    beginning = from_base64(_plain(text[: BEGINNING + SHORTEST])[:BEGINNING])
    return beginning is not None and bool(image_suffix(beginning))


def _plain(text: str) -> str:
    """Return the base64 of a text, with its padding, and without line ends and what stands before it."""
    plain = ADDRESS.sub("", text.strip(), count=1).translate(ALPHABET)
    return plain + "=" * (-len(plain) % 4)
