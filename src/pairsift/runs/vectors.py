"""One vector per image and per caption for held-out evidence, for every kind of matcher."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pairsift.arrays import Floats, Ints, unit_rows
from pairsift.encode import (
    Features,
    NgramEncoder,
    Table,
    caption_vectors,
    encode_captions,
    encode_pairs,
    image_encoder,
    text_encoder,
)
from pairsift.encode.pixels import Pixels
from pairsift.pairs.pairs import Pairs
from pairsift.runs.prepare import IMAGE_ENCODER, Prepared

ROWS = 4096
FITTED = 10_000  # from twice this number of captions on, n-grams are fitted to a part of them, evenly spaced


@dataclass(frozen=True)
class EvidenceVectors:
    """The vectors that held-out evidence is computed from.

    Attributes:
        images: One row per image of the pairs, (n_images, d).
        captions: One row per pair, (n_pairs, e).
        ngrams: Vectors of the captions' character n-grams, one row per judged pair, (n, g).
    """

    images: Table
    captions: Table
    ngrams: Floats


def evidence_vectors(
    prepared: Prepared, ids: Ints, cache: Path | None, progress: bool, features: Features | None = None
) -> EvidenceVectors:
    """Return vectors of a run's images and captions.

    Regions and tokens are averaged. Captions that the source gives as token ids have the vectors of their n-grams.

    Args:
        prepared: The run's pairs and features.
        ids: The judged pairs, (n,).
        cache: Folder of the feature cache.
        progress: Whether to show progress.
        features: The result of `evidence_features`, if it is known.
    """
    pairs, features = prepared.pairs, features or evidence_features(prepared, cache, progress)
    words, grams = features.texts, _ngrams(pairs, ids)
    if _given_ids(pairs):
        gram_vectors = np.zeros((len(pairs), grams.shape[1]), np.float32)
        gram_vectors[ids] = grams
        words = Table(gram_vectors)
    return EvidenceVectors(_averaged(features.images, pairs.images()), _averaged(words, ids), grams)


def evidence_features(prepared: Prepared, cache: Path | None, progress: bool) -> Features:
    """Return the features that evidence is computed from, one row per image and per pair.

    These are the run's features where they can be. Captions that a matcher reads as tokens or numbered words have the
    vectors of the source, if it has any; numbered words are else encoded by `wordllama`. Images that the matcher
    decodes itself are encoded by the default image encoder.

    Args:
        prepared: Pairs and their features for the run's matcher.
        cache: Folder of the feature cache.
        progress: Whether to show progress.
    """
    pairs, images, words = prepared.pairs, prepared.features.images, prepared.features.texts
    if (vectors := caption_vectors(pairs, prepared.texts)) is not None:
        words = Table(vectors)
    elif prepared.texts.kind == "ids" and not _given_ids(pairs):
        words = encode_captions(pairs, text_encoder("wordllama"), cache, progress)
    if isinstance(images.values, Pixels):
        encoded, _ = encode_pairs(
            pairs, image_encoder(IMAGE_ENCODER), text_encoder("wordllama"), cache, progress=progress
        )
        images = encoded.images
    return Features(images, words)


def _given_ids(pairs: Pairs) -> bool:
    """Return whether the source gives captions as token ids."""
    return pairs.features is not None and pairs.features.ids


def _ngrams(pairs: Pairs, ids: Ints) -> Floats:
    captions = [pairs.captions[pair] for pair in ids]
    encoder = NgramEncoder.build(captions[:: max(1, len(captions) // FITTED)])
    parts = [np.asarray(encoder.encode(captions[start : start + ROWS])) for start in range(0, len(captions), ROWS)]
    return np.asarray(np.concatenate(parts), np.float32)


def _averaged(table: Table, rows: Ints) -> Table:
    """Return a table with one vector per item: the mean of its regions or tokens for these rows, 0 for the others."""
    if table.offsets is None and table.values.ndim == 2:
        return table
    means = np.zeros((len(table), table.dim), np.float32)
    for start in range(0, len(rows), ROWS):
        chunk = rows[start : start + ROWS]
        items = table.batch(chunk)
        if items.mask is None:
            means[chunk] = items.values.float().mean(1).numpy()
        else:
            means[chunk] = (items.values.float().sum(1) / items.mask.sum(1, keepdim=True).clamp(min=1)).numpy()
    return Table(means)


def rows_of(table: Table, rows: Ints) -> Floats:
    """Gather rows of a table of vectors, (len(rows), d)."""
    return np.asarray(table.batch(rows).values.float().numpy(), np.float32)


def join_vectors(left: Floats, right: Floats) -> Floats:
    """Concatenate vectors of both kinds after they are centred and scaled to unit length, (n, d + e)."""
    return np.concatenate([unit_rows(left - left.mean(0)), unit_rows(right - right.mean(0))], 1)
