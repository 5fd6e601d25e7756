"""Short names for the types of numpy arrays, and the scaling of rows to unit length."""

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
