"""The vectors of a run that evidence is computed from, and whether n-grams help them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pairsift.arrays import Floats, Ints, text_numbers
from pairsift.detect.calibration import decoy_quantile
from pairsift.detect.folds import Folds, make_folds, near_duplicates
from pairsift.detect.linear import StackedKinds, linear_evidence, principal
from pairsift.detect.options import DetectOptions
from pairsift.encode.cache import encode_captions, encode_images
from pairsift.encode.features import Features, Table
from pairsift.encode.lazy_rows import ImagePixels
from pairsift.encode.ngrams import NgramEncoder, ngram_vectors
from pairsift.encode.registry import image_encoder, text_encoder
from pairsift.encode.source_features import caption_vectors
from pairsift.pairs.pairs import Pairs
from pairsift.runs.prepare import Prepared

ROWS = 4096  # captions, images or tokens that are read at once
SAMPLED_PAIRS = 4000  # largest number of training pairs that show whether n-grams help
NGRAM_GAIN = 0.01  # smallest gain in separation for which n-grams are added to the text encoder
FOLDS = 5


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
    words, grams = features.texts, ngram_vectors([pairs.captions[pair] for pair in ids])
    if _given_ids(pairs):
        gram_vectors = np.zeros((len(pairs), grams.shape[1]), np.float32)
        gram_vectors[ids] = grams
        words = Table(gram_vectors)
    return EvidenceVectors(_averaged(features.images, pairs.images()), _averaged(words, ids), grams)


def evidence_features(prepared: Prepared, cache: Path | None, progress: bool) -> Features:
    """Return the features that evidence is computed from, one row per image and per pair.

    These are the run's features where they can be. Captions that a matcher reads as tokens or numbered words have the
    vectors of the source, if it has any; numbered words are else encoded by the default text encoder. Images that the
    matcher decodes itself are encoded by the default image encoder.

    Args:
        prepared: Pairs and their features for the run's matcher.
        cache: Folder of the feature cache.
        progress: Whether to show progress.
    """
    pairs, images, words = prepared.pairs, prepared.features.images, prepared.features.texts
    if (vectors := caption_vectors(pairs, prepared.texts)) is not None:
        words = Table(vectors)
    elif prepared.texts.kind == "ids" and not _given_ids(pairs):
        words = encode_captions(pairs, text_encoder(), cache, progress)
    if isinstance(images.values, ImagePixels):
        images, _ = encode_images(pairs, image_encoder(), cache, bar="images" if progress else None)
    return Features(images, words)


def _given_ids(pairs: Pairs) -> bool:
    """Return whether the source gives captions as token ids."""
    return pairs.features is not None and pairs.features.ids


def _averaged(table: Table, rows: Ints) -> Table:
    """Return a table with one vector per item: the mean of its regions or tokens in these rows, 0 elsewhere."""
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


def ngrams_help(prepared: Prepared, seed: int, options: DetectOptions) -> bool:
    """Return whether character n-grams, added to the captions' vectors, separate pairs better from decoys.

    The vectors with and without n-grams are compared by ridge canonical correlation on held-out folds of at most 4,000
    training pairs. N-grams help if a decoy ranks below a pair more often, in at least 0.01 more of the cases.

    Args:
        prepared: The run's pairs, with one vector per image and per caption.
        seed: Seed of the sample and of the folds.
        options: The options of the detector.
    """
    ids = prepared.pairs.ids("train")
    ids = np.sort(np.random.default_rng((seed, 12)).permutation(ids)[:SAMPLED_PAIRS])
    texts = [prepared.pairs.captions[pair] for pair in ids]
    rows = np.unique(prepared.pairs.image_of[ids])
    images = rows_of(prepared.features.images, rows)
    image_rows = np.searchsorted(rows, prepared.pairs.image_of[ids])
    group = near_duplicates(images, options.folds)[image_rows]
    if len(np.unique(group)) < 2 * FOLDS:
        return False
    folds = make_folds(group, FOLDS, seed)
    divided = Folds.make(prepared.pairs.image_of[ids], group, text_numbers(texts), folds, seed, options.decoys)
    words = rows_of(prepared.features.texts, ids)
    ngrams = np.asarray(NgramEncoder.build(texts).encode(texts), np.float32)
    vectors = principal(images, options.linear)[image_rows]
    plain, joined = (
        decoy_quantile(linear_evidence(divided, vectors, captions, seed, options)).mean()
        for captions in (words, StackedKinds(words, ngrams)[:])
    )
    return bool(joined - plain >= NGRAM_GAIN)
