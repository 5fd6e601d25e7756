"""Losses on the predictions of a pseudo-classifier."""

import math

import torch
from torch import Tensor


def pseudo_label_loss(image_logits: Tensor, text_logits: Tensor) -> Tensor:
    """Cross-entropy of each image's prediction against the class its caption chooses (PC2 Eq. 2).

    Args:
        image_logits: (B, K).
        text_logits: (B, K); only its argmax is used, so no gradient reaches it.

    Returns:
        (B,), at least 0.
    """
    return torch.nn.functional.cross_entropy(image_logits, text_logits.argmax(1), reduction="none")


def batch_entropy(logits: Tensor) -> Tensor:
    """Each row's share of -H(mean prediction), so that the mean over the batch is -H (PC2 Eq. 3).

        value_i = sum_k p_ik log( (1/B) sum_j p_jk )

    Minimising its mean spreads the classes over the batch, without asking that a single prediction be uncertain.

    Args:
        logits: (B, K).

    Returns:
        (B,), with a mean in [-log K, 0].
    """
    log_p = logits.log_softmax(1)
    log_mean = torch.logsumexp(log_p, 0) - math.log(len(logits))
    return (log_p.exp() * log_mean).sum(1)
