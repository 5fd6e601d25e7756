"""Thumbnails as the features of images, to recognise copies of a picture."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pairsift.encode.encoder import digest

SIDE = 8  # pixels


class Thumbnails:
    """An image encoder without a model: the mean colours of 8 x 8 cells, in [0, 255], as a vector of 192 numbers."""

    name = "thumbnails"
    kind: Literal["vector", "regions"] = "vector"
    dim = 3 * SIDE * SIDE
    regions = 1
    size = 2 * SIDE

    def key(self) -> str:
        """Return a digest of the preprocessing."""
        return digest([self.name, str(SIDE)])

    def prepare(self, image: Image.Image) -> Tensor:
        """Reduce an image to its cells, (192,)."""
        cells = image.resize((SIDE, SIDE), Image.Resampling.BOX)
        return torch.from_numpy(np.array(cells, np.float32).ravel())

    def encode(self, batch: Tensor) -> Tensor:
        """Return the cells as they are, (n, 192)."""
        return batch
