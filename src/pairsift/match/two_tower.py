"""Small residual heads on one frozen vector per side, suitable for CPUs."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch import nn

from pairsift.arrays import Floats, Reals
from pairsift.detect.linear import canonical
from pairsift.detect.options import DetectOptions
from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.match.base import Codes, at_least_float32, unit
from pairsift.match.heads import HeadSizes, ResidualHead, VectorMatcher, normalised
from pairsift.options import Options


class TwoTowerOptions(HeadSizes):
    """The options of `TwoTower`."""

    temperature: float = Field(
        default=0.07,
        gt=0,
        description="Initial softmax temperature; it is learned, and is at least 0.01.",
    )


LINEAR = TwoTowerOptions(dim=DetectOptions().linear.directions, depth=0)  # of a matcher that is a linear model


class TwoTower(VectorMatcher):
    """A matcher with a residual MLP head per side on frozen vectors, cosine similarity and a learned temperature.

    The heads are described at `pairsift.match.heads.ResidualHead`.

    Where the features of images and of texts share a space, the heads start as the identity: the similarity starts as
    the cosine of the features, and the common vectors have their length.

    Args:
        image_dim: Length of the feature vector of an image.
        text_dim: Length of the feature vector of a text.
        options: `dim` (not where the vectors share a space), `hidden`, `depth`, `dropout`, `temperature`.
        aligned: Whether these vectors share a space.

    Raises:
        InputError: The vectors share a space and differ in length.
    """

    name: ClassVar[str] = "two_tower"
    options: ClassVar[type[Options]] = TwoTowerOptions
    method: ClassVar[str] = "sift"
    keeps_recall_in_bf16: ClassVar[bool] = True

    def __init__(
        self, image_dim: int, text_dim: int, options: TwoTowerOptions = TwoTowerOptions(), aligned: bool = False
    ) -> None:
        super().__init__()
        if aligned:
            check_one_space(image_dim, text_dim)
        sizes = options.replaced(dim=image_dim) if aligned else options
        self.dim = sizes.dim
        self.starts_trained = aligned
        self.image_head = ResidualHead(image_dim, sizes, identity=aligned)
        self.text_head = ResidualHead(text_dim, sizes, identity=aligned)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(options.temperature)))

    def encode_images(self, items: Items) -> Codes:
        """Return unit vectors of images, (n, dim)."""
        return Codes(unit(at_least_float32(self.image_head(items.values))))

    def encode_texts(self, items: Items) -> Codes:
        """Return unit vectors of texts, (n, dim)."""
        return Codes(unit(at_least_float32(self.text_head(items.values))))

    def start_linear(self, images: Floats, captions: Floats, trust: Reals, options: DetectOptions) -> None:
        """Start as ridge canonical correlation of pairs, fitted to the vectors as the heads normalise them.

        Args:
            images: Feature vector of each pair's image, (n, image_dim).
            captions: Feature vector of each pair's caption, (n, text_dim).
            trust: Weight of each pair, [0, 1], (n,).
            options: Ridge, directions and the inverse temperature.
        """
        images, captions = (normalised(torch.from_numpy(side)).numpy() for side in (images, captions))
        model = canonical(images, captions, trust, options.linear)
        self.image_head.start_linear(model.image_mean, model.image_map)
        self.text_head.start_linear(model.caption_mean, model.caption_map)
        with torch.no_grad():
            self.log_scale.fill_(math.log(options.contrast.scale))


def check_one_space(image_dim: int, text_dim: int) -> None:
    """Refuse vectors of different lengths, which share no space.

    Raises:
        InputError: The lengths differ.
    """
    if image_dim != text_dim:
        raise InputError(
            f"the vectors of images have {image_dim} values, the vectors of captions {text_dim}: they share no space; "
            "leave --aligned out"
        )
