"""A text encoder that concatenates the vectors of several text encoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from pairsift.encode.encoder import Array, TextEncoder, digest


class JoinedEncoder:
    """An encoder whose vectors are those of several text encoders, each scaled to length 1 and then concatenated.

    Args:
        parts: The encoders, at least one, all of kind `vector`.
    """

    kind: Literal["vector", "tokens", "ids"] = "vector"

    def __init__(self, parts: Sequence[TextEncoder]) -> None:
        self.parts = tuple(parts)
        self.name = "+".join(part.name for part in parts)
        self.dim = sum(part.dim for part in parts)

    def key(self) -> str:
        """Return a hexadecimal digest over the keys of the parts."""
        return digest(["joined", *(part.key() for part in self.parts)])

    def encode(self, captions: list[str]) -> Array:
        """Encode captions, -> (n, dim) float32."""
        if not captions:
            return np.zeros((0, self.dim), np.float32)
        from sklearn.preprocessing import normalize

        return np.concatenate([normalize(np.asarray(part.encode(captions))) for part in self.parts], 1)
