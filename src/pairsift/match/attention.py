"""The self-attention that computes one global vector from the tokens of an item (Diao et al., AAAI 2021)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from pairsift.errors import InputError
from pairsift.match.base import unit
from pairsift.match.dropout import Dropout
from pairsift.match.states import Linear, MeanPool, RowNorm

RegionNorm = Literal["slot", "feature"]


class TextAttention(nn.Module):
    """A self-attention over words, with weights from each word and the mean of all words.

        t = unit( sum_l a_l t_l ),    a = softmax_l( w . [ tanh(W_l t_l + b_l) * tanh(W_g mean(t) + b_g) ] + b )

    Args:
        dim: Length of a token.
        dropout: Probability of dropping an entry after a tanh, [0, 1).
    """

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.local, self.whole, self.common = Linear(dim, dim), Linear(dim, dim), Linear(dim, 1)
        self.squash = nn.Sequential(nn.Tanh(), Dropout(dropout))
        self.mean = MeanPool()

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the global vectors, of unit length.

        Args:
            tokens: (n, length, dim), 0 at padding.
            mask: True at real tokens, at least one per item, (n, length).

        Returns:
            (n, dim).
        """
        local = self.squash(self.norm_local(self.local(tokens), mask))
        mean = self.squash(self.norm_mean(self.whole(self.mean(tokens, mask))))
        weights = self.common(local * mean[:, None]).squeeze(-1).masked_fill(~mask, -torch.inf).softmax(1)
        return unit((weights[:, None].to(tokens.dtype) @ tokens).squeeze(1))

    def norm_local(self, x: Tensor, mask: Tensor) -> Tensor:
        """Normalise the tokens before their tanh, (n, length, dim); for texts, return them unchanged."""
        return x

    def norm_mean(self, x: Tensor) -> Tensor:
        """Normalise the mean of the tokens before its tanh, (n, dim); for texts, return it unchanged."""
        return x


class ImageAttention(TextAttention):
    """A self-attention over regions, as `TextAttention` but with a batch norm before each tanh.

    The batch norm of the paper uses the position of a region as the channel (`slot`). This needs the same number of
    regions in every image, and it gives the order of the regions a meaning. `feature` normalises each entry over all
    real regions instead.

    Args:
        dim: Length of a token.
        dropout: Probability of dropping an entry after a tanh, [0, 1).
        regions: Number of regions of every image; None where the number differs.
        norm: Batch norm of the regions; None selects `slot` where `regions` is known, else `feature`.

    Raises:
        InputError: `norm` is `slot` without a fixed number of regions, or there is no such norm.
    """

    def __init__(self, dim: int, dropout: float, regions: int | None, norm: RegionNorm | None) -> None:
        super().__init__(dim, dropout)
        if norm not in (None, "slot", "feature"):
            raise InputError(f"region_norm is {norm!r}; it must be slot or feature")
        if norm == "slot" and not regions:
            raise InputError("region_norm slot needs images with the same number of regions each; use feature")
        self.slots = regions if regions and norm != "feature" else None
        self.local_norm = nn.BatchNorm1d(self.slots) if self.slots else RowNorm(dim)
        self.whole_norm = RowNorm(dim)

    def norm_local(self, x: Tensor, mask: Tensor) -> Tensor:
        """Apply the batch norm of the regions, (n, length, dim); with `feature` padding becomes 0.

        Raises:
            InputError: The norm is `slot`, and the images do not have the expected number of regions.
        """
        if self.slots:
            if x.shape[1] != self.slots or not bool(mask.all()):
                raise InputError(f"these images do not have {self.slots} regions each; use region_norm feature")
            slots: Tensor = self.local_norm(x)
            return slots
        out = torch.zeros_like(x)
        out[mask] = self.local_norm(x[mask]).to(x.dtype)
        return out

    def norm_mean(self, x: Tensor) -> Tensor:
        """Apply the batch norm of the mean, (n, dim)."""
        mean: Tensor = self.whole_norm(x)
        return mean
