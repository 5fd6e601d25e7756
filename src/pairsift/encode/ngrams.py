"""Character n-grams as the captions have them: vectors for any language, without pretrained weights."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file

from pairsift.encode.encoder import Array, digest, readable
from pairsift.errors import InputError

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import HashingVectorizer

LENGTHS = (1, 4)  # of n-grams, in characters
BUCKETS = 2**15
SAMPLE = 50_000  # captions that are fitted to, at most
MAX_DIM = 256
NEGLIGIBLE = 1e-4  # of the largest singular value
SEED = 0

Matrix = NDArray[np.float16]


class NgramEncoder:
    """Hashed character n-grams, weighted by tf-idf and reduced by a truncated SVD; vectors of length 1.

    N-grams lie within words, which blanks part. Letters are lower-cased and in the normal form NFKC. A caption of
    nothing but blanks, or of n-grams that no fitted caption has, becomes a vector of zeros.

    Args:
        projection: What an n-gram of each hash bucket adds to a vector, its idf included, (buckets, dim).
        lengths: Shortest and longest n-gram, in characters.
    """

    name = "ngrams"
    kind: Literal["vector", "tokens", "ids"] = "vector"

    def __init__(self, projection: Matrix, lengths: tuple[int, int] = LENGTHS) -> None:
        self.dim = int(projection.shape[1])
        self.lengths = lengths
        self._stored, self._projection = projection, projection.astype(np.float32)
        self._counter = _counter(len(projection), lengths)
        steps = f"ngrams char_wb {lengths[0]}-{lengths[1]} NFKC lower sublinear"
        self._key = digest([steps], {"projection": torch.from_numpy(projection)})

    @classmethod
    def build(cls, captions: Sequence[str]) -> NgramEncoder:
        """Fit to captions, or to a random sample of 50,000 where there are more; the same ones give the same encoder.

        Args:
            captions: The captions. The vectors have at most 256 values, and fewer where there are fewer captions.
        """
        from sklearn.feature_extraction.text import TfidfTransformer
        from sklearn.utils.extmath import randomized_svd

        if len(captions) > SAMPLE:
            rows = np.sort(np.random.default_rng(SEED).choice(len(captions), SAMPLE, replace=False))
            captions = [captions[row] for row in rows]
        sample = readable(list(captions)) or [""]
        weights = TfidfTransformer()
        table = weights.fit_transform(_damped(_counter(BUCKETS, LENGTHS).transform(sample)))
        size = min(MAX_DIM, len(set(sample)))
        _, strengths, directions = randomized_svd(table, size, n_iter=4, random_state=SEED)
        kept = strengths > NEGLIGIBLE * strengths[0]
        kept[0] = True
        return cls((directions[kept] * weights.idf_).T.astype(np.float16, order="C"))

    def key(self) -> str:
        """Hexadecimal digest over the projection and the n-grams' lengths."""
        return self._key

    def encode(self, captions: list[str]) -> Array:
        """Encode captions, -> (n, dim) float32."""
        if not captions:
            return np.zeros((0, self.dim), np.float32)
        from sklearn.preprocessing import normalize

        counts = _damped(self._counter.transform(readable(captions)))
        return np.asarray(normalize(counts @ self._projection), np.float32)

    def save(self, path: Path) -> None:
        """Write what was fitted, so that a reader sees the old file or the new one."""
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        facts = {"format": "pairsift ngrams", "shortest": str(self.lengths[0]), "longest": str(self.lengths[1])}
        save_file({"projection": torch.from_numpy(self._stored)}, part, facts)
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> NgramEncoder:
        """Read what `save` wrote.

        Raises:
            InputError: The file is missing or is no such file.
        """
        try:
            with safe_open(path, "np") as file:
                facts = file.metadata() or {}
                lengths = int(facts["shortest"]), int(facts["longest"])
                return cls(np.asarray(file.get_tensor("projection"), np.float16), lengths)
        except FileNotFoundError:
            raise InputError(f"{path} is missing, and it encodes the captions and queries: fit again") from None
        except Exception as error:  # the package raises plain exceptions of its own
            said = " ".join(str(error).split())
            raise InputError(f"{path}: holds no fitted n-grams ({said}); fit again") from None


def _counter(buckets: int, lengths: tuple[int, int]) -> HashingVectorizer:
    from sklearn.feature_extraction.text import HashingVectorizer  # a second or two: for those who use it

    return HashingVectorizer(
        analyzer="char_wb",
        ngram_range=lengths,
        n_features=buckets,
        preprocessor=_plain,
        norm=None,
        alternate_sign=False,
        dtype=np.float32,
    )


def _damped(counts: Any) -> Any:
    """A sparse matrix of counts with 1 + log(count) in place of every count."""
    counts.data = 1 + np.log(counts.data)
    return counts


def _plain(caption: str) -> str:
    return unicodedata.normalize("NFKC", caption).lower()
