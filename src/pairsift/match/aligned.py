"""The similarity vectors of SGR and SAF, without keeping a single attended vector."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

ROWS = 2048  # of a block on a CPU, so that it stays in the cache
ROWS_GPU = 2**17
TINY = 1e-6  # length below which a vector is not scaled up further


def aligned(weights: Tensor, context: Tensor, words: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Similarity vectors of attended vectors with words (Diao et al., AAAI 2021, Eq. 1 and 6).

        s_ij = unit( W (c_ij - t_j)^2 + b ),    c_ij = sum_r weights_ijr v_ir

    The difference is one product with the words as its start, squared in place and multiplied by W while it lies in the
    cache: dim floats for each image and word are written and read once. The backward pass makes them again from the
    weights, which costs R / (S + R) of the forward pass, instead of keeping them.

    Args:
        weights: (n, q, R); the length of c_ij is theirs, so whoever wants it 1 divides by it beforehand.
        context: v, (n, R, dim).
        words: t, (1, q, dim), the same for all contexts, or (n, q, dim), each context's own.
        weight: W, (S, dim), in any precision; products run in that of `context`.
        bias: b, (S,).

    Returns:
        (n, q, S), unit length, in the precision of `context`.
    """
    result: Tensor = _Aligned.apply(weights, context, words, weight, bias)  # type: ignore[no-untyped-call]
    return result


class _Aligned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, context: Tensor, words: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        size = len(weight)
        w, b = weight.to(context.dtype), bias.to(context.dtype)
        out = context.new_empty(*weights.shape[:2], size)
        inverse = context.new_empty(*weights.shape[:2], 1)
        for at in blocks(len(weights), weights.shape[1], context.device):
            squares = _difference(weights[at], context[at], _of(words, at)).square_()
            rows, lengths = out[at], inverse[at]
            torch.addmm(b, squares.flatten(0, 1), w.T, out=rows.view(-1, size))
            torch.linalg.vector_norm(rows, dim=-1, keepdim=True, out=lengths).clamp_(min=TINY).reciprocal_()
            rows.mul_(lengths)
        ctx.save_for_backward(weights, context, words, weight, out, inverse)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        weights, context, words, weight, out, inverse = ctx.saved_tensors
        w, shared = weight.to(context.dtype), len(words) == 1
        of_weights, of_context = torch.empty_like(weights), torch.empty_like(context)
        of_words, of_weight, of_bias = (torch.zeros_like(one) for one in (words, weight, weight[:, 0]))
        for at in blocks(len(weights), weights.shape[1], context.device):
            g, unit = gradient[at], out[at]
            along = (g * unit).sum(-1, keepdim=True)
            g = torch.addcmul(g, unit, along, value=-1).mul_(inverse[at]).flatten(0, 1)
            difference = _difference(weights[at], context[at], _of(words, at))
            inward = torch.mm(g, w).view_as(difference).mul_(difference)
            accumulate(of_weight, g.T, difference.square_().flatten(0, 1))
            of_bias.add_(g.sum(0))
            torch.bmm(inward, context[at].transpose(1, 2), out=of_weights[at])
            torch.bmm(weights[at].transpose(1, 2), inward, out=of_context[at])
            _of(of_words, at).sub_(inward.sum(0, keepdim=True) if shared else inward)
        return of_weights.mul_(2), of_context.mul_(2), of_words.mul_(2), of_weight, of_bias


def _difference(weights: Tensor, context: Tensor, words: Tensor) -> Tensor:
    """c - t, (n, q, dim)."""
    return torch.baddbmm(words.expand(len(weights), -1, -1), weights, context, beta=-1)


def _of(words: Tensor, at: slice) -> Tensor:
    return words if len(words) == 1 else words[at]


def accumulate(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left right, where a sum of lower precision than the total's is added in the total's."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total.add_(left @ right)


def blocks(count: int, width: int, device: torch.device) -> Iterator[slice]:
    """Cut `count` items of `width` rows each into blocks that suit the device."""
    tall = max(1, (ROWS if device.type == "cpu" else ROWS_GPU) // max(1, width))
    for start in range(0, count, tall):
        yield slice(start, min(count, start + tall))
