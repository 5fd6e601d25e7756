"""A part of the captions of each image, as if the source had fewer."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from pairsift.pairs.pairs import UNUSED, Pairs


def keep_captions(pairs: Pairs, most: int, seed: int) -> Pairs:
    """Give the split `unused` to all but a few captions of each image.

    Which captions stay depends on the seed, the name of the image and the caption, not on the order of the records.

    Args:
        pairs: Pairs without planted noise.
        most: Number of captions to keep for each image, at least 1.
        seed: Seed of the choice.
    """

    def place(pair: int) -> tuple[bytes, int]:
        text = f"{seed}\0{pairs.names[pairs.image_of[pair]]}\0{pairs.captions[pair]}"
        return hashlib.sha256(text.encode()).digest(), pair

    captions: dict[int, list[int]] = {}
    for pair in pairs.ids().tolist():
        captions.setdefault(int(pairs.image_of[pair]), []).append(pair)
    split = pairs.split.astype("<U7")
    for rows in captions.values():
        split[sorted(rows, key=place)[most:]] = UNUSED
    return replace(pairs, split=split)
