"""The similarity vectors of SGR and SAF, computed without keeping the attended vectors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pairsift.match.kernels import accumulate, affine, batched, blocks, differences, gradient_places, product

TINY = 1e-6  # lower limit of the length that a vector is divided by


def aligned(weights: Tensor, context: Tensor, words: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the similarity vectors of attended vectors with words (Diao et al., AAAI 2021, Eq. 1 and 6).

        s_ij = unit( W (c_ij - t_j)^2 + b ),    c_ij = sum_r weights_ijr v_ir

    One matrix product, accumulated onto the words, gives the difference. It is squared in place and multiplied by W
    while it is in the cache, so the dim floats of each image and word are written and read once. They are not kept: the
    backward pass computes them again from the weights, which costs R / (S + R) of the forward pass. Where many pairs
    have no gradient, the backward pass skips them.

    Args:
        weights: (n, m, L, R). They determine the length of c_ij; for unit length, divide them by it beforehand.
        context: v, (n, R, dim).
        words: t, (1, m, L, dim) if all contexts share them, or (n, m, L, dim) with separate words for each context.
        weight: W, (S, dim), in any precision. Products run in the precision of `context`.
        bias: b, (S,).

    Returns:
        (n, m, L, S), of unit length, in the precision of `context`.
    """
    result: Tensor = _Aligned.apply(weights, context, words, weight, bias)  # type: ignore[no-untyped-call]
    return result


class _Aligned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, context: Tensor, words: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        size = len(weight)
        w, b = weight.to(context.dtype), bias.to(context.dtype)
        out = context.new_empty(*weights.shape[:3], size)
        inverse = context.new_empty(*weights.shape[:3], 1)
        flat = weights.flatten(1, 2), out.flatten(1, 2), inverse.flatten(1, 2), words.flatten(1, 2)
        for block in blocks(len(context), flat[0].shape[1], context.device):
            squares = differences(flat[0][block], context[block], _words_of(flat[3], block)).square_()
            rows = affine(squares.flatten(0, 1), w, b).view_as(flat[1][block])
            lengths = flat[2][block]
            torch.linalg.vector_norm(rows, dim=-1, keepdim=True, out=lengths).clamp_(min=TINY).reciprocal_()
            torch.mul(rows, lengths, out=flat[1][block])
        ctx.save_for_backward(weights, context, words, weight, out, inverse)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        weights, context, words, weight, out, inverse = ctx.saved_tensors
        places = gradient_places(gradient.flatten(0, 1))
        if places is None:
            return _gradients(gradient, weights, context, words, weight, out, inverse)
        row, column = places // weights.shape[1], places % weights.shape[1]
        word_index = (row if len(words) > 1 else torch.zeros_like(row)), column
        pairs = [tensor[row, column].unsqueeze(1) for tensor in (gradient, weights, out, inverse)]
        of_pairs = _gradients(
            pairs[0], pairs[1], context[row], words[word_index].unsqueeze(1), weight, pairs[2], pairs[3]
        )
        of_weights, of_context, of_words = (torch.zeros_like(tensor) for tensor in (weights, context, words))
        of_weights[row, column] = of_pairs[0].squeeze(1)
        of_context.index_add_(0, row, of_pairs[1])
        of_words.index_put_(word_index, of_pairs[2].squeeze(1), accumulate=True)
        return of_weights, of_context, of_words, *of_pairs[3:]


def _gradients(
    gradient: Tensor, weights: Tensor, context: Tensor, words: Tensor, weight: Tensor, out: Tensor, inverse: Tensor
) -> tuple[Tensor, ...]:
    """Compute the gradients of all inputs of `aligned` from the gradient of its result, (n, m, L, S)."""
    w, shared = weight.to(context.dtype), len(words) == 1
    of_weights, of_context = torch.empty_like(weights), torch.empty_like(context)
    of_words, of_weight, of_bias = (torch.zeros_like(tensor) for tensor in (words, weight, weight[:, 0]))
    gradient, weights, words, out, inverse = (
        tensor.flatten(1, 2) for tensor in (gradient, weights, words, out, inverse)
    )
    flat_weights, flat_words = of_weights.flatten(1, 2), of_words.flatten(1, 2)
    for block in blocks(len(context), weights.shape[1], context.device):
        g, unit = gradient[block], out[block]
        projection = (g * unit).sum(-1, keepdim=True)
        g = torch.addcmul(g, unit, projection, value=-1).mul_(inverse[block]).flatten(0, 1)
        difference = differences(weights[block], context[block], _words_of(words, block))
        of_difference = product(g, w.T).view_as(difference).mul_(difference)
        accumulate(of_weight, g.T, difference.square_().flatten(0, 1))
        of_bias.add_(g.sum(0))
        batched(of_difference, context[block].transpose(1, 2), flat_weights[block])
        batched(weights[block].transpose(1, 2), of_difference, of_context[block])
        _words_of(flat_words, block).sub_(of_difference.sum(0, keepdim=True) if shared else of_difference)
    return of_weights.mul_(2), of_context.mul_(2), of_words.mul_(2), of_weight, of_bias


def _words_of(words: Tensor, block: slice) -> Tensor:
    return words if len(words) == 1 else words[block]
