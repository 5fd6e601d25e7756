"""The curve that maps a correspondence y in [0, 1] to the strength of a ranking loss."""

import torch
from torch import Tensor


def strength(y: Tensor, base: float = 10.0) -> Tensor:
    """Return the exponential curve of the papers, (base^y - 1) / (base - 1).

    It is 0 at y = 0, 1 at y = 1, and convex between.

    NCR and PC2 multiply the margin of the hinge by it (PC2 Eq. 5 and 9). Here it also weights InfoNCE. As the base
    tends to 1 the curve tends to y, which is the weight of GSC (Eq. 6).

    Args:
        y: Correspondences in [0, 1], any shape.
        base: Base m, at least 1; NCR and PC2 use 10.

    Returns:
        Values in [0, 1], in the shape of y.
    """
    return y if base == 1 else (torch.pow(base, y) - 1) / (base - 1)
