"""Vectors from the character n-grams of the captions, for any language and without pretrained weights."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file
from scipy.sparse import csr_matrix

from pairsift.arrays import Floats
from pairsift.encode.encoder import Array, digest, without_surrogates
from pairsift.errors import InputError
from pairsift.files import replacing

LENGTHS = (1, 4)  # of n-grams, in characters
BUCKETS = 2**15
MAX_FITTED = 50_000  # maximum number of captions for the fit
MAX_DIM = 256
FITTED = 10_000  # `fit_ngrams` fits to 5,000 to 10,000 captions where there are more, evenly spaced
ROWS = 4096  # captions that are encoded at once
EXACT = 1024  # up to so many captions, the decomposition is exact
NEGLIGIBLE = 1e-4  # relative to the largest singular value
SEED = 0

Matrix = NDArray[np.float16]


class NgramEncoder:
    """An encoder with hashed character n-grams, weighted by tf-idf and reduced by a truncated SVD.

    The vectors have length 1. N-grams lie within words, which are separated by spaces. Letters are in lower case and in
    the normal form NFKC. A caption of only spaces, or only of n-grams that no fitted caption has, becomes a vector of
    zeros.

    Args:
        projection: Contribution of an n-gram of each hash bucket to a vector, including its idf, (buckets, dim).
    """

    name = "ngrams"
    kind: Literal["vector", "tokens", "ids"] = "vector"

    def __init__(self, projection: Matrix) -> None:
        self.dim = int(projection.shape[1])
        self._stored, self._projection = projection, projection.astype(np.float32)
        steps = f"ngrams char_wb {LENGTHS[0]}-{LENGTHS[1]} NFKC lower sublinear"
        self._key = digest([steps], {"projection": torch.from_numpy(projection)})

    @classmethod
    def build(cls, captions: Sequence[str]) -> NgramEncoder:
        """Fit an encoder to captions, or to a random sample of 50,000 captions if there are more.

        The same captions give the same encoder.

        Args:
            captions: The captions. The vectors have at most 256 values, and fewer if there are fewer captions.
        """
        from sklearn.feature_extraction.text import TfidfTransformer

        if len(captions) > MAX_FITTED:
            rows = np.sort(np.random.default_rng(SEED).choice(len(captions), MAX_FITTED, replace=False))
            captions = [captions[row] for row in rows]
        sample = without_surrogates(list(captions)) or [""]
        weights = TfidfTransformer()
        table = weights.fit_transform(_damped_counts(sample, BUCKETS))
        strengths, directions = _leading(table, min(MAX_DIM, len(set(sample))))
        significant = strengths > NEGLIGIBLE * strengths[0]
        significant[0] = True
        return cls((directions[significant] * weights.idf_).T.astype(np.float16, order="C"))

    @property
    def projection(self) -> Matrix:
        """The projection that it was made with."""
        return self._stored

    def key(self) -> str:
        """Return a hexadecimal digest over the projection."""
        return self._key

    def encode(self, captions: list[str]) -> Array:
        """Encode captions, -> (n, dim) float32."""
        if not captions:
            return np.zeros((0, self.dim), np.float32)
        from sklearn.preprocessing import normalize

        counts = _damped_counts(without_surrogates(captions), len(self._projection))
        return np.asarray(normalize(counts @ self._projection), np.float32)

    def save(self, path: Path) -> None:
        """Write the fitted encoder atomically: a reader sees either the old file or the new file."""
        with replacing(path) as part:
            save_file({"projection": torch.from_numpy(self._stored)}, part)

    @classmethod
    def load(cls, path: Path) -> NgramEncoder:
        """Read what `save` wrote.

        Raises:
            InputError: The file is missing, or it was not written by `save`.
        """
        try:
            with safe_open(path, "np") as file:
                return cls(np.asarray(file.get_tensor("projection"), np.float16))
        except FileNotFoundError:
            raise InputError(f"{path} is missing, and it encodes the captions and queries: fit again") from None
        except Exception as error:  # the package raises exceptions of its own class
            message = " ".join(str(error).split())
            raise InputError(f"{path}: holds no fitted n-grams ({message}); fit again") from None


def ngram_vectors(captions: Sequence[str], encoder: NgramEncoder | None = None) -> Floats:
    """Return the vectors of captions by an encoder, or by one that is fitted to them, (n, at most 256) float32."""
    encoder = encoder or fit_ngrams(captions)
    vectors = np.empty((len(captions), encoder.dim), np.float32)
    for start in range(0, len(captions), ROWS):
        vectors[start : start + ROWS] = encoder.encode(list(captions[start : start + ROWS]))
    return vectors


def fit_ngrams(captions: Sequence[str]) -> NgramEncoder:
    """Fit an encoder to captions, or to 5,000 to 10,000 of them where there are more, evenly spaced."""
    return NgramEncoder.build(captions[:: max(1, -(-len(captions) // FITTED))])


def _damped_counts(captions: Sequence[str], buckets: int) -> csr_matrix:
    """Return 1 + log(count) of the n-grams of each hash bucket in each caption, 0 where there are none, (n, buckets).

    Since n-grams lie within words, each word is taken apart once.
    """
    from sklearn.feature_extraction.text import HashingVectorizer  # takes a second or two, so only on use

    number = {"": 0}
    words = [[number.setdefault(word, len(number)) for word in _normal_form(text).split()] for text in captions]
    ends = np.cumsum([0, *map(len, words)])
    places = np.fromiter(chain.from_iterable(words), np.int64, ends[-1])
    of_captions = csr_matrix((np.ones(len(places), np.float32), places, ends), (len(captions), len(number)))
    hashed = HashingVectorizer(
        analyzer="char_wb",
        ngram_range=LENGTHS,
        n_features=buckets,
        lowercase=False,
        norm=None,
        alternate_sign=False,
        dtype=np.float32,
    )
    counts = of_captions @ hashed.transform(number)
    counts.sort_indices()
    counts.data = 1 + np.log(counts.data)
    return counts


def _leading(table: csr_matrix, size: int) -> tuple[Floats, Floats]:
    """Return the leading singular values of a sparse matrix, (size,), and their right singular vectors, (size, d)."""
    if table.shape[0] > EXACT:
        from sklearn.utils.extmath import randomized_svd

        _, values, vectors = randomized_svd(table, size, n_iter=4, random_state=SEED)
        return values, vectors
    squares, left = np.linalg.eigh((table @ table.T).toarray())
    least = max(NEGLIGIBLE**4 * float(squares[-1]), float(np.finfo(np.float32).tiny))
    values = np.sqrt(np.maximum(squares[::-1][:size], least))
    return values, (table.T @ left[:, ::-1][:, :size] / values).T


def _normal_form(caption: str) -> str:
    return unicodedata.normalize("NFKC", caption).lower()
