"""Small residual heads on one frozen vector per side, suitable for CPUs."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from pairsift.encode.features import Items
from pairsift.match.base import Codes, ImageKind, Matcher, TextKind, full, inverse_temperature, unit
from pairsift.match.heads import HeadSizes, ResidualHead
from pairsift.options import Options


class TwoTowerOptions(HeadSizes):
    """The options of `TwoTower`."""

    temperature: float = Field(
        default=0.07,
        gt=0,
        description="Where the softmax temperature starts; it is learned, and never goes below 0.01.",
    )


class TwoTower(Matcher):
    """A matcher with a residual MLP head per side on frozen vectors, cosine similarity and a learned temperature.

    The heads are those of `pairsift.match.heads.ResidualHead`.

    Args:
        image_dim: Length of the feature vector of an image.
        text_dim: Length of the feature vector of a text.
        options: `dim`, `hidden`, `depth`, `dropout`, `temperature`.
    """

    name: ClassVar[str] = "two_tower"
    options: ClassVar[type[Options]] = TwoTowerOptions
    image_kind: ClassVar[ImageKind] = "vector"
    text_kind: ClassVar[TextKind] = "vector"
    preset: ClassVar[str] = "two_tower"

    def __init__(self, image_dim: int, text_dim: int, options: TwoTowerOptions = TwoTowerOptions()) -> None:
        super().__init__()
        self.dim = options.dim
        self.image_head = ResidualHead(image_dim, options)
        self.text_head = ResidualHead(text_dim, options)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(options.temperature)))

    def encode_images(self, items: Items) -> Codes:
        """Return unit vectors of images, (n, dim)."""
        return Codes(unit(full(self.image_head(items.values))))

    def encode_texts(self, items: Items) -> Codes:
        """Return unit vectors of texts, (n, dim)."""
        return Codes(unit(full(self.text_head(items.values))))

    def scale(self) -> Tensor:
        """Return the learned inverse temperature, at most 100."""
        return inverse_temperature(self.log_scale)
