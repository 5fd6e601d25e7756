"""Rematching by optimal transport: plans that move a part of the mass, and losses towards them (L2RM)."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from pairsift.loss.infonce import infonce
from pairsift.loss.structure import match_probability

LOG_ZERO = math.log(1e-7)  # what stands for log 0


@torch.no_grad()
def partial_plan(
    cost: Tensor, mass: float, epsilon: float, forbidden: Tensor | None = None, steps: int = 100
) -> Tensor:
    """Return the plan that moves a part of the mass at the least cost, by Sinkhorn's steps in the log domain.

    Every row holds 1 / n and every column 1 / m, and of the whole 1 only `mass` is moved:

        min over P >= 0 of  <P, C> + epsilon sum P (log P - 1)   with  P 1 <= 1 / n,  P^T 1 <= 1 / m,  sum P = mass

    A column and a row of cost 0 take what is not moved, 1 - mass each, and share in the entropy; their meeting point is
    forbidden. The last step makes the columns exact, and the rows as near as the number of steps allows.

    Args:
        cost: C, finite, (..., n, m).
        mass: Share of the mass that is moved, (0, 1).
        epsilon: Weight of the entropy, above 0, in the unit of the cost.
        forbidden: Where nothing may be moved, (..., n, m) or what broadcasts to it; None for nowhere.
        steps: Number of steps, at least 1.

    Returns:
        P, (..., n, m), in float32 at least, without gradient.
    """
    *_, n, m = cost.shape
    kernel = functional.pad(-cost.to(torch.promote_types(cost.dtype, torch.float32)) / epsilon, (0, 1, 0, 1))
    if forbidden is not None:
        kernel[..., :n, :m] = kernel[..., :n, :m].masked_fill(forbidden, -torch.inf)
    kernel[..., n, m] = -torch.inf
    rows = kernel.new_tensor([1 / n] * n + [1 - mass]).log()
    columns = kernel.new_tensor([1 / m] * m + [1 - mass]).log()
    left, right = torch.zeros_like(kernel[..., 0]), torch.zeros_like(kernel[..., 0, :])
    for _ in range(steps):
        left = rows - (kernel + right[..., None, :]).logsumexp(-1)
        right = columns - (kernel + left[..., None]).logsumexp(-2)
    return (kernel + left[..., None] + right[..., None, :]).exp()[..., :n, :m]


def rematching(logits: Tensor, plan: Tensor) -> Tensor:
    """Return the symmetric divergence of each pair's softmax probabilities from a plan, the mean of both directions.

    With Q the plan whose rows (columns) are scaled to sum to 1, and P the softmax over them:

        sum_j (Q_ij - P_ij) (log Q_ij - log P_ij)  =  KL(Q || P) + KL(P || Q)

    Args:
        logits: S / tau, (B, B), images in rows.
        plan: At least 0, (B, B); log 0 counts as log 1e-7. A row or column of zeros has the divergence 0.

    Returns:
        (B,), at least 0.
    """
    values = torch.zeros_like(logits[0])
    for dim in (1, 0):
        total = plan.sum(dim, keepdim=True)
        target = plan / total.clamp(min=1e-30)
        log_p = logits.log_softmax(dim)
        log_q = target.clamp(min=math.exp(LOG_ZERO)).log()
        values = values + ((target - log_p.exp()) * (log_q - log_p) * (total > 0)).sum(dim)
    return values / 2


def symmetric_cross_entropy(logits: Tensor, exclude: Tensor) -> Tensor:
    """Return half of the cross-entropy of each pair in its batch, and half of the reverse one, of both directions.

    The reverse cross-entropy of the prediction p with the label as the prediction is -log(0) (1 - p_ii), log 0 being
    log 1e-7.

    Args:
        logits: S / tau, (B, B), images in rows; pairs on the diagonal.
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always kept.

    Returns:
        (B,), at least 0.
    """
    return (infonce(logits, exclude) - LOG_ZERO * (1 - match_probability(logits, exclude))) / 2
