"""Short names for the types of numpy arrays, rows of unit length, and numbers for equal texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Reals = NDArray[np.float64]


def unit_rows(vectors: Floats) -> Floats:
    """Return the rows of an array scaled to unit length, (n, d), float32; a row of zeros stays zero."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float32)


def text_numbers(texts: Sequence[str]) -> Ints:
    """Return a number for each text, the same for texts that differ only in case and spaces, (n,)."""
    numbers: dict[str, int] = {}
    spelled = (" ".join(text.casefold().split()) for text in texts)
    return np.array([numbers.setdefault(text, len(numbers)) for text in spelled], np.int64)
