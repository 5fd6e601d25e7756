"""How a correspondence y in [0, 1] becomes the strength of a ranking loss."""

import torch
from torch import Tensor


def strength(y: Tensor, base: float = 10.0) -> Tensor:
    """The papers' exponential curve, (base^y - 1) / (base - 1): 0 at y = 0, 1 at y = 1, convex between.

    NCR and PC2 multiply the margin of the hinge by it (PC2 Eq. 5 and 9); here it also weights InfoNCE.

    Args:
        y: Correspondences in [0, 1], any shape.
        base: Base m > 1; the papers use 10.

    Returns:
        Values in [0, 1], the shape of y.
    """
    return (torch.pow(base, y) - 1) / (base - 1)
