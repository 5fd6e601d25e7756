"""The impact of a training step on the losses of pairs that are known to match."""

import torch
from torch import Tensor

Directions = tuple[Tensor, Tensor]


def change(before: Directions, after: Directions, eps: float = 1e-6) -> Tensor:
    """Return r = (p^s / p^{s+1} + q^s / q^{s+1}) / 2 for every pair (NPC Eq. 7).

    r is below 1 where the step increased the losses.

    Args:
        before: p^s and q^s, the losses from image to text and from text to image, (B,) each, at least 0.
        after: p^{s+1} and q^{s+1}, the same losses after the step.
        eps: Added to every loss. A pair whose losses are all 0 therefore gives 1.

    Returns:
        (B,), above 0.
    """
    p, q = ((loss_before + eps) / (loss_after + eps) for loss_before, loss_after in zip(before, after, strict=True))
    return (p + q) / 2


def confidence(r: Tensor) -> Tensor:
    """Return w = tanh(r) where r < 1, else 1 (NPC Eq. 8); w jumps from tanh(1) = 0.762 to 1 at r = 1."""
    return torch.where(r < 1, r.tanh(), 1.0)
