"""The structures that GSC compares: similarities of each pair with the others, across and within the modalities."""

import torch
from torch import Tensor
from torch.nn import functional

from pairsift.loss.infonce import but_diagonal, log_softmaxes


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


def structure_agreement(images: Tensor, texts: Tensor, y: Tensor) -> Tensor:
    """Return the cosine of the two intra-modal structures of each pair (GSC Eq. 8).

    The pairs of the block are weighted by their labels:

        cos( (y_j <I_i, I_j>)_j , (y_j <T_i, T_j>)_j )

    j runs over all pairs of the block, including the pair i itself and captions of the same image. They are not
    negatives here; they only serve to compare the two structures.

    Args:
        images: Similarities of the block's images with each other, (B, B).
        texts: Similarities of its captions with each other, (B, B).
        y: Labels in [0, 1], (B,).

    Returns:
        (B,), in [-1, 1]; 0 where every label is 0.
    """
    return functional.cosine_similarity(images * y, texts * y, dim=1)


def structure_loss(images: Tensor, texts: Tensor, y: Tensor, temperature: float, exclude: Tensor) -> Tensor:
    """Return the cross-entropy of each image's structure against the structures of the captions (GSC Eq. 7).

        -log softmax_j( sum_k y_k <I_i, I_k> y_k <T_j, T_k> / tau_2 )_i

    Args:
        images: Similarities of the block's images with each other, (B, B).
        texts: Similarities of its captions with each other, (B, B).
        y: Labels in [0, 1], (B,).
        temperature: tau_2.
        exclude: True where image i and caption j are not negatives of each other, (B, B); the diagonal is always
            kept.

    Returns:
        (B,), at least 0.
    """
    with torch.autocast(images.device.type, enabled=False):  # sums of B products lose too much in half precision
        logits = (images * y.square()) @ texts.T / temperature
    return -logits.masked_fill(but_diagonal(exclude), -torch.inf).log_softmax(1).diagonal()
