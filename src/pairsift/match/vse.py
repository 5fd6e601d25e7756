"""Regions and words pooled into one vector per side: VSE++ and VSE-infinity."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.match.base import Codes, ImageKind, Matcher, TextKind, unit
from pairsift.match.gpo import GeneralizedPool


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
        self.regions = _Regions(image_dim, dim, learned)
        self.words = _Words(vocabulary_size, word_dim, dim)
        self.image_pool = GeneralizedPool() if learned else _MeanPool()
        self.text_pool = GeneralizedPool() if learned else _MeanPool()

    def encode_images(self, items: Items) -> Codes:
        """Unit vectors of images.

        Args:
            items: Values (n, regions, image_dim); the mask may be None.

        Returns:
            Vectors (n, dim), 0 for an image without regions; the projected regions as tokens, unit length.
        """
        mask = _mask(items)
        tokens = self.regions(items.values, mask)
        return Codes(unit(self.image_pool(tokens, mask)), unit(tokens), mask)

    def encode_texts(self, items: Items) -> Codes:
        """Unit vectors of texts.

        Args:
            items: Values (n, length) of token ids; the real ones of a caption come first. One without any is read as
                the single token 0.

        Returns:
            Vectors (n, dim); the words' states as tokens, unit length.
        """
        tokens, mask = self.words(items.values, _mask(items))
        return Codes(unit(self.text_pool(tokens, mask)), unit(tokens), mask)


class _Regions(nn.Module):
    """Linear projection of each region, for `gpo` with the residual of a two-layer MLP."""

    def __init__(self, width: int, dim: int, residual: bool) -> None:
        super().__init__()
        self.project = nn.Linear(width, dim)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        hidden = max(1, dim // 2)
        layers = nn.Linear(width, hidden), _RowNorm(hidden), nn.ReLU(), nn.Linear(hidden, dim)
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


class _RowNorm(nn.BatchNorm1d):
    """Batch norm of rows (m, d) that falls back on its running statistics where one row alone has no variance."""

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 1:
            return super().forward(x)
        return functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


class _Words(nn.Module):
    """Word vectors, then a bidirectional GRU whose two directions are averaged."""

    def __init__(self, vocabulary_size: int, word_dim: int, dim: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(vocabulary_size, word_dim)
        nn.init.uniform_(self.vectors.weight, -0.1, 0.1)
        self.gru = nn.GRU(word_dim, dim, batch_first=True, bidirectional=True)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(n, length) to tokens (n, longest, dim), 0 at padding, and their mask (n, longest)."""
        lengths = mask.sum(1).clamp(min=1)
        longest = int(lengths.max())
        vectors = self.vectors(ids.masked_fill(~mask, 0)[:, :longest])
        packed = pack_padded_sequence(vectors, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=longest)
        forward, backward = states.chunk(2, -1)
        return (forward + backward) / 2, torch.arange(longest, device=ids.device) < lengths[:, None]


class _MeanPool(nn.Module):
    """Mean over an item's tokens, (n, length, d) to (n, d); 0 for an item without tokens."""

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        total = tokens.masked_fill(~mask[..., None], 0.0).sum(1)
        return total / mask.sum(1, keepdim=True).clamp(min=1)


def _mask(items: Items) -> Tensor:
    """The items' mask, (n, length), all True where they have none."""
    if items.mask is not None:
        return items.mask
    return torch.ones(items.values.shape[:2], dtype=torch.bool, device=items.values.device)
