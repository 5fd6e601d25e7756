"""Attention between two sets of tokens, computed without forming the attended vectors.

In stacked cross attention (Lee et al., ECCV 2018), and in the matchers that build on it (IMRAM, SGR, SAF), every token
of a query attends to the tokens of a context. Each of the n contexts has C tokens v_c, and each of the m queries has Q
tokens t_q. All tensors over the pairs of tokens have the shape (n, C, m, Q):

    a_cq     = v_c . t_q                                             `affinity`
    alpha_cq = softmax_c( lambda * unit_q( LeakyReLU_0.1(a_cq) ) )   `focus`
    x_q      = sum_c alpha_cq v_c                                    the attended vector, dim floats for each (n, m, Q)

x_q is used only in inner products, and these need only C floats:

    t_q . x_q = sum_c alpha_cq a_cq,    |x_q|^2 = alpha_q^T G alpha_q    with  G = V V^T,  (C, C) once per context.

`attended_norm` is the square root of the second expression, and `cosine` is the quotient of the two. `Products` holds a
and the G of both sides, and swaps the two roles without another product. With images as contexts and texts as queries,
an affinity has the shape (n, R, m, L). The product of the tokens runs in their precision or in the precision of
autocast. Everything else runs in float32 at least.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pairsift.match.base import full, unit
from pairsift.match.kernels import linear

EPS = 1e-12  # as in `unit`


def affinity(contexts: Tensor, queries: Tensor) -> Tensor:
    """Return the inner products of every context token with every query token.

    Args:
        contexts: (n, C, dim).
        queries: (1, m, Q, dim) if all contexts share them (one large product), or (n, m, Q, dim) with separate queries
            for each context.

    Returns:
        (n, C, m, Q), float32 at least.
    """
    flat = queries.flatten(1, 2)
    products = linear(contexts, flat[0]) if len(flat) == 1 else contexts @ flat.transpose(1, 2)
    return full(products).view(*contexts.shape[:2], *queries.shape[1:3])


def focus(affinity: Tensor, sharpness: float, mask: Tensor | None = None) -> Tensor:
    """Return the attention weights of each query token over the tokens of the context.

    This follows the published code of SCAN: a leaky ReLU replaces the clamp at 0 of the paper, and the row of each
    context token is scaled to unit length over the tokens of the query. A row of zeros stays zero.

    Args:
        affinity: (n, C, m, Q). It must be 0 at the padded tokens of a query, so that they do not add to the length.
        sharpness: lambda, the inverse temperature of the softmax over the context.
        mask: True at the real tokens of the contexts, at least one per context, (n, C).

    Returns:
        (n, C, m, Q). Each (n, :, m, Q) sums to 1 and is 0 at the padded tokens of the context.
    """
    logits = unit(functional.leaky_relu(full(affinity), 0.1)) * sharpness
    if mask is not None:
        logits = logits.masked_fill(~mask[:, :, None, None], -torch.inf)
    return logits.softmax(1)


def gram(contexts: Tensor) -> Tensor:
    """Return the Gram matrix of the tokens of each context, (n, C, dim) to (n, C, C), float32 at least."""
    with torch.autocast(contexts.device.type, enabled=False):
        contexts = full(contexts)
        return contexts @ contexts.transpose(-1, -2)


def attended_norm(weights: Tensor, gram: Tensor) -> Tensor:
    """Return the length of the attended vectors.

    Args:
        weights: alpha, (n, C, m, Q).
        gram: G of the contexts, (n, C, C).

    Returns:
        (n, m, Q), at least 1e-6. The limit keeps the gradient of a quotient finite where a context is all zero.
    """
    with torch.autocast(weights.device.type, enabled=False):
        spread = (gram @ weights.flatten(2)).view(weights.shape)
    return ((weights * spread).sum(1).clamp(min=0) + EPS).sqrt()


def cosine(affinity: Tensor, weights: Tensor, gram: Tensor, length: Tensor) -> Tensor:
    """Return the cosine of each query token with its attended vector.

    Args:
        affinity: a, (n, C, m, Q).
        weights: alpha, (n, C, m, Q).
        gram: G of the contexts, (n, C, C).
        length: Lengths of the query tokens, above 0, (1 or n, m, Q).

    Returns:
        (n, m, Q), in [-1, 1]; 0 where either vector is zero.
    """
    return (weights * affinity).sum(1) / (attended_norm(weights, gram) * length)


@dataclass(frozen=True)
class Products:
    """The inner products of the tokens of n contexts and m queries. Attention and its cosines need nothing else.

    Attributes:
        affinity: Inner products of context tokens with query tokens, (n, C, m, Q); 0 at padding.
        contexts: Gram matrices of the contexts, (n, C, C).
        queries: Gram matrices of the queries, (1, m, Q, Q), or (n, 1, Q, Q) where each context has a separate query.
        context_mask: True at the real tokens of the contexts, at least one per context, (n, C); None where all are
            real.
        query_mask: True at the real tokens of the queries, at least one per query, (1 or n, m, Q); None where all are
            real.
    """

    affinity: Tensor
    contexts: Tensor
    queries: Tensor
    context_mask: Tensor | None = None
    query_mask: Tensor | None = None

    def turned(self) -> Products:
        """Swap contexts and queries, (m or n, Q, n or 1, C); the tensors of the result are views."""
        axis, axes = (0, (2, 3, 0, 1)) if len(self.queries) == 1 else (1, (0, 3, 2, 1))
        context_mask = None if self.query_mask is None else self.query_mask.squeeze(axis)
        query_mask = None if self.context_mask is None else self.context_mask.unsqueeze(axis)
        grams = self.queries.squeeze(axis), self.contexts.unsqueeze(axis)
        return Products(self.affinity.permute(axes), *grams, context_mask, query_mask)

    def relevance(self, sharpness: float) -> Tensor:
        """Return the cosine of each query token with its attended vector, (n, m, Q), in [-1, 1]; 0 if either is 0."""
        weights = focus(self.affinity, sharpness, self.context_mask)
        length = (self.queries.diagonal(dim1=-2, dim2=-1) + EPS).sqrt()
        return cosine(self.affinity, weights, self.contexts, length)


def cast(x: Tensor) -> Tensor:
    """Return x in the precision of autocast where autocast is on, else in float32 at least."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else full(x)
