"""The vectors that a source has for its captions, in place of a text encoder."""

from __future__ import annotations

from typing import Literal

import numpy as np

from pairsift.encode.encoder import Array, TextEncoder, digest
from pairsift.encode.stacked import Stacked, open_stacked
from pairsift.errors import InputError
from pairsift.pairs.pairs import SKIPPED, Pairs, Skip

EMBEDDINGS = "embeddings"


class SourceVectors:
    """A text encoder for captions whose vectors came with the source; it can encode no text.

    The vectors are opened by `caption_vectors`.
    """

    name = EMBEDDINGS
    kind: Literal["vector", "tokens", "ids"] = "vector"
    dim = 0  # the source decides

    def key(self) -> str:
        """Return a hexadecimal digest over the name."""
        return digest([self.name])

    def encode(self, captions: list[str]) -> Array:
        """Refuse to encode captions.

        Raises:
            InputError: Always.
        """
        raise InputError(
            "the captions' vectors came with the source, and nothing here can encode another text in the same way: fit "
            "with a text encoder, such as --text-encoder wordllama, for a run that can search by text"
        )


def caption_vectors(pairs: Pairs, texts: TextEncoder) -> Stacked | None:
    """Open the vectors that the source has for its captions, one row per pair.

    Args:
        pairs: The pairs.
        texts: The text encoder of the run.

    Returns:
        (n_pairs, dim); None where the source has none, or where a text encoder gives vectors in their place.

    Raises:
        InputError: A file cannot be read, or its rows have changed their shape since the source was read.
    """
    captions = None if pairs.features is None else pairs.features.captions
    if captions is None or (texts.kind == "vector" and texts.name != EMBEDDINGS):
        return None
    return open_stacked(captions, "vector")


def broken_vectors(pairs: Pairs, images: Stacked, captions: Stacked | None) -> list[Skip]:
    """Return an entry for each pair whose image or caption has a vector without a direction (`Stacked.unusable`).

    Args:
        pairs: The pairs. Those that are skipped are not read.
        images: Vectors of the images, one row per image.
        captions: Vectors of the captions, one row per pair, or None.

    Raises:
        InputError: A file cannot be read.
    """
    ids = np.flatnonzero(pairs.split != SKIPPED).astype(np.int64)
    bad_images = images.unusable(np.unique(pairs.image_of[ids]))
    owners = pairs.image_of[ids].tolist()
    skips = {
        pair: Skip(images.place(image), bad_images[image], pair)
        for pair, image in zip(ids.tolist(), owners, strict=True)
        if image in bad_images
    }
    if captions is not None:
        skips |= {pair: Skip(captions.place(pair), why, pair) for pair, why in captions.unusable(ids).items()}
    return [skips[pair] for pair in sorted(skips)]
