"""Small residual heads on one frozen vector per side: made for CPUs."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from pairsift.encode.features import Items
from pairsift.match.base import Codes, ImageKind, Matcher, TextKind, full, inverse_temperature, unit


class TwoTower(Matcher):
    """One vector per image and per text, a residual MLP head each, cosine similarity, learnable temperature.

    A head normalises its input, projects it to `dim`, and adds `depth` residual blocks (norm, linear, GELU, dropout,
    linear). The last linear of a block starts at zero, so that training starts from the linear projection.

    Args:
        image_dim: Length of an image's feature vector.
        text_dim: Length of a text's feature vector.
        dim: Length of the common vectors.
        hidden: Width inside a block.
        depth: Residual blocks per head.
        dropout: Probability of dropping a hidden unit, [0, 1).
        temperature: Where the softmax temperature starts; it is learned, and never goes below 0.01.
    """

    name: ClassVar[str] = "two_tower"
    image_kind: ClassVar[ImageKind] = "vector"
    text_kind: ClassVar[TextKind] = "vector"
    preset: ClassVar[str] = "two_tower"

    def __init__(
        self,
        image_dim: int,
        text_dim: int,
        dim: int = 1024,
        hidden: int = 512,
        depth: int = 1,
        dropout: float = 0.4,
        temperature: float = 0.07,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.image_head = _Head(image_dim, dim, hidden, depth, dropout)
        self.text_head = _Head(text_dim, dim, hidden, depth, dropout)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))

    def encode_images(self, items: Items) -> Codes:
        """Unit vectors of images, (n, dim)."""
        return Codes(unit(full(self.image_head(items.values))))

    def encode_texts(self, items: Items) -> Codes:
        """Unit vectors of texts, (n, dim)."""
        return Codes(unit(full(self.text_head(items.values))))

    def scale(self) -> Tensor:
        """The learned inverse temperature, at most 100."""
        return inverse_temperature(self.log_scale)


class _Head(nn.Module):
    def __init__(self, width: int, dim: int, hidden: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.project = nn.Sequential(nn.LayerNorm(width), nn.Dropout(dropout / 2), nn.Linear(width, dim))
        self.blocks = nn.ModuleList(_block(dim, hidden, dropout) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = self.project(x)
        for block in self.blocks:
            x = x + block(x)
        return x


def _block(dim: int, hidden: int, dropout: float) -> nn.Sequential:
    last = nn.Linear(hidden, dim)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(dropout), last)
