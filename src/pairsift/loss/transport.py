"""Rematching by optimal transport: plans that move a part of the mass, and losses towards them (L2RM)."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from pairsift.loss.infonce import infonce
from pairsift.loss.structure import match_probability

LOG_ZERO = math.log(1e-7)  # what stands for log 0


@torch.no_grad()
def log_partial_plan(
    cost: Tensor, mass: float, epsilon: float, forbidden: Tensor | None = None, steps: int = 100
) -> Tensor:
    """Return the logarithm of the plan that moves a part of the mass at the least cost, by Sinkhorn's steps.

    Every row holds 1 / n and every column 1 / m, and of the whole 1 only `mass` is moved. With h(x) = x (log x - 1), s
    the mass that a row keeps and t that of a column, the plan is that of

        min over P >= 0 of  <P, C> + epsilon ( sum h(P) + sum h(s) + sum h(t) )
                     with  P 1 + s = 1 / n,  P^T 1 + t = 1 / m,  s, t >= 0,  sum P = mass

    The steps are those of a plan with a row and a column of cost 0 for what is kept, whose meeting point is forbidden.
    The last step makes the columns exact, and the rows as near as the number of steps allows.

    Args:
        cost: C, finite, (..., n, m).
        mass: Share of the mass that is moved, (0, 1).
        epsilon: Weight of the entropy, above 0, in the unit of the cost.
        forbidden: Where nothing may be moved, (..., n, m) or what broadcasts to it; None for nowhere.
        steps: Number of steps, at least 1.

    Returns:
        log P, (..., n, m), in float32 at least, without gradient; -inf where nothing is moved.
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
    return (kernel + left[..., None] + right[..., None, :])[..., :n, :m]


def rematching(logits: Tensor, log_plan: Tensor) -> Tensor:
    """Return the symmetric divergence of each pair's softmax probabilities from a plan, the mean of both directions.

    With Q the plan whose rows (columns) are scaled to sum to 1, and P the softmax over them:

        sum_j (Q_ij - P_ij) (log Q_ij - log P_ij)  =  KL(Q || P) + KL(P || Q)

    Args:
        logits: S / tau, (B, B), images in rows.
        log_plan: Logarithm of the plan, (B, B); log 0 counts as log 1e-7 in the divergence. A row or column where
            nothing is moved has the divergence 0.

    Returns:
        (B,), at least 0.
    """
    values = torch.zeros_like(logits[0])
    for dim in (1, 0):
        moved = ~log_plan.isneginf().all(dim, keepdim=True)
        target = log_plan.masked_fill(~moved, 0.0).softmax(dim)  # of the logarithms: a plan may be below 1e-38
        log_p = logits.log_softmax(dim)
        log_q = target.clamp(min=math.exp(LOG_ZERO)).log()
        values = values + ((target - log_p.exp()) * (log_q - log_p) * moved).sum(dim)
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
