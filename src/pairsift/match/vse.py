"""The matchers VSE++ and VSE-infinity, which pool regions and words into one vector per side."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from pairsift.encode.features import Items
from pairsift.match.base import Codes, ImageKind, Matcher, TextKind, full, unit
from pairsift.match.gpo import GeneralizedPool
from pairsift.match.states import GruSizes, Linear, MeanPool, RowNorm, Words, mask_of
from pairsift.options import Options


class VseOptions(GruSizes):
    """The options of `Vse`."""

    pooling: Literal["mean", "gpo"] = Field(
        default="gpo", description="mean, or gpo for the generalized pooling operator of VSE-infinity."
    )


class Vse(Matcher):
    """A matcher with a projection of regions, a bidirectional GRU over words, a pooling per side, and the cosine.

    With `mean` this is VSE++ on region features (Faghri et al., BMVC 2018). With `gpo` it is VSE-infinity (Chen et al.,
    CVPR 2021): the output of a two-layer MLP is added to the projection of each region, and a learned pooling replaces
    the mean. The number of regions and words is arbitrary. Padding has no effect, because the batch norm of the MLP
    uses only real regions. The paper drops regions and words during training; this is not implemented.

    Args:
        image_dim: Length of the feature vector of a region.
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        options: See `VseOptions`.
    """

    name: ClassVar[str] = "vse"
    options: ClassVar[type[Options]] = VseOptions
    image_kind: ClassVar[ImageKind] = "regions"
    text_kind: ClassVar[TextKind] = "ids"
    has_tokens: ClassVar[bool] = True

    def __init__(self, image_dim: int, vocabulary_size: int, options: VseOptions = VseOptions()) -> None:
        super().__init__()
        self.dim = options.dim
        learned = options.pooling == "gpo"
        self.regions = _ResidualRegions(image_dim, options.dim, learned)
        self.words = Words.make(vocabulary_size, options)
        self.image_pool = GeneralizedPool() if learned else MeanPool()
        self.text_pool = GeneralizedPool() if learned else MeanPool()

    def encode_images(self, items: Items) -> Codes:
        """Return unit vectors of images.

        Args:
            items: Values (n, regions, image_dim); the mask may be None.

        Returns:
            Vectors (n, dim), 0 for an image without regions, and the projected regions of unit length as tokens.
        """
        mask = mask_of(items)
        tokens = self.regions(items.values, mask)
        return Codes(unit(full(self.image_pool(tokens, mask))), unit(tokens), mask)

    def encode_texts(self, items: Items) -> Codes:
        """Return unit vectors of texts.

        Args:
            items: Values (n, length) of token ids. The real tokens of a caption come first. A caption without tokens is
                read as the single token 0.

        Returns:
            Vectors (n, dim), and the states of the words, of unit length, as tokens.
        """
        tokens, mask = self.words(items)
        return Codes(unit(full(self.text_pool(tokens, mask))), unit(tokens), mask)


class _ResidualRegions(nn.Module):
    """A linear projection of each region; for `gpo` the output of a two-layer MLP is added."""

    def __init__(self, width: int, dim: int, residual: bool) -> None:
        super().__init__()
        self.project = Linear(width, dim)
        hidden = max(1, dim // 2)
        layers = nn.Linear(width, hidden), RowNorm(hidden), nn.ReLU(), nn.Linear(hidden, dim)
        self.residual = nn.Sequential(*layers) if residual else None

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Project the regions, (n, length, width) to (n, length, dim), 0 at padding."""
        real = values[mask]
        projected: Tensor = self.project(real)
        if self.residual is not None:
            projected = projected + self.residual(real)
        tokens = projected.new_zeros((*mask.shape, projected.shape[-1]))
        tokens[mask] = projected
        return tokens
