"""The losses of evidential learning, in which a row of a block is a choice with a Dirichlet distribution (DECL)."""

import torch
from torch import Tensor

from pairsift.loss.infonce import but_diagonal


def evidence(logits: Tensor, tau: float) -> Tensor:
    """Return the evidence exp(tanh(r) / tau) of raw scores r, from exp(-1 / tau) to exp(1 / tau), at least float32."""
    return (logits.to(torch.promote_types(logits.dtype, torch.float32)).tanh() / tau).exp()


def evidential_loss(e: Tensor, y: Tensor, exclude: Tensor, regularisation: float) -> Tensor:
    """Return the evidential loss of every pair of a block, the sum of both directions (DECL).

    Row i says which caption belongs to image i, with the Dirichlet parameters a_ij = e_ij + 1 over the captions that
    `exclude` leaves. With Z_i = sum_j a_ij, m_ij = a_ij / Z_i, and the target Y, which is y_i for the pair and else 0:

        sum_j (Y_ij - m_ij)^2  +  sum_j m_ij (1 - m_ij) / (Z_i + 1)  +  lambda KL( Dir(Y + (1 - Y) a_i) || Dir(1) )

    The last term takes evidence away from what does not belong there; where y = 0, from every caption.

    Args:
        e: Evidence, (B, B), images in rows; pairs on the diagonal.
        y: 1 where a pair is believed, 0 where not, (B,).
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always kept.
        regularisation: lambda, at least 0.

    Returns:
        (B,), at least 0.
    """
    kept = ~but_diagonal(exclude)
    return _of_rows(e, y, kept, regularisation) + _of_rows(e.T, y, kept.T, regularisation)


def _of_rows(e: Tensor, y: Tensor, kept: Tensor, regularisation: float) -> Tensor:
    """Return the loss over the entries of each row that are kept, (B,)."""
    a = (e + 1).masked_fill(~kept, 0.0)
    target = torch.diag(y.to(e.dtype))
    total = a.sum(1, keepdim=True)
    mean = a / total
    error = (target - mean).square().sum(1) + (mean * (1 - mean) / (total + 1)).sum(1)
    without = (target + (1 - target) * a).masked_fill(~kept, 1.0)
    return error + regularisation * divergence_from_uniform(without, kept)


def divergence_from_uniform(a: Tensor, kept: Tensor) -> Tensor:
    """Return KL( Dir(a) || Dir(1) ) of each row over the entries that are kept, (B,).

        log Gamma(Z) - sum_j log Gamma(a_j) - log Gamma(n) + sum_j (a_j - 1) (psi(a_j) - psi(Z)),    Z = sum_j a_j

    It is computed in float64: where evidence is large, numbers of millions cancel to hundreds.

    Args:
        a: Parameters, at least 1, and 1 where not kept, (B, B).
        kept: (B, B); at least one entry of each row.
    """
    with torch.autocast(a.device.type, enabled=False):
        dtype, a = a.dtype, a.double()
        total, n = a.masked_fill(~kept, 0.0).sum(1), kept.sum(1).double()
        gammas = torch.lgamma(total) - torch.lgamma(a).sum(1) - torch.lgamma(n)
        means = ((a - 1) * (torch.digamma(a) - torch.digamma(total)[:, None])).sum(1)
        return (gammas + means).to(dtype)
