"""Small residual heads on one frozen vector per side, suitable for CPUs."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from pairsift.encode.features import Items
from pairsift.match.base import Codes, ImageKind, Matcher, TextKind, full, inverse_temperature, unit
from pairsift.options import Options


class TwoTowerOptions(Options):
    """The options of `TwoTower`."""

    dim: int = Field(default=1024, ge=1, description="Length of the common vectors.")
    hidden: int = Field(default=512, ge=1, description="Width inside a residual block.")
    depth: int = Field(default=1, ge=0, description="Residual blocks per head.")
    dropout: float = Field(default=0.4, ge=0, lt=1, description="Probability of dropping a hidden unit.")
    temperature: float = Field(
        default=0.07,
        gt=0,
        description="Where the softmax temperature starts; it is learned, and never goes below 0.01.",
    )


class TwoTower(Matcher):
    """A matcher with a residual MLP head per side on frozen vectors, cosine similarity and a learned temperature.

    A head normalises its input, projects it to `dim`, and applies `depth` residual blocks (norm, linear, GELU, dropout,
    linear). The last linear layer of a block starts at zero, so training starts from the linear projection.

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
        self.image_head = _Head(image_dim, options)
        self.text_head = _Head(text_dim, options)
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


class _Head(nn.Module):
    def __init__(self, width: int, options: TwoTowerOptions) -> None:
        super().__init__()
        dropout = nn.Dropout(options.dropout / 2)
        self.project = nn.Sequential(nn.LayerNorm(width), dropout, nn.Linear(width, options.dim))
        blocks = (_block(options.dim, options.hidden, options.dropout) for _ in range(options.depth))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.project(x)
        for block in self.blocks:
            x = x + block(x)
        return x


def _block(dim: int, hidden: int, dropout: float) -> nn.Sequential:
    output = nn.Linear(hidden, dim)
    nn.init.zeros_(output.weight)
    nn.init.zeros_(output.bias)
    return nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(dropout), output)
