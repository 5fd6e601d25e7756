"""Self-attention that makes one global vector of an item's tokens (Diao et al., AAAI 2021)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from pairsift.errors import InputError
from pairsift.match.base import unit
from pairsift.match.states import Linear, MeanPool, RowNorm

RegionNorm = Literal["slot", "feature"]


class TextAttention(nn.Module):
    """Words weighted by how they go with their mean.

        t = unit( sum_l a_l t_l ),    a = softmax_l( w . [ tanh(W_l t_l + b_l) * tanh(W_g mean(t) + b_g) ] + b )

    Args:
        dim: Length of a token.
        dropout: Probability of dropping an entry behind a tanh, [0, 1).
    """

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.local, self.whole, self.common = Linear(dim, dim), Linear(dim, dim), Linear(dim, 1)
        self.squash = nn.Sequential(nn.Tanh(), nn.Dropout(dropout))
        self.mean = MeanPool()

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Global vectors, unit length.

        Args:
            tokens: (n, length, dim), 0 at padding.
            mask: True at real tokens, at least one each, (n, length).

        Returns:
            (n, dim).
        """
        local = self.squash(self.norm_local(self.local(tokens), mask))
        whole = self.squash(self.norm_whole(self.whole(self.mean(tokens, mask))))
        weights = self.common(local * whole[:, None]).squeeze(-1).masked_fill(~mask, -torch.inf).softmax(1)
        return unit((weights[:, None].to(tokens.dtype) @ tokens).squeeze(1))

    def norm_local(self, x: Tensor, mask: Tensor) -> Tensor:
        """What stands before the tanh of the tokens, (n, length, dim); nothing for texts."""
        return x

    def norm_whole(self, x: Tensor) -> Tensor:
        """What stands before the tanh of their mean, (n, dim); nothing for texts."""
        return x


class ImageAttention(TextAttention):
    """The same over regions, with batch norms before each tanh.

    The paper's norm of the regions takes a region's place for the channel (`slot`), which fixes their number and gives
    their order a meaning. `feature` normalises each entry over all real regions instead.

    Args:
        dim: Length of a token.
        dropout: Probability of dropping an entry behind a tanh, [0, 1).
        regions: Regions of every image; None where they differ.
        norm: The norm of the regions; None takes `slot` where `regions` is known.

    Raises:
        InputError: `slot` without a fixed number of regions, or no such norm.
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
        """The regions' batch norm, (n, length, dim); with `feature` 0 at padding."""
        if self.slots:
            if x.shape[1] != self.slots or not bool(mask.all()):
                raise InputError(f"these images do not have {self.slots} regions each; use region_norm feature")
            slots: Tensor = self.local_norm(x)
            return slots
        out = torch.zeros_like(x)
        out[mask] = self.local_norm(x[mask]).to(x.dtype)
        return out

    def norm_whole(self, x: Tensor) -> Tensor:
        """The mean's batch norm, (n, dim)."""
        whole: Tensor = self.whole_norm(x)
        return whole
