"""The triplet hinge with a margin of its own for every anchor."""

import torch
from torch import Tensor

Negatives = int | str  # "mean", "hardest", or the number of hardest negatives that count


def hinge(similarity: Tensor, margin: Tensor, negatives: Negatives, exclude: Tensor) -> Tensor:
    """Sum of the two directions' hinge losses for every pair of a block (NCR; PC2 Eq. 6 and 9).

    For the pair i, with [x] = max(x, 0) and the pair's own margin in both directions:

        over captions j:  [margin_i + S_ij - S_ii]        over images k:  [margin_i + S_ki - S_ii]

    each taken over the negatives that `exclude` leaves.

    Args:
        similarity: S, (B, B), images in rows; pairs on the diagonal.
        margin: (B,), at least 0.
        negatives: `mean` of all negatives, the `hardest` one, or the mean of that many hardest.
        exclude: True where row i and column j are no negatives of each other, (B, B); the diagonal always is.

    Returns:
        (B,), at least 0; 0 for a pair that has no negatives.
    """
    captions, images = hinge_directions(similarity, margin, negatives, exclude)
    return captions + images


def hinge_directions(
    similarity: Tensor, margin: Tensor, negatives: Negatives, exclude: Tensor
) -> tuple[Tensor, Tensor]:
    """The two parts of `hinge`: over captions (image to text) and over images (text to image), each (B,)."""
    positive = similarity.diagonal()
    exclude = exclude | torch.eye(len(positive), dtype=torch.bool, device=similarity.device)
    captions = (margin[:, None] + similarity - positive[:, None]).clamp(min=0)
    images = (margin[None, :] + similarity - positive[None, :]).clamp(min=0)
    return _over(captions, exclude, negatives), _over(images.T, exclude.T, negatives)


def _over(cost: Tensor, exclude: Tensor, negatives: Negatives) -> Tensor:
    """Reduce each anchor's row of costs (B, B) over the negatives that count, (B,)."""
    cost = cost.masked_fill(exclude, 0.0)
    count = (~exclude).sum(1)
    if negatives == "mean":
        return cost.sum(1) / count.clamp(min=1)
    k = 1 if negatives == "hardest" else int(negatives)
    hardest = cost.topk(min(k, cost.shape[1]), dim=1).values  # costs are >= 0, so excluded ones never displace another
    return hardest.sum(1) / count.clamp(min=1, max=k)
