"""The robust InfoNCE loss."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pairsift.loss.infonce import but_diagonal


def rince(logits: Tensor, exclude: Tensor, q: float, density: float) -> Tensor:
    """Return the robust InfoNCE loss of every pair of a block, the mean of both directions (RINCE).

        -exp(q z_ii) / q  +  (lambda sum_j exp(z_ij))^q / q,        z = S / tau

    The sum runs over the captions that `exclude` leaves, with the pair's own. As q tends to 0 this tends to InfoNCE
    plus log lambda; at q = 1 it is symmetric, and a wrong positive pulls no harder than a right one. It is computed as
    a difference of expm1, so that nothing cancels where q is small.

    Args:
        logits: z, (B, B), images in rows; pairs on the diagonal. exp(q z) must be finite.
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always kept.
        q: In (0, 1].
        density: lambda, above 0.

    Returns:
        (B,), of either sign.
    """
    logits = logits.masked_fill(but_diagonal(exclude), -torch.inf)
    own = torch.expm1(q * logits.diagonal())
    totals = (torch.expm1(q * (math.log(density) + logits.logsumexp(dim))) for dim in (1, 0))
    captions, images = ((total - own) / q for total in totals)
    return (captions + images) / 2
