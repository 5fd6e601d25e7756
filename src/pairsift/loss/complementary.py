"""Losses that make the probability of every negative small (RCL, CRCL)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from pairsift.loss.infonce import log_softmaxes

Form = Literal["log", "tan", "exp", "mae", "gce"]


def complementary(logits: Tensor, exclude: Tensor, form: Form = "log", q: float = 0.5) -> Tensor:
    """Return the complementary contrastive loss of every pair of a block, the mean of both directions (RCL).

    With p_ij the softmax of a row over the captions that `exclude` leaves, and the same over a column, the loss of a
    direction is a sum over the negatives alone:

        log: -log(1 - p_ij)    tan: tan p_ij    exp: exp(p_ij - 1)    mae: p_ij    gce: (1 - (1 - p_ij)^q) / q

    A positive has no term; its probability rises because its negatives' fall.

    Args:
        logits: S / tau, (B, B), images in rows; pairs on the diagonal.
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always kept.
        form: The function of a negative's probability.
        q: Exponent of `gce`, in (0, 1]; the loss tends to `log` as q tends to 0 and is `mae` at q = 1.

    Returns:
        (B,), at least 0; 0 for a pair that has no negatives.
    """
    captions, images = (_of_negatives(log_p, form, q).sum(1) for log_p in _directions(logits, exclude))
    return (captions + images) / 2


def active_complementary(logits: Tensor, exclude: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two parts of the active complementary loss of every pair, each the sum of both directions (CRCL).

        active:         -y_i log p_ii
        complementary:  sum_{j != i} tan p_ij / (sum_j tan p_ij)^(1 - y_i)

    At y = 1 the second part is the `tan` form of `complementary`; at y = 0 it is at most 1 in each direction.

    Args:
        logits: S / tau, (B, B), images in rows; pairs on the diagonal.
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always kept.
        y: Correspondence of each pair, in [0, 1], (B,).

    Returns:
        Active and complementary part, (B,) each, at least 0.
    """
    active, negative = torch.zeros_like(logits[0]), torch.zeros_like(logits[0])
    for log_p in _directions(logits, exclude):
        tangents = _of_negatives(log_p, "tan")
        own = log_p.diagonal()
        total = tangents.sum(1) + own.exp().tan()
        active = active - y * own
        negative = negative + tangents.sum(1) / total.pow(1 - y)
    return active, negative


def _directions(logits: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-softmax of both directions, the pair's own image or caption in rows, each (B, B)."""
    rows, columns = log_softmaxes(logits, exclude)
    return rows, columns.T


def _of_negatives(log_p: Tensor, form: Form, q: float = 0.5) -> Tensor:
    """Return the terms of the negatives, (B, B), 0 on the diagonal and where the probability is 0 by exclusion."""
    if form in ("log", "gce"):
        log_rest = _log_of_rest(log_p)
        terms = -log_rest if form == "log" else -torch.expm1(q * log_rest) / q
    else:
        p = log_p.exp()
        terms = p.tan() if form == "tan" else p if form == "mae" else (p - 1).exp()
    positive = torch.eye(len(log_p), dtype=torch.bool, device=log_p.device)
    return terms.masked_fill(positive | log_p.isneginf(), 0.0)


def _log_of_rest(log_p: Tensor) -> Tensor:
    """Return log(1 - p) of each entry, exact also where p is so near to 1 that 1 - p would be 0, (B, B).

    Only the largest probability of a row can be above one half. There the rest is summed instead of subtracted.
    """
    largest = torch.zeros_like(log_p, dtype=torch.bool).scatter(1, log_p.argmax(1, keepdim=True), True)
    others = log_p.masked_fill(largest, -torch.inf)
    alone = others.isneginf().all(1, keepdim=True)  # a row without negatives, whose gradient would not be a number
    rest = others.masked_fill(alone, 0.0).logsumexp(1, keepdim=True)
    return torch.where(largest, rest, torch.log1p(-others.exp()))
