"""The InfoNCE loss in both directions."""

import torch
from torch import Tensor


def infonce(logits: Tensor, exclude: Tensor, targets: Tensor | None = None) -> Tensor:
    """Return the mean of the cross-entropies of both directions for every pair of a block.

        -1/2 sum_j Y_ij log softmax_j(S_ij / tau)  -  1/2 sum_k Y_ki log softmax_k(S_ki / tau)

    Args:
        logits: S / tau, (B, B), images in rows; pairs on the diagonal.
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always kept.
        targets: Y, (B, B). Each row and each column is a distribution over the entries that `exclude` leaves. The
            default is the identity matrix.

    Returns:
        (B,), at least 0.
    """
    if targets is None:
        captions, images = infonce_directions(logits, exclude)
        return (captions + images) / 2
    rows, columns = log_softmaxes(logits, exclude)
    targets = targets.masked_fill(but_diagonal(exclude), 0.0)
    image_to_text = (targets * rows.masked_fill(targets <= 0, 0.0)).sum(1)  # 0 log 0 = 0, also in the gradient
    text_to_image = (targets * columns.masked_fill(targets <= 0, 0.0)).sum(0)
    return -(image_to_text + text_to_image) / 2


def log_softmaxes(logits: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-softmax over the captions for each image, and over the images for each caption, each (B, B).

    Args:
        logits: (B, B), images in rows; pairs on the diagonal.
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always kept.
    """
    logits = logits.masked_fill(but_diagonal(exclude), -torch.inf)
    return logits.log_softmax(1), logits.log_softmax(0)


def infonce_directions(logits: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two cross-entropies of `infonce`: image to text and text to image, (B,) each."""
    rows, columns = log_softmaxes(logits, exclude)
    return -rows.diagonal(), -columns.diagonal()


def but_diagonal(exclude: Tensor) -> Tensor:
    """Return `exclude` with False on the diagonal, (B, B)."""
    return exclude & ~torch.eye(len(exclude), dtype=torch.bool, device=exclude.device)


def match_probability(logits: Tensor, exclude: Tensor) -> Tensor:
    """Return the softmax probability of each pair of a block, averaged over both directions (GSC Eq. 3).

    Args:
        logits: S / tau_1, (B, B), images in rows; pairs on the diagonal.
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always kept.

    Returns:
        (B,), in [0, 1]; 1 for a pair without negatives.
    """
    rows, columns = log_softmaxes(logits, exclude)
    return (rows.diagonal().exp() + columns.diagonal().exp()) / 2
