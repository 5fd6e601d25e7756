"""The functions of a meta network that is learned from pairs that are known to match (MSCN)."""

import torch
from torch import Tensor
from torch.nn.functional import softplus


def meta_loss(logits: Tensor, exclude: Tensor) -> Tensor:
    """Return the binary cross-entropy of each pair of a block and of its negatives, half and half.

        -1/2 log V_ii  -  1/2 mean_j log(1 - V_ij),    V = sigmoid(logits)

    Args:
        logits: Logits of a match of every image with every caption, (B, B); pairs that match on the diagonal.
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always excluded.

    Returns:
        (B,), at least 0; a pair without negatives has the first part alone.
    """
    negative = ~(exclude | torch.eye(len(logits), dtype=torch.bool, device=logits.device))
    apart = softplus(logits).masked_fill(~negative, 0.0).sum(1) / negative.sum(1).clamp(min=1)
    return (softplus(-logits.diagonal()) + apart) / 2


def sharpened(p: Tensor) -> Tensor:
    """Return p^2 / (p^2 + (1 - p)^2), which moves probabilities towards 0 and 1 (MSCN's soft margin), (B,)."""
    return p.square() / (p.square() + (1 - p).square())
