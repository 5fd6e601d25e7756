"""Scores of pairs that cost much: training keeps little of them, and goes back only through pairs with a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pairsift.match.base import Codes

Products = list[Tensor]
Score = Callable[[Codes, Codes, Tensor, Tensor, Products | None], tuple[Tensor, Products]]
SPARSE = 0.3  # share of a block's pairs with a gradient, above which the block goes back as a whole


class Allowance:
    """Memory that a similarity may still keep for its backward pass.

    Args:
        gigabytes: At the start, at least 0.
    """

    def __init__(self, gigabytes: float) -> None:
        self.left = int(gigabytes * 2**30)

    def take(self, tensors: list[Tensor]) -> list[Tensor] | None:
        """The tensors where there is room for them, else None."""
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if not tensors or size > self.left:
            return None
        self.left -= size
        return tensors


def spare(score: Score, contexts: Codes, queries: Codes, weight: Tensor, bias: Tensor, allowance: Allowance) -> Tensor:
    """score(contexts, queries, weight, bias), whose backward pass computes it again.

    Autograd would keep every step of the score. Here a block keeps the large products alone, as long as the allowance
    lasts; from them, or from nothing, its backward pass computes the rest again. It does so for the pairs whose score
    has a gradient: a loss of hardest negatives leaves three pairs for each image, and a step then costs little more
    than its forward pass. Gradients are the same either way; second derivatives there are none.

    Args:
        score: Takes n contexts with tokens (n, C, ...), m queries with tokens (1, m, Q, ...) or (n, 1, Q, ...), the
            weights, and products from an earlier call or None; returns (n, m) and its products, (n, m, ...) each.
        contexts: The contexts.
        queries: The queries.
        weight: A weight of the score.
        bias: Another.
        allowance: What may be kept.

    Returns:
        (n, m).
    """
    tensors = contexts.tokens, contexts.mask, queries.tokens, weight, bias
    result: Tensor = _Spare.apply(score, allowance, *tensors)  # type: ignore[no-untyped-call]
    return result


class _Spare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, score: Score, allowance: Allowance, *tensors: Tensor) -> Tensor:
        contexts, mask, queries, weight, bias = tensors
        with torch.autocast(contexts.device.type, enabled=False):
            scores, products = score(Codes(contexts, contexts, mask), Codes(queries, queries), weight, bias, None)
        ctx.score, ctx.products = score, allowance.take(products)
        ctx.save_for_backward(*tensors)
        return scores

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        contexts, mask, queries, weight, bias = ctx.saved_tensors
        products, ctx.products = ctx.products, None
        nothing = (None,) * 7
        rows, columns = gradient.nonzero(as_tuple=True)
        if len(rows) == 0:
            return nothing
        with torch.enable_grad(), torch.autocast(contexts.device.type, enabled=False):
            leaves = [x.detach().requires_grad_() for x in (contexts, queries, weight, bias)]
            contexts, queries, weight, bias = leaves
            if len(rows) < SPARSE * gradient.numel():
                gradient = gradient[rows, columns, None]
                contexts, mask = contexts[rows], None if mask is None else mask[rows]
                queries = queries[rows if len(queries) > 1 else 0, columns].unsqueeze(1)
                if products is not None:
                    products = [product[rows, columns].unsqueeze(1) for product in products]
            codes = Codes(contexts, contexts, mask), Codes(queries, queries)
            scores, _ = ctx.score(*codes, weight, bias, products)
        of_contexts, of_queries, *of_weights = torch.autograd.grad(scores, leaves, gradient, allow_unused=True)
        return None, None, of_contexts, None, of_queries, *of_weights


def linear(x: Tensor, weight: Tensor, bias: Tensor, known: Tensor | None) -> Tensor:
    """x W^T + b, (..., in) to (..., out); where the value is known from before, only its gradient is computed."""
    if known is None:
        return torch.nn.functional.linear(x, weight, bias)
    result: Tensor = _Known.apply(x, weight, bias, known)  # type: ignore[no-untyped-call]
    return result


class _Known(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, known: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return known.view_as(known)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        flat = gradient.flatten(0, -2)
        return gradient @ weight, flat.T @ x.flatten(0, -2), flat.sum(0), None
