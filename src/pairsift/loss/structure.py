"""What GSC compares: each pair's place among the others, across the modalities and within them."""

import torch
from torch import Tensor
from torch.nn import functional

from pairsift.loss.infonce import but_diagonal, log_softmaxes


def match_probability(logits: Tensor, exclude: Tensor) -> Tensor:
    """The share of the softmax that each pair of a block keeps, the mean of both directions (GSC Eq. 3).

    Args:
        logits: S / tau_1, (B, B), images in rows; pairs on the diagonal.
        exclude: True where row i and column j are no negatives of each other, (B, B); the diagonal is always kept.

    Returns:
        (B,), in [0, 1]; 1 for a pair that has no negatives.
    """
    rows, columns = log_softmaxes(logits, exclude)
    return (rows.diagonal().exp() + columns.diagonal().exp()) / 2


def structure_agreement(images: Tensor, texts: Tensor, y: Tensor) -> Tensor:
    """Cosine of each pair's two intra-modal structures, other pairs weighted by their labels (GSC Eq. 8).

        cos( (y_j <I_i, I_j>)_j , (y_j <T_i, T_j>)_j )

    The sum runs over all pairs of the block, the pair itself and captions of the same image among them: they are
    places to compare with here, not negatives.

    Args:
        images: Similarities of the block's images with each other, (B, B).
        texts: Similarities of its captions with each other, (B, B).
        y: Labels in [0, 1], (B,).

    Returns:
        (B,), in [-1, 1]; 0 where every label is 0.
    """
    return functional.cosine_similarity(images * y, texts * y, dim=1)


def structure_loss(images: Tensor, texts: Tensor, y: Tensor, temperature: float, exclude: Tensor) -> Tensor:
    """Cross-entropy of each image's structure against the captions' structures (GSC Eq. 7).

        -log softmax_j( sum_k y_k <I_i, I_k> y_k <T_j, T_k> / tau_2 )_i

    Args:
        images: Similarities of the block's images with each other, (B, B).
        texts: Similarities of its captions with each other, (B, B).
        y: Labels in [0, 1], (B,).
        temperature: tau_2.
        exclude: True where image i and caption j are no negatives of each other, (B, B); the diagonal is always kept.

    Returns:
        (B,), at least 0.
    """
    with torch.autocast(images.device.type, enabled=False):  # sums of B products: half precision would blur them
        logits = (images * y.square()) @ texts.T / temperature
    return -logits.masked_fill(but_diagonal(exclude), -torch.inf).log_softmax(1).diagonal()
