"""Small layers that several matchers share."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from pairsift.match.kernels import linear


class Dropout(nn.Dropout):
    """A dropout with masks of its own drawing, whatever the precision of its input.

    On a CPU a mask takes 16 random bits for each entry, which is several times faster than torch's own; the
    probability is rounded to a multiple of 2^-16. On a GPU it is drawn in float32. In 16 bits, torch's kernel for CUDA
    draws eight random numbers a thread where its generator moves on by four (seen in 2.11), so that the dropout after
    it draws half of them again. The mask of a caption would be its image's mask in part, and a network would tell pairs
    by their masks: its loss falls, and it learns less of what they show.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with entries dropped, in its own precision."""
        if not self.training or self.p == 0:
            return input
        if input.device.type == "cpu":
            return input * _scaled_mask(input, self.p)
        return super().forward(input.float()).to(input.dtype)


def _scaled_mask(x: Tensor, probability: float) -> Tensor:
    """Return an array like x that is 0 with a probability, and else what keeps the mean of x."""
    dropped = min(round(probability * 2**16), 2**16 - 1)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    kept = words.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15
    return kept.to(x.dtype) * (2**16 / (2**16 - dropped))


class Linear(nn.Linear):
    """A linear map with Xavier-uniform initial weights and zero initial biases."""

    def reset_parameters(self) -> None:
        """Draw new weights, and set the biases to 0."""
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the map, (..., in) to (..., out)."""
        return linear(x, self.weight, self.bias)


class RowNorm(nn.BatchNorm1d):
    """A batch norm of rows (m, d) that uses its running statistics where there is at most one row."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the rows, (m, d) to (m, d)."""
        if len(x) > 1:
            return super().forward(x)
        return functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


class MeanPool(nn.Module):
    """The mean over the tokens of an item, (n, length, d) to (n, d); 0 for an item without tokens."""

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Pool the tokens (n, length, d) where the mask (n, length) is True."""
        total = tokens.masked_fill(~mask[..., None], 0.0).sum(1)
        return total / mask.sum(1, keepdim=True).clamp(min=1)
