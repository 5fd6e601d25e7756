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


def generalised_cross_entropy(image_logits: Tensor, text_logits: Tensor, gamma: float = 0.7) -> Tensor:
    """Generalised cross-entropy of each side's prediction against the class that the other side chooses (PCSR Eq. 12).

        (1 - p_i(q^_i)^gamma) / gamma  +  (1 - q_i(p^_i)^gamma) / gamma

    with p of the image, q of the caption and ^ for the most likely class. It goes from the cross-entropy (gamma to 0)
    to 1 - p (gamma = 1), so that a label which the prediction thinks unlikely pulls less.

    Args:
        image_logits: (B, K).
        text_logits: (B, K). Both sides have a gradient; the chosen classes have none.
        gamma: In (0, 1].

    Returns:
        (B,), in [0, 2 / gamma].
    """
    total = torch.zeros_like(image_logits[:, 0], dtype=torch.promote_types(image_logits.dtype, torch.float32))
    for logits, other in ((image_logits, text_logits), (text_logits, image_logits)):
        log_p = logits.log_softmax(1).gather(1, other.argmax(1, keepdim=True))[:, 0]
        total = total - torch.expm1(gamma * log_p) / gamma
    return total
