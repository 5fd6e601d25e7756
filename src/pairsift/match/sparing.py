"""Scores with a cheap training step: little is kept, and the backward pass can skip pairs without a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pairsift.match.base import Codes

Saved = list[Tensor]
Score = Callable[[Codes, Codes, Tensor, Tensor, Saved | None], tuple[Tensor, Saved]]
SPARSE = 0.3  # below this share of pairs with a gradient, the backward pass of a block skips the other pairs


class Allowance:
    """The memory that a similarity may still use to keep tensors for its backward pass.

    Args:
        gigabytes: Memory at the start, at least 0.
    """

    def __init__(self, gigabytes: float) -> None:
        self.remaining = int(gigabytes * 2**30)

    def take(self, tensors: list[Tensor]) -> list[Tensor] | None:
        """Return the tensors if they fit into the remaining memory, and subtract their size; else return None."""
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if not tensors or size > self.remaining:
            return None
        self.remaining -= size
        return tensors


def spare(score: Score, contexts: Codes, queries: Codes, weight: Tensor, bias: Tensor, allowance: Allowance) -> Tensor:
    """Compute score(contexts, queries, weight, bias) with a backward pass that computes the score again.

    Autograd would keep the result of every step of the score. Here a block keeps only the large products, as long as
    they fit into the allowance. Its backward pass computes the rest again, or everything if no products were kept. If
    the share of pairs whose score has a gradient is below `SPARSE`, it does so only for these pairs. With a loss on
    hardest negatives these are at most three pairs per image on average, and a training step costs little more than its
    forward pass. The gradients are the same as those of autograd. Second derivatives are not supported.

    Args:
        score: Function of n contexts with tokens (n, C, ...), of m queries with tokens (1, m, Q, ...) or
            (n, 1, Q, ...), of weight and bias, and of the products of an earlier call or None. It returns the scores
            (n, m) and its products, (n, m, ...) each.
        contexts: Codes of the contexts.
        queries: Codes of the queries.
        weight: Weight that is passed to the score.
        bias: Bias that is passed to the score.
        allowance: Memory for the kept products.

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
        no_gradients = (None,) * 7
        rows, columns = gradient.nonzero(as_tuple=True)
        if len(rows) == 0:
            return no_gradients
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


def linear(x: Tensor, weight: Tensor, bias: Tensor, value: Tensor | None) -> Tensor:
    """Return x W^T + b, (..., in) to (..., out); with `value`, an earlier result, compute only its gradient."""
    if value is None:
        return torch.nn.functional.linear(x, weight, bias)
    result: Tensor = _LinearWithValue.apply(x, weight, bias, value)  # type: ignore[no-untyped-call]
    return result


class _LinearWithValue(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, value: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        flat = gradient.flatten(0, -2)
        return gradient @ weight, flat.T @ x.flatten(0, -2), flat.sum(0), None
