"""The part of CREAM's loss that pairs of little trust spend on other images and captions of the batch."""

import torch
from torch import Tensor

from pairsift.loss.infonce import log_softmaxes


def mining(logits: Tensor, similarity: Tensor, y: Tensor, least: float, exclude: Tensor) -> Tensor:
    """Return the cross-entropy of the batch's negatives with what a pair's label leaves for them (CREAM).

    With R the shares of the captions for each image, R' those of the images for each caption (`shares`):

        -(1 - y_i) / 2  [ sum_j R_ij log softmax_j(S_ij / tau)  +  sum_k R'_ki log softmax_k(S_ki / tau) ]

    Beside y_i times the InfoNCE loss, this is the InfoNCE loss with the targets y_i on the diagonal and (1 - y_i) R_ij
    off it.

    Args:
        logits: S / tau, (B, B), images in rows; pairs on the diagonal.
        similarity: S, (B, B), of which the shares are made without gradient.
        y: Labels in [0, 1], (B,).
        least: Smallest similarity that has a share, as a part of the row's largest, [0, 1].
        exclude: True where row i and column j are not negatives of each other, (B, B).

    Returns:
        (B,), at least 0.
    """
    rows, columns = log_softmaxes(logits, exclude)
    forth, back = shares(similarity, least, exclude), shares(similarity.T, least, exclude.T).T
    captions = (forth * rows.masked_fill(forth <= 0, 0.0)).sum(1)  # 0 log 0 = 0, also in the gradient
    images = (back * columns.masked_fill(back <= 0, 0.0)).sum(0)
    return -(1 - y) * (captions + images) / 2


@torch.no_grad()
def shares(similarity: Tensor, least: float, exclude: Tensor) -> Tensor:
    """Return how a row's remaining probability is spread over its negatives, in proportion to similarity, (B, B).

    Similarities below 0, and those below `least` times the largest one of the row, have no share. The others sum to 1;
    a row without a positive similarity has no shares.

    Args:
        similarity: (B, B), pairs on the diagonal.
        least: In [0, 1].
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always excluded.
    """
    diagonal = torch.eye(len(similarity), dtype=torch.bool, device=similarity.device)
    alike = similarity.masked_fill(exclude | diagonal, 0.0).clamp(min=0)
    alike = alike * (alike >= least * alike.amax(1, keepdim=True))
    return alike / alike.sum(1, keepdim=True).clamp(min=1e-12)
