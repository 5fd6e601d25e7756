"""A judge of pairs of vectors with their captions, which can be written into a file."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pairsift.arrays import Array, spelling
from pairsift.detect import DetectOptions
from pairsift.detect.folds import fingerprints
from pairsift.detect.judged_pairs import PairVectors
from pairsift.detect.pair_judge import PairEvidence, PairJudge
from pairsift.encode.ngrams import NgramEncoder, fit_ngrams, ngram_vectors
from pairsift.vector_pairs import VectorPairs, whole

SHIPPED = DetectOptions()


@dataclass(frozen=True)
class VectorJudge:
    """A judge that has learned from pairs of vectors.

    Attributes:
        judge: What it learned.
        keys: What is equal for pairs with equal captions, of the pairs that it learned from, in order.
        projection: Projection of the captions' n-grams (`NgramEncoder`); None where the captions are not known.
    """

    judge: PairJudge
    keys: list[Hashable]
    projection: Array | None

    @staticmethod
    def fit(known: VectorPairs, seed: int, options: DetectOptions = SHIPPED) -> VectorJudge:
        """Learn from all of these pairs.

        Args:
            known: The pairs.
            seed: Seed of folds, decoys and resampling.
            options: The options of the detector.
        """
        keys = list(dict.fromkeys(_text_keys(known)))
        ngrams = None if known.texts is None else fit_ngrams(known.texts_at(np.arange(len(known))))
        judge = PairJudge.fit(_pair_vectors(known, keys, ngrams), seed, options)
        return VectorJudge(judge, keys, None if ngrams is None else ngrams.projection)

    def evidence_of(self, new: VectorPairs) -> PairEvidence:
        """Return the evidence of pairs that it did not learn from, which have all captions of their images."""
        return self.judge.evidence(_pair_vectors(new, self.keys, self._ngrams, self._number))

    @cached_property
    def _ngrams(self) -> NgramEncoder | None:
        return None if self.projection is None else NgramEncoder(self.projection)

    @cached_property
    def _number(self) -> dict[Hashable, int]:
        return {key: number for number, key in enumerate(self.keys)}


def _pair_vectors(
    pairs: VectorPairs, known: list[Hashable], ngrams: NgramEncoder | None, number: dict[Hashable, int] | None = None
) -> PairVectors:
    """Return pairs as the detector takes them; captions that are not known have numbers of their own."""
    number = {key: place for place, key in enumerate(known)} if number is None else number
    texts = [number.get(key, len(known) + row) for row, key in enumerate(_text_keys(pairs))]
    return PairVectors(
        pairs.image_vectors(),
        np.asarray(whole(pairs.captions), np.float32),
        pairs.image_of,
        np.array(texts, np.int64),
        pairs.train,
        None if ngrams is None else ngram_vectors(pairs.texts_at(np.arange(len(pairs))), ngrams),
        pairs.aligned,
        pairs.verified,
    )


def _text_keys(pairs: VectorPairs) -> list[Hashable]:
    """Return what is equal for pairs with equal captions, (n,)."""
    if pairs.texts is None:
        return list(fingerprints(whole(pairs.captions)).tolist())
    return [spelling(text) for text in pairs.texts_at(np.arange(len(pairs)))]
