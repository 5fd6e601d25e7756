"""The choice of a text encoder by the captions, where the user names none."""

from __future__ import annotations

import numpy as np

from pairsift.detect.calibration import decoy_quantile
from pairsift.detect.folds import Folds, make_folds, near_duplicates
from pairsift.detect.linear import linear_evidence, principal
from pairsift.detect.options import DetectOptions
from pairsift.encode import NgramEncoder
from pairsift.runs.prepare import Prepared
from pairsift.runs.vectors import join_vectors, rows_of

ALONE, JOINED = "wordllama", "wordllama+ngrams"  # text encoders of runs that name none
SAMPLE = 4000  # largest number of training pairs in the comparison
GAIN = 0.01  # smallest gain in separation for which n-grams are added to the word vectors
FOLDS = 5


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
    ids = np.sort(np.random.default_rng((seed, 12)).permutation(ids)[:SAMPLE])
    texts = [prepared.pairs.captions[pair] for pair in ids]
    rows = np.unique(prepared.pairs.image_of[ids])
    images = rows_of(prepared.features.images, rows)
    image_rows = np.searchsorted(rows, prepared.pairs.image_of[ids])
    group = near_duplicates(images, options.folds)[image_rows]
    if len(np.unique(group)) < 2 * FOLDS:
        return False
    folds = make_folds(group, FOLDS, seed)
    divided = Folds.make(prepared.pairs.image_of[ids], group, texts, folds, seed, options.decoys)
    words = rows_of(prepared.features.texts, ids)
    ngrams = np.asarray(NgramEncoder.build(texts).encode(texts), np.float32)
    vectors = principal(images, options.linear)[image_rows]
    plain, joined = (
        decoy_quantile(linear_evidence(divided, vectors, captions, seed, options)).mean()
        for captions in (words, join_vectors(words, ngrams))
    )
    return bool(joined - plain >= GAIN)
