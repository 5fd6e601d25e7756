"""A pooling with learned weights for the highest, the second highest, ... value of every channel."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

WIDTH = 32  # width of the position encodings and of the GRU over them
TEMPERATURE = 0.1


class GeneralizedPool(nn.Module):
    """The generalized pooling operator (Chen et al., Learning the Best Pooling Strategy for VSE, CVPR 2021).

    Each channel is sorted separately over the tokens of an item, and its k-th highest value is weighted by theta_k:

        v_c = sum_k theta_k max_k(x_1c, ..., x_Lc),    theta = softmax_k( score(GRU(p_1, ..., p_L))_k / 0.1 )

    p_k is a sinusoidal encoding of the position k. theta depends only on L. Mean and maximum are special cases.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        self.score = nn.Linear(WIDTH, 1, bias=False)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Pool the tokens of each item into one vector.

        Args:
            tokens: (n, length, d).
            mask: True at real tokens, at any positions, (n, length).

        Returns:
            (n, d); 0 for an item without tokens.
        """
        count = mask.sum(1)
        maxima = tokens.masked_fill(~mask[..., None], -torch.inf).transpose(1, 2).sort(-1, descending=True).values
        padding = torch.arange(mask.shape[1], device=mask.device) >= count[:, None]
        maxima = maxima.masked_fill(padding[:, None], 0.0)
        distinct, index = torch.unique(count.clamp(min=1), return_inverse=True)
        theta = self.weights(distinct, mask.shape[1])[index]
        return (maxima @ theta[..., None].to(maxima.dtype)).squeeze(-1)

    def weights(self, lengths: Tensor, width: int) -> Tensor:
        """Return theta for items of these lengths.

        Args:
            lengths: Each from 1 to `width`, (m,).
            width: Length of a row of the result.

        Returns:
            (m, width). A row sums to 1 over its length and is 0 beyond it.
        """
        encoded = positions(width).to(self.score.weight).expand(len(lengths), -1, -1)
        packed = pack_padded_sequence(encoded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=width)
        score: Tensor = self.score((states[..., :WIDTH] + states[..., WIDTH:]) / 2)
        padding = torch.arange(width, device=lengths.device) >= lengths[:, None]
        return (score.squeeze(-1) / TEMPERATURE).masked_fill(padding, -torch.inf).softmax(1)


def positions(length: int) -> Tensor:
    """Return sinusoidal encodings of the positions 0, 1, ..., with sine and cosine in turn, (length, 32), float64."""
    rate = torch.exp(torch.arange(0, WIDTH, 2, dtype=torch.float64) * (-math.log(10000.0) / WIDTH))
    angle = torch.arange(length, dtype=torch.float64)[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
