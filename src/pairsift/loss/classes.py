"""The losses on the predictions of a pseudo-classifier."""

import math

import torch
from torch import Tensor


def pseudo_label_loss(image_logits: Tensor, text_logits: Tensor) -> Tensor:
    """Return the cross-entropy of each image's prediction against the class of its caption (PC2 Eq. 2).

    The class of a caption is the argmax of its logits.

    Args:
        image_logits: (B, K).
        text_logits: (B, K). Only the argmax is used, so no gradient reaches them.

    Returns:
        (B,), at least 0.
    """
    return torch.nn.functional.cross_entropy(image_logits, text_logits.argmax(1), reduction="none")


def batch_entropy(logits: Tensor) -> Tensor:
    """Return one term per row of the negative entropy of the mean prediction (PC2 Eq. 3).

        value_i = sum_k p_ik log( (1/B) sum_j p_jk )

    The mean of the values over the batch is -H(mean prediction). Minimising it spreads the predictions over the
    classes; a single prediction may still be certain.

    Args:
        logits: (B, K).

    Returns:
        (B,), with a mean in [-log K, 0].
    """
    log_p = logits.log_softmax(1)
    log_mean = torch.logsumexp(log_p, 0) - math.log(len(logits))
    return (log_p.exp() * log_mean).sum(1)


def generalised_cross_entropy(image_logits: Tensor, text_logits: Tensor, gamma: float = 0.7) -> Tensor:
    """Return the generalised cross-entropy between the predictions of image and caption (PCSR Eq. 12).

    Each side's prediction is compared with the most likely class of the other side:

        (1 - p_i(q^_i)^gamma) / gamma  +  (1 - q_i(p^_i)^gamma) / gamma

    Here p is the prediction of the image, q the prediction of the caption, and ^ marks the most likely class. Each term
    tends to the cross-entropy as gamma tends to 0 and equals 1 - p at gamma = 1. With a larger gamma, a label that the
    prediction considers unlikely has a smaller gradient.

    Args:
        image_logits: (B, K).
        text_logits: (B, K). Both predictions have a gradient; the most likely classes have none.
        gamma: In (0, 1].

    Returns:
        (B,), in [0, 2 / gamma].
    """
    total = torch.zeros_like(image_logits[:, 0], dtype=torch.promote_types(image_logits.dtype, torch.float32))
    for logits, opposite in ((image_logits, text_logits), (text_logits, image_logits)):
        log_p = logits.log_softmax(1).gather(1, opposite.argmax(1, keepdim=True))[:, 0]
        total = total - torch.expm1(gamma * log_p) / gamma
    return total
