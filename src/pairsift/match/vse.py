"""Regions and words pooled into one vector per side: VSE++ and VSE-infinity."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor, nn

from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.match.base import Codes, ImageKind, Matcher, TextKind, full, unit
from pairsift.match.gpo import GeneralizedPool
from pairsift.match.states import Linear, MeanPool, RowNorm, Words, mask_of


class Vse(Matcher):
    """A projection of regions, a bidirectional GRU over words, a pooling each, cosine similarity.

    With `mean` this is VSE++ on region features (Faghri et al., BMVC 2018); with `gpo` it is VSE-infinity (Chen et al.,
    CVPR 2021), where a two-layer MLP adds to each region's projection and a learned pooling takes the place of the
    mean. Any number of regions and of words will do, and padding changes nothing: the MLP's batch norm sees the real
    regions only. The paper's dropping of regions and words while training is left out.

    Args:
        image_dim: Length of a region's feature vector.
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        dim: Length of the common vectors.
        word_dim: Length of a word vector.
        pooling: `mean`, or `gpo` for the generalized pooling operator.

    Raises:
        InputError: No such pooling.
    """

    name: ClassVar[str] = "vse"
    image_kind: ClassVar[ImageKind] = "regions"
    text_kind: ClassVar[TextKind] = "ids"
    has_tokens: ClassVar[bool] = True

    def __init__(
        self,
        image_dim: int,
        vocabulary_size: int,
        dim: int = 1024,
        word_dim: int = 300,
        pooling: Literal["mean", "gpo"] = "gpo",
    ) -> None:
        super().__init__()
        if pooling not in ("mean", "gpo"):
            raise InputError(f"vse.pooling is {pooling!r}; it must be mean or gpo")
        self.dim = dim
        learned = pooling == "gpo"
        self.regions = _ResidualRegions(image_dim, dim, learned)
        self.words = Words(vocabulary_size, word_dim, dim)
        self.image_pool = GeneralizedPool() if learned else MeanPool()
        self.text_pool = GeneralizedPool() if learned else MeanPool()

    def encode_images(self, items: Items) -> Codes:
        """Unit vectors of images.

        Args:
            items: Values (n, regions, image_dim); the mask may be None.

        Returns:
            Vectors (n, dim), 0 for an image without regions; the projected regions as tokens, unit length.
        """
        mask = mask_of(items)
        tokens = self.regions(items.values, mask)
        return Codes(unit(full(self.image_pool(tokens, mask))), unit(tokens), mask)

    def encode_texts(self, items: Items) -> Codes:
        """Unit vectors of texts.

        Args:
            items: Values (n, length) of token ids; the real ones of a caption come first. One without any is read as
                the single token 0.

        Returns:
            Vectors (n, dim); the words' states as tokens, unit length.
        """
        tokens, mask = self.words(items)
        return Codes(unit(full(self.text_pool(tokens, mask))), unit(tokens), mask)


class _ResidualRegions(nn.Module):
    """Linear projection of each region, for `gpo` with the residual of a two-layer MLP."""

    def __init__(self, width: int, dim: int, residual: bool) -> None:
        super().__init__()
        self.project = Linear(width, dim)
        hidden = max(1, dim // 2)
        layers = nn.Linear(width, hidden), RowNorm(hidden), nn.ReLU(), nn.Linear(hidden, dim)
        self.residual = nn.Sequential(*layers) if residual else None

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """(n, length, width) to (n, length, dim), 0 at padding."""
        real = values[mask]
        out: Tensor = self.project(real)
        if self.residual is not None:
            out = out + self.residual(real)
        tokens = out.new_zeros((*mask.shape, out.shape[-1]))
        tokens[mask] = out
        return tokens
