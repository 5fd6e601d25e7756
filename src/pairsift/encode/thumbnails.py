"""Thumbnails as the features of images, to recognise copies of a picture and pictures of one colour."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pairsift.arrays import Bools, Floats
from pairsift.encode.encoder import digest

SIDE = 8  # pixels
FLAT = 8  # levels of 256; a picture whose pixels differ by no more in any colour channel shows nothing


class Thumbnails:
    """An image encoder without a model.

    Its vector has 193 numbers in [0, 255]: the mean colours of 8 x 8 cells, and the largest difference of two pixels in
    a colour channel.
    """

    name = "thumbnails"
    kind: Literal["vector", "regions"] = "vector"
    dim = 3 * SIDE * SIDE + 1
    regions = 1
    size = 2 * SIDE

    def key(self) -> str:
        """Return a digest of the preprocessing."""
        return digest([self.name, str(SIDE), "range"])

    def prepare(self, image: Image.Image) -> Tensor:
        """Reduce an RGB image to its cells and its range, (193,)."""
        cells = np.array(image.resize((SIDE, SIDE), Image.Resampling.BOX), np.float32).ravel()
        low, high = np.array(image.getextrema(), np.float32).T
        return torch.from_numpy(np.append(cells, (high - low).max()))

    def encode(self, batch: Tensor) -> Tensor:
        """Return the vectors as they are, (n, 193)."""
        return batch


def cells_of(thumbnails: Floats) -> Floats:
    """Return the cells of thumbnails, (n, 192)."""
    return thumbnails[:, :-1]


def of_one_colour(thumbnails: Floats) -> Bools:
    """Return which pictures have one colour, (n,); none where most have, since the colour is what these show."""
    flat: Bools = thumbnails[:, -1] <= FLAT
    return flat & (2 * int(flat.sum()) <= len(flat))
