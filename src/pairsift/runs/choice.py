"""Which text encoder suits the captions, where the user names none."""

from __future__ import annotations

import numpy as np

from pairsift.encode import NgramEncoder
from pairsift.runs.prepare import Prepared
from pairsift.runs.vectors import beside, rows_of
from pairsift.trust.crossfit import CrossFit, Vectors, make_folds, near_duplicates
from pairsift.trust.linear import linear_evidence, principal
from pairsift.trust.rate import decoy_quantile

JOINED = "wordllama+ngrams"
SAMPLE = 4000  # training pairs that are looked at
GAIN = 0.01  # of the separation, from which on n-grams are taken beside the word vectors
FOLDS = 5


def ngrams_help(prepared: Prepared, seed: int) -> bool:
    """Return whether character n-grams beside the captions' vectors tell given pairs better from random ones.

    Both are judged by ridge canonical correlation on held-out folds of at most 4,000 training pairs; n-grams help where
    a random pair ranks below a given one more often by at least 1% of all cases.

    Args:
        prepared: The run's pairs, with one vector per image and per caption.
        seed: Seed of the sample and of the folds.
    """
    ids = prepared.pairs.ids("train")
    ids = np.sort(np.random.default_rng((seed, 12)).permutation(ids)[:SAMPLE])
    texts = [prepared.pairs.captions[pair] for pair in ids]
    rows = np.unique(prepared.pairs.image_of[ids])
    images = rows_of(prepared.features.images, rows)
    place = np.searchsorted(rows, prepared.pairs.image_of[ids])
    group = near_duplicates(images)[place]
    if len(np.unique(group)) < 2 * FOLDS:
        return False
    fit = CrossFit.make(prepared.pairs.image_of[ids], group, texts, make_folds(group, FOLDS, seed), seed)
    words = rows_of(prepared.features.texts, ids)
    ngrams = np.asarray(NgramEncoder.build(texts).encode(texts), np.float32)
    vectors = principal(images)[place]
    plain, joined = (_separation(fit, vectors, captions, seed) for captions in (words, beside(words, ngrams)))
    return joined - plain >= GAIN


def _separation(fit: CrossFit, images: Vectors, captions: Vectors, seed: int) -> float:
    """Share of cases in which a given pair has more evidence than a decoy."""
    return float(decoy_quantile(linear_evidence(fit, images, captions, seed)).mean())
