"""What a network learns from the similarities that its teachers see in a batch."""

from torch import Tensor


def balanced(logits: Tensor) -> Tensor:
    """Return logits from which the general attraction of each image and of each caption of the block is taken away.

        S_ij - log sum_k exp(S_ik) - log sum_k exp(S_kj)

    This is the pointwise mutual information of image i and caption j up to a constant. Images that are close to many
    captions, and captions that are close to many images, lose what they have more than others.

    Args:
        logits: S, scaled similarities, (B, C), images in rows.

    Returns:
        (B, C).
    """
    return logits - logits.logsumexp(1, keepdim=True) - logits.logsumexp(0, keepdim=True)


def teaching(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of each pair's similarities with those of a teacher, the mean of both directions.

        -1/2 sum_j softmax_j(Q_ij) log softmax_j(S_ij)  -  1/2 sum_k softmax_k(Q_ki) log softmax_k(S_ki)

    Args:
        logits: S, scaled similarities of the network in training, (B, B), images in rows, pairs on the diagonal.
        targets: Q, those of the teacher, (B, B), without gradient.

    Returns:
        (B,), at least 0.
    """
    captions = (targets.softmax(1) * logits.log_softmax(1)).sum(1)
    images = (targets.softmax(0) * logits.log_softmax(0)).sum(0)
    return -(captions + images) / 2
