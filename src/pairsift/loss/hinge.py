"""The triplet hinge with a separate margin for every pair."""

import torch
from torch import Tensor

Negatives = int | str  # "mean", "hardest", or the number of hardest negatives to average


def hinge(similarity: Tensor, margin: Tensor, negatives: Negatives, exclude: Tensor) -> Tensor:
    """Return the sum of the hinge losses of both directions for every pair of a block (NCR; PC2 Eq. 6 and 9).

    For the pair i, with [x] = max(x, 0) and the margin of the pair in both directions:

        over captions j:  [margin_i + S_ij - S_ii]        over images k:  [margin_i + S_ki - S_ii]

    Each is reduced over the negatives that `exclude` leaves.

    Args:
        similarity: S, (B, B), images in rows; pairs on the diagonal.
        margin: (B,), at least 0.
        negatives: `mean` takes the mean over all negatives, `hardest` takes the hardest negative, and a number k takes
            the mean over the k hardest.
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always excluded.

    Returns:
        (B,), at least 0; 0 for a pair that has no negatives.
    """
    captions, images = hinge_directions(similarity, margin, negatives, exclude)
    return captions + images


def hinge_directions(
    similarity: Tensor, margin: Tensor, negatives: Negatives, exclude: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the two parts of `hinge`: over captions (image to text) and over images (text to image), each (B,)."""
    positive = similarity.diagonal()
    exclude = exclude | torch.eye(len(positive), dtype=torch.bool, device=similarity.device)
    captions = (margin[:, None] + similarity - positive[:, None]).clamp(min=0)
    images = (margin[None, :] + similarity - positive[None, :]).clamp(min=0)
    return _reduce(captions, exclude, negatives), _reduce(images.T, exclude.T, negatives)


def _reduce(cost: Tensor, exclude: Tensor, negatives: Negatives) -> Tensor:
    """Reduce each row of the costs (B, B) over the negatives that `negatives` selects, (B,)."""
    cost = cost.masked_fill(exclude, 0.0)
    count = (~exclude).sum(1)
    if negatives == "mean":
        return cost.sum(1) / count.clamp(min=1)
    k = 1 if negatives == "hardest" else int(negatives)
    hardest = cost.topk(min(k, cost.shape[1]), dim=1).values  # costs are >= 0 and excluded costs are 0
    return hardest.sum(1) / count.clamp(min=1, max=k)
