"""Thumbnails of a run's images, and the copies among these."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pairsift.arrays import Bools, Floats, Ints
from pairsift.encode.cache import encode_images
from pairsift.encode.thumbnails import Thumbnails, cells_of
from pairsift.pairs.pairs import SKIPPED, Pairs
from pairsift.suggest.duplicates import LOOKS, same_pictures


def read_thumbnails(pairs: Pairs, rows: Ints, cache: Path | None, bar: str | None = None) -> tuple[Floats, Bools]:
    """Return the thumbnails of images, (n, 193), and whether each was read, (n,).

    An image is not read where its file is broken, or where only planted noise gives it to a pair.

    Args:
        pairs: The pairs.
        rows: Rows of the images, (n,).
        cache: Folder of the feature cache, where the thumbnails are kept.
        bar: Name of the images in a progress bar; None for no bar.
    """
    thumbnails, failures = encode_images(pairs, Thumbnails(), cache, bar=bar)
    encoded = pairs.source_image_of[pairs.split != SKIPPED]
    values = np.asarray(thumbnails.batch(rows).values.numpy(), np.float32)
    return values, np.isin(rows, encoded) & ~np.isin(rows, list(failures))


def find_copies(
    pairs: Pairs, rows: Ints, group: Ints, cache: Path | None, looks: float = LOOKS, bar: str | None = None
) -> Ints:
    """Return the group of copies of each image, (n,), numbered from 0; an image that was not read has no copies.

    Args:
        pairs: The pairs.
        rows: Rows of the images, (n,).
        group: Group of near-duplicates of each image by the encoder's vectors, (n,).
        cache: Folder of the feature cache, where the thumbnails are kept.
        looks: Smallest correlation of the thumbnails of copies.
        bar: Name of the images in a progress bar; None for no bar.
    """
    thumbnails, is_read = read_thumbnails(pairs, rows, cache, bar)
    copies = same_pictures(cells_of(thumbnails), group, looks)
    unread = np.flatnonzero(~is_read)
    copies[unread] = len(rows) + np.arange(len(unread))
    return copies
