"""InfoNCE in both directions."""

import torch
from torch import Tensor


def infonce(logits: Tensor, exclude: Tensor, targets: Tensor | None = None) -> Tensor:
    """Mean of the two directions' cross-entropies for every pair of a block.

        -1/2 sum_j Y_ij log softmax_j(S_ij / tau)  -  1/2 sum_k Y_ki log softmax_k(S_ki / tau)

    Args:
        logits: S / tau, (B, B), images in rows; pairs on the diagonal.
        exclude: True where row i and column j are no negatives of each other, (B, B); the diagonal is always kept.
        targets: Y, (B, B), rows and columns each a distribution over what `exclude` leaves; default: the diagonal.

    Returns:
        (B,), at least 0.
    """
    if targets is None:
        captions, images = infonce_directions(logits, exclude)
        return (captions + images) / 2
    rows, columns = log_softmaxes(logits, exclude)
    targets = targets.masked_fill(but_diagonal(exclude), 0.0)
    left = (targets * rows.masked_fill(targets <= 0, 0.0)).sum(1)  # 0 log 0 = 0, also in the gradient
    right = (targets * columns.masked_fill(targets <= 0, 0.0)).sum(0)
    return -(left + right) / 2


def log_softmaxes(logits: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
    """log softmax over the captions of each image and over the images of each caption, each (B, B).

    Args:
        logits: (B, B), images in rows; pairs on the diagonal.
        exclude: True where row i and column j are no negatives of each other, (B, B); the diagonal is always kept.
    """
    logits = logits.masked_fill(but_diagonal(exclude), -torch.inf)
    return logits.log_softmax(1), logits.log_softmax(0)


def infonce_directions(logits: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
    """The cross-entropies of `infonce` apart: each image among captions, each caption among images; (B,) each."""
    rows, columns = log_softmaxes(logits, exclude)
    return -rows.diagonal(), -columns.diagonal()


def but_diagonal(exclude: Tensor) -> Tensor:
    """`exclude` with the diagonal left out of it, (B, B)."""
    return exclude & ~torch.eye(len(exclude), dtype=torch.bool, device=exclude.device)
