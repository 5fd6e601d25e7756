"""The binary cross-entropy of every image with every caption of a block."""

import torch
from torch import Tensor
from torch.nn import functional

from pairsift.loss.infonce import but_diagonal


def pairwise(logits: Tensor, y: Tensor, exclude: Tensor, pseudo: float = 0.0, smoothing: float = 0.0) -> Tensor:
    """Return the binary cross-entropy of each pair's row and of its column (Chun, ICLR 2024, Eq. 3 and 5).

    With the labels t_ii = y_i and t_ij = 0 elsewhere, and H(l, t) = -t log sigmoid(l) - (1 - t) log sigmoid(-l):

        mean_j H(l_ij, t_ij)  +  mean_k H(l_ki, t_ki)

    The means run over the pair itself and the negatives that `exclude` leaves, so that without exclusions the mean of
    the values is twice that of all B^2 cross-entropies. `pseudo` times the same is added with pseudo-positives: an
    image or a caption that is at least as close to the other side of the pair as the pair's own gets the label y_i too.

    Args:
        logits: l, (B, B), images in rows; pairs on the diagonal.
        y: Correspondence of every pair in [0, 1], (B,).
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always kept.
        pseudo: Weight of the loss with pseudo-positives, at least 0.
        smoothing: epsilon, by which every label t becomes t + epsilon (1 - 2 t), [0, 0.5).

    Returns:
        (B,), at least 0.
    """
    exclude = but_diagonal(exclude)
    total = torch.zeros_like(logits[0])
    for block, excluded in ((logits, exclude), (logits.T, exclude.T)):
        positive, negative = functional.softplus(-block), functional.softplus(block)
        kept = ~excluded
        labels = torch.diag(y.to(block.dtype))
        for weight, t in ((1.0, labels), (pseudo, _with_pseudo(block, labels))):
            if weight:
                smooth = t + smoothing * (1 - 2 * t)
                entropy = (smooth * positive + (1 - smooth) * negative).masked_fill(excluded, 0.0)
                total = total + weight * entropy.sum(1) / kept.sum(1)
    return total


def pairwise_directions(logits: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
    """Return each pair's cross-entropy with that of its negatives, by image and by caption, (B,) each.

    A pair's own cross-entropy weighs as much as the mean of its negatives in the direction: over the captions for its
    image, and over the images for its caption.

    Args:
        logits: l, (B, B), images in rows; pairs on the diagonal.
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal always is.
    """
    exclude = exclude | torch.eye(len(exclude), dtype=torch.bool, device=exclude.device)
    negative = functional.softplus(logits).masked_fill(exclude, 0.0)
    own = functional.softplus(-logits.diagonal())
    captions, images = (negative.sum(axis) / (~exclude).sum(axis).clamp(min=1) for axis in (1, 0))
    return own + captions, own + images


def _with_pseudo(logits: Tensor, labels: Tensor) -> Tensor:
    """Return labels with that of the pair for every entry of its row that scores at least as high, (B, B)."""
    return torch.where(logits.detach() >= logits.detach().diagonal()[:, None], labels.diagonal()[:, None], labels)
