"""Encoders of regions and of words that several matchers share."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pairsift.encode.features import Items
from pairsift.match import blocks
from pairsift.match.base import Codes, ImageKind, Matcher, TextKind, unit


class Linear(nn.Linear):
    """A linear map, Xavier-uniform, with biases that start at 0."""

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)


class Words(nn.Module):
    """Word vectors, then a GRU; where it is bidirectional, the two directions are averaged.

    Args:
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        word_dim: Length of a word vector.
        dim: Length of a state.
        dropout: Probability of dropping an entry of a word vector, [0, 1).
        directions: `both`, or `forward` alone.
    """

    def __init__(
        self,
        vocabulary_size: int,
        word_dim: int,
        dim: int,
        dropout: float = 0.0,
        directions: Literal["both", "forward"] = "both",
    ) -> None:
        super().__init__()
        self.vectors = nn.Embedding(vocabulary_size, word_dim)
        nn.init.uniform_(self.vectors.weight, -0.1, 0.1)
        self.dropout = nn.Dropout(dropout)
        self.gru = nn.GRU(word_dim, dim, batch_first=True, bidirectional=directions == "both")

    def forward(self, items: Items) -> tuple[Tensor, Tensor]:
        """States of a batch of captions.

        Args:
            items: Values (n, length) of token ids; the real ones of a caption come first. One without any is read as
                the single token 0.

        Returns:
            States (n, longest, dim), 0 at padding, and their mask (n, longest).
        """
        mask = mask_of(items)
        lengths = mask.sum(1).clamp(min=1)
        longest = int(lengths.max())
        vectors = self.dropout(self.vectors(items.values.masked_fill(~mask, 0)[:, :longest]))
        packed = pack_padded_sequence(vectors, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=longest)
        if self.gru.bidirectional:
            forward, backward = states.chunk(2, -1)
            states = (forward + backward) / 2
        return states, torch.arange(longest, device=mask.device) < lengths[:, None]


class RegionsAndWords(Matcher):
    """A matcher whose similarity needs the tokens of both sides: linear codes of regions, states of words.

    Subclasses set `regions` and `words`, and compare.
    """

    image_kind: ClassVar[ImageKind] = "regions"
    text_kind: ClassVar[TextKind] = "ids"
    factorises: ClassVar[bool] = False
    has_tokens: ClassVar[bool] = True
    regions: Linear
    words: Words

    def encode_images(self, items: Items) -> Codes:
        """Codes of images: unit region codes as tokens, their unit mean as vector.

        Args:
            items: Values (n, regions, image_dim); the mask may be None. An image without regions has a zero token.
        """
        return region_codes(self.regions, items)

    def encode_texts(self, items: Items) -> Codes:
        """Codes of texts: unit word states as tokens, their unit mean as vector.

        Args:
            items: Values (n, length) of token ids; the real ones of a caption come first. One without any is read as
                the single token 0.
        """
        return word_codes(self.words, items)

    def intra_similarity(self, codes: Codes) -> Tensor:
        """Similarity of every item with every item of its kind, the rows as images, the columns as texts, (n, n)."""
        codes = blocks.front(codes)
        return self.similarity(codes, codes)


class RowNorm(nn.BatchNorm1d):
    """Batch norm of rows (m, d) that falls back on its running statistics where one row alone has no variance."""

    def forward(self, x: Tensor) -> Tensor:
        """(m, d) to (m, d)."""
        if len(x) > 1:
            return super().forward(x)
        return functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


class MeanPool(nn.Module):
    """Mean over an item's tokens, (n, length, d) to (n, d); 0 for an item without tokens."""

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Pool the tokens (n, length, d) where the mask (n, length) is True."""
        total = tokens.masked_fill(~mask[..., None], 0.0).sum(1)
        return total / mask.sum(1, keepdim=True).clamp(min=1)


def region_codes(regions: nn.Module, items: Items) -> Codes:
    """Unit codes of regions as tokens, 0 at padding, and their mean, of unit length, as vector.

    Args:
        regions: Takes (n, regions, width) to (n, regions, dim).
        items: Values (n, regions, width); the mask may be None. An image without regions has one token of zeros.
    """
    mask = mask_of(items)
    values = items.values.masked_fill(~mask[..., None], 0.0)
    return _unit_codes(regions(values), mask)


def word_codes(words: Words, items: Items) -> Codes:
    """Unit states of words as tokens, 0 at padding, and their mean, of unit length, as vector.

    Args:
        words: The encoder.
        items: What it takes.
    """
    return _unit_codes(*words(items))


def _unit_codes(tokens: Tensor, mask: Tensor) -> Codes:
    tokens = unit(tokens).masked_fill(~mask[..., None], 0.0)
    first = torch.arange(mask.shape[1], device=mask.device) == 0
    return Codes(unit(tokens.sum(1)), tokens, mask | (first & ~mask.any(1, keepdim=True)))


def mask_of(items: Items) -> Tensor:
    """The items' mask, (n, length), all True where they have none."""
    if items.mask is not None:
        return items.mask
    return torch.ones(items.values.shape[:2], dtype=torch.bool, device=items.values.device)
