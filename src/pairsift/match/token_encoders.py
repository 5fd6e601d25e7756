"""The encoders of regions and words that several matchers share."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from pairsift.encode.features import Items
from pairsift.match.base import Codes, ImageKind, Matcher, TextKind, unit
from pairsift.match.cross_attention import right_padded
from pairsift.match.gru import gru_states
from pairsift.match.layers import Dropout, Linear
from pairsift.options import Options

GruDirections = Literal["both", "forward"]


class WordSizes(Options):
    """The sizes of the matchers of regions and words."""

    dim: int = Field(default=1024, ge=1, description="Length of the common vectors, and of region and word codes.")
    word_dim: int = Field(default=300, ge=1, description="Length of a word vector.")
    gru_layers: int = Field(default=1, ge=1, description="Layers of the GRU over words.")


class GruSizes(WordSizes):
    """The sizes of the matchers whose GRU over words may read in one direction or in both."""

    gru_directions: GruDirections = Field(
        default="both", description="Whether the GRU reads a caption in both directions, or forward alone."
    )


class Words(nn.Module):
    """A GRU over word vectors; the two directions of a bidirectional GRU are averaged.

    Args:
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        word_dim: Length of a word vector.
        dim: Length of a state.
        dropout: Probability of dropping an entry of a word vector, [0, 1).
        directions: `both` for a bidirectional GRU, or `forward`.
        layers: Layers of the GRU.
    """

    def __init__(
        self,
        vocabulary_size: int,
        word_dim: int,
        dim: int,
        dropout: float = 0.0,
        directions: GruDirections = "both",
        layers: int = 1,
    ) -> None:
        super().__init__()
        self.vectors = nn.Embedding(vocabulary_size, word_dim)
        nn.init.uniform_(self.vectors.weight, -0.1, 0.1)
        self.dropout = Dropout(dropout)
        self.gru = nn.GRU(word_dim, dim, layers, batch_first=True, bidirectional=directions == "both")

    @classmethod
    def make(cls, vocabulary_size: int, options: GruSizes, dropout: float = 0.0) -> Words:
        """Return an encoder of these sizes."""
        sizes = vocabulary_size, options.word_dim, options.dim, dropout
        return cls(*sizes, options.gru_directions, options.gru_layers)

    def forward(self, items: Items) -> tuple[Tensor, Tensor]:
        """Return the states of a batch of captions.

        Args:
            items: Values (n, length) of token ids. The real tokens of a caption come first. A caption without tokens is
                read as the single token 0.

        Returns:
            The states (n, longest, dim), 0 at padding, and their mask (n, longest).
        """
        mask = token_mask(items)
        lengths = mask.sum(1).clamp(min=1)
        longest = int(lengths.max())
        vectors = self.dropout(self.vectors(items.values.masked_fill(~mask, 0)[:, :longest]))
        real = torch.arange(longest, device=mask.device) < lengths[:, None]
        return gru_states(self.gru, vectors, lengths), real


class RegionsAndWords(Matcher):
    """The base class of matchers whose similarity needs the tokens of both sides.

    Tokens are linear codes of regions and states of words. Subclasses set `regions` and `words`, and implement the
    similarity.
    """

    image_kind: ClassVar[ImageKind] = "regions"
    text_kind: ClassVar[TextKind] = "ids"
    factorises: ClassVar[bool] = False
    has_tokens: ClassVar[bool] = True
    regions: Linear
    words: Words

    def encode_images(self, items: Items) -> Codes:
        """Return codes of images: unit region codes as tokens, and their mean, scaled to unit length, as vector.

        Args:
            items: Values (n, regions, image_dim); the mask may be None. An image without regions has a zero token.
        """
        return region_codes(self.regions, items)

    def encode_texts(self, items: Items) -> Codes:
        """Return codes of texts: unit word states as tokens, and their mean, scaled to unit length, as vector.

        Args:
            items: Values (n, length) of token ids. The real tokens of a caption come first. A caption without tokens is
                read as the single token 0.
        """
        return word_codes(self.words, items)

    def intra_similarity(self, codes: Codes) -> Tensor:
        """Return the similarity of every item with every item of the same kind, (n, n).

        Rows are used as images, columns as texts.
        """
        codes = right_padded(codes)
        return self.similarity(codes, codes)


def region_codes(regions: nn.Module, items: Items) -> Codes:
    """Return unit codes of regions as tokens, 0 at padding, and their mean, scaled to unit length, as vector.

    Args:
        regions: Module that maps (n, regions, width) to (n, regions, dim).
        items: Values (n, regions, width); the mask may be None. An image without regions has one token of zeros.
    """
    mask = token_mask(items)
    values = items.values.masked_fill(~mask[..., None], 0.0)
    return _unit_codes(regions(values), mask)


def word_codes(words: Words, items: Items) -> Codes:
    """Return unit states of words as tokens, 0 at padding, and their mean, scaled to unit length, as vector.

    Args:
        words: Encoder of the captions.
        items: Values (n, length) of token ids, as in `Words.forward`.
    """
    return _unit_codes(*words(items))


def _unit_codes(tokens: Tensor, mask: Tensor) -> Codes:
    tokens = unit(tokens).masked_fill(~mask[..., None], 0.0)
    first_slot = torch.arange(mask.shape[1], device=mask.device) == 0
    return Codes(unit(tokens.sum(1)), tokens, mask | (first_slot & ~mask.any(1, keepdim=True)))


def token_mask(items: Items) -> Tensor:
    """Return the mask of the items, (n, length), all True where they have none."""
    if items.mask is not None:
        return items.mask
    return torch.ones(items.values.shape[:2], dtype=torch.bool, device=items.values.device)
