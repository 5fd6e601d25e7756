"""Small residual heads on one frozen vector per side, suitable for CPUs."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from pairsift.encode.features import Items
from pairsift.errors import InputError
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

    Where the features of images and of texts share a space, a head adds to the unit feature vector what a projection
    and the blocks make of it, and starts with nothing: the similarity starts as the cosine of the features, and the
    common vectors have their length.

    Args:
        image_dim: Length of the feature vector of an image.
        text_dim: Length of the feature vector of a text.
        aligned: Whether these vectors share a space.
        options: `dim` (not where they share a space), `hidden`, `depth`, `dropout`, `temperature`.

    Raises:
        InputError: The vectors share a space and differ in length.
    """

    name: ClassVar[str] = "two_tower"
    options: ClassVar[type[Options]] = TwoTowerOptions
    image_kind: ClassVar[ImageKind] = "vector"
    text_kind: ClassVar[TextKind] = "vector"
    preset: ClassVar[str] = "two_tower"

    def __init__(
        self, image_dim: int, text_dim: int, aligned: bool = False, options: TwoTowerOptions = TwoTowerOptions()
    ) -> None:
        super().__init__()
        if aligned and image_dim != text_dim:
            raise InputError(
                f"the vectors of images have {image_dim} values and those of captions {text_dim}: they share no space; "
                "leave --aligned out"
            )
        self.dim = image_dim if aligned else options.dim
        self.starts_trained = aligned
        self.image_head, self.text_head = (_Head(width, self.dim, aligned, options) for width in (image_dim, text_dim))
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
    def __init__(self, width: int, dim: int, aligned: bool, options: TwoTowerOptions) -> None:
        super().__init__()
        self.aligned = aligned
        dropout, linear = nn.Dropout(options.dropout / 2), nn.Linear(width, dim)
        if aligned:
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.project = nn.Sequential(nn.LayerNorm(width), dropout, linear)
        blocks = (_block(dim, options.hidden, options.dropout) for _ in range(options.depth))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.project(x) + math.sqrt(x.shape[-1]) * unit(x) if self.aligned else self.project(x)
        for block in self.blocks:
            x = x + block(x)
        return x


def _block(dim: int, hidden: int, dropout: float) -> nn.Sequential:
    output = nn.Linear(hidden, dim)
    nn.init.zeros_(output.weight)
    nn.init.zeros_(output.bias)
    return nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(dropout), output)
