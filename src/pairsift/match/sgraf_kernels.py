"""The similarity vectors and the reasoning of SGR and SAF, with forward and backward passes written by hand.

Blocks of a size chosen for the processor stay in its cache, little is kept for the backward pass, and the backward pass
skips pairs without a gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pairsift.match.base import at_least_float32
from pairsift.match.kernels import affine, has_onednn, product

BLOCK_ROWS = 2048  # rows of a block on a CPU; the block then stays in the cache
BLOCK_ROWS_GPU = 2**17
ONE_BY_ONE = 64  # rows; from this height on, one product for each matrix is faster than one for the batch
SPARSE = 0.3  # below this share of pairs with a gradient, a backward pass skips the other pairs
TINY = 1e-6  # lower limit of the length that a vector is divided by


def similarity_vectors(weights: Tensor, context: Tensor, words: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
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
    result: Tensor = _SimilarityVectors.apply(weights, context, words, weight, bias)  # type: ignore[no-untyped-call]
    return result


class _SimilarityVectors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, context: Tensor, words: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        size = len(weight)
        w, b = weight.to(context.dtype), bias.to(context.dtype)
        out = context.new_empty(*weights.shape[:3], size)
        inverse = context.new_empty(*weights.shape[:3], 1)
        flat = weights.flatten(1, 2), out.flatten(1, 2), inverse.flatten(1, 2), words.flatten(1, 2)
        for block in _row_blocks(len(context), flat[0].shape[1], context.device):
            squares = _attended_differences(flat[0][block], context[block], _words_of(flat[3], block)).square_()
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
        places = _places_with_gradient(gradient.flatten(0, 1))
        if places is None:
            return _vector_gradients(gradient, weights, context, words, weight, out, inverse)
        # Gather the pairs that have a gradient, each as a batch of one text.
        row, column = places // weights.shape[1], places % weights.shape[1]
        word_index = (row if len(words) > 1 else torch.zeros_like(row)), column
        pairs = [tensor[row, column].unsqueeze(1) for tensor in (gradient, weights, out, inverse)]
        of_pairs = _vector_gradients(
            pairs[0], pairs[1], context[row], words[word_index].unsqueeze(1), weight, pairs[2], pairs[3]
        )
        # Scatter the results back; the other pairs have gradients of 0.
        of_weights, of_context, of_words = (torch.zeros_like(tensor) for tensor in (weights, context, words))
        of_weights[row, column] = of_pairs[0].squeeze(1)
        of_context.index_add_(0, row, of_pairs[1])
        of_words.index_put_(word_index, of_pairs[2].squeeze(1), accumulate=True)
        return of_weights, of_context, of_words, *of_pairs[3:]


def _vector_gradients(
    gradient: Tensor, weights: Tensor, context: Tensor, words: Tensor, weight: Tensor, out: Tensor, inverse: Tensor
) -> tuple[Tensor, ...]:
    """Compute the gradients of all inputs of `similarity_vectors` from the gradient of its result, (n, m, L, S)."""
    w, shared = weight.to(context.dtype), len(words) == 1
    of_weights, of_context = torch.empty_like(weights), torch.empty_like(context)
    of_words, of_weight, of_bias = (torch.zeros_like(tensor) for tensor in (words, weight, weight[:, 0]))
    gradient, weights, words, out, inverse = (
        tensor.flatten(1, 2) for tensor in (gradient, weights, words, out, inverse)
    )
    flat_weights, flat_words = of_weights.flatten(1, 2), of_words.flatten(1, 2)
    for block in _row_blocks(len(context), weights.shape[1], context.device):
        g, unit = gradient[block], out[block]
        # Through the scaling to unit length.
        projection = (g * unit).sum(-1, keepdim=True)
        g = torch.addcmul(g, unit, projection, value=-1).mul_(inverse[block]).flatten(0, 1)
        # Through W and the square. The factor 2 of the square follows at the end.
        difference = _attended_differences(weights[block], context[block], _words_of(words, block))
        of_difference = product(g, w.T).view_as(difference).mul_(difference)
        _add_product(of_weight, g.T, difference.square_().flatten(0, 1))
        of_bias.add_(g.sum(0))
        # Through the attended vectors less the words.
        _batched_product(of_difference, context[block].transpose(1, 2), flat_weights[block])
        _batched_product(weights[block].transpose(1, 2), of_difference, of_context[block])
        _words_of(flat_words, block).sub_(of_difference.sum(0, keepdim=True) if shared else of_difference)
    return of_weights.mul_(2), of_context.mul_(2), of_words.mul_(2), of_weight, of_bias


def _words_of(words: Tensor, block: slice) -> Tensor:
    return words if len(words) == 1 else words[block]


def reasoning_step(nodes: Tensor, edge: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, outputs: int) -> Tensor:
    """Apply a graph convolution with edges computed from the nodes (Diao et al., AAAI 2021, Eq. 7 and 8).

        E = softmax( (X W_q + b_q)(X W_k + b_k)^T ),    X' = ReLU( E X W + b )

    The softmax does not depend on terms that are constant along a row. X W_q W_k^T X^T + X W_q b_k + ... therefore
    needs a single product:

        E = softmax( (X M + m) X^T ),    M = W_q W_k^T,  m = b_q W_k^T.

    Only the first `outputs` nodes are computed. Blocks stay in the cache. For the backward pass only results that cost
    a product are kept: X M + m, E, E X and X'.

    Args:
        nodes: X, (g, N, S), with one graph of N nodes for each pair of an image and a text.
        edge: M, (S, S), in any precision. Products run in the precision of `nodes`.
        shift: m, (S,).
        weight: W, (S, S).
        bias: b, (S,).
        outputs: Number of nodes to compute, from the first one.

    Returns:
        X', (g, outputs, S).
    """
    result: Tensor = _ReasoningStep.apply(nodes, edge, shift, weight, bias, outputs, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return result


class _ReasoningStep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, nodes: Tensor, edge: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, outputs: int, keep: bool
    ) -> Tensor:
        graphs, count, size = nodes.shape
        inner, m, outer, b = (
            tensor.to(nodes.dtype) for tensor in (edge.T.contiguous(), shift, weight.T.contiguous(), bias)
        )
        out = nodes.new_empty(graphs, outputs, size)
        queries, mixed = (torch.empty_like(out) if keep else None for _ in range(2))
        edges = at_least_float32(nodes.new_empty(graphs, outputs, count)) if keep else None
        for block in _row_blocks(graphs, count, nodes.device):
            x = nodes[block]
            q = affine(x[:, :outputs].reshape(-1, size), inner, m).view_as(out[block])
            e = torch.bmm(at_least_float32(q), at_least_float32(x).transpose(1, 2)).softmax(-1)
            mean = torch.bmm(e, at_least_float32(x)).to(x.dtype)
            torch.clamp(affine(mean.view(-1, size), outer, b).view_as(out[block]), min=0, out=out[block])
            if queries is not None and mixed is not None and edges is not None:
                queries[block], mixed[block], edges[block] = q, mean, e
        ctx.save_for_backward(nodes, edge, weight, queries, edges, mixed, out)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        nodes, edge, weight, queries, edges, mixed, out = ctx.saved_tensors
        places = _places_with_gradient(gradient)
        if places is None:
            return *_reasoning_gradients(gradient, nodes, edge, weight, queries, edges, mixed, out), None, None
        selection = (tensor[places] for tensor in (gradient, nodes, queries, edges, mixed, out))
        gradient, live_nodes, queries, edges, mixed, out = selection
        of_live, *rest = _reasoning_gradients(gradient, live_nodes, edge, weight, queries, edges, mixed, out)
        of_nodes = torch.zeros_like(nodes)
        of_nodes[places] = of_live
        return of_nodes, *rest, None, None


def _reasoning_gradients(
    gradient: Tensor,
    nodes: Tensor,
    edge: Tensor,
    weight: Tensor,
    queries: Tensor,
    edges: Tensor,
    mixed: Tensor,
    out: Tensor,
) -> tuple[Tensor, ...]:
    """Compute the gradients of all inputs of `reasoning_step` from the gradient of its result, (g, outputs, S)."""
    graphs, outputs, size = out.shape
    inner, outer = edge.to(nodes.dtype), weight.to(nodes.dtype)
    of_nodes = torch.empty_like(nodes)
    of_edge, of_weight = torch.zeros_like(edge), torch.zeros_like(weight)
    of_shift, of_bias = torch.zeros_like(edge[0]), torch.zeros_like(edge[0])
    for block in _row_blocks(graphs, nodes.shape[1], nodes.device):
        x, e = nodes[block], edges[block]
        # Through the ReLU and the outer map.
        g = (gradient[block] * (out[block] > 0)).view(-1, size)
        _add_product(of_weight, mixed[block].view(-1, size).T, g)
        of_bias.add_(g.sum(0))
        of_mixed = product(g, outer).view(-1, outputs, size)
        # Through the softmax of the edges.
        of_edges = torch.bmm(of_mixed, x.transpose(1, 2))
        of_logits = ((of_edges - (of_edges * e).sum(-1, keepdim=True)) * e).to(x.dtype)
        of_queries = torch.bmm(of_logits, x).view(-1, size)
        _add_product(of_edge, x[:, :outputs].reshape(-1, size).T, of_queries)
        of_shift.add_(of_queries.sum(0))
        # The nodes are mixed, compared as keys and compared as queries.
        torch.bmm(e.to(x.dtype).transpose(1, 2), of_mixed, out=of_nodes[block])
        of_nodes[block].baddbmm_(of_logits.transpose(1, 2), queries[block])
        of_nodes[block][:, :outputs].add_(product(of_queries, inner).view(-1, outputs, size))
    return of_nodes, of_edge, of_shift, of_weight, of_bias


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add the product left right to `total` in place; the sum has the precision of `total`."""
    by_onednn = left.device.type == "cpu" and left.dtype == torch.float32 and has_onednn(left.dtype)
    if total.dtype == left.dtype and not by_onednn:
        total.addmm_(left, right)
    else:
        total.add_(product(left, right.T))


def _attended_differences(weights: Tensor, context: Tensor, words: Tensor) -> Tensor:
    """Return attended vectors less words, c - t, (n, q, dim), outside autograd.

    Args:
        weights: (n, q, R).
        context: (n, R, dim).
        words: t, (1, q, dim) if all contexts share them, or (n, q, dim).
    """
    if _one_by_one(weights):
        out = context.new_empty(*weights.shape[:2], context.shape[2])
        for number in range(len(weights)):
            torch.sub(product(weights[number], context[number].T), words[number % len(words)], out=out[number])
        return out
    return torch.baddbmm(words.expand(len(weights), -1, -1), weights, context, beta=-1)


def _batched_product(left: Tensor, right: Tensor, out: Tensor) -> None:
    """Write the products left right, (n, a, b) and (n, b, c), into `out`, (n, a, c), outside autograd."""
    if _one_by_one(left) and min(left.shape[1:]) > 1:
        for number in range(len(left)):
            out[number] = product(left[number], right[number].T)
    else:
        torch.bmm(left, right, out=out)


def _one_by_one(left: Tensor) -> bool:
    """Return whether oneDNN multiplies each matrix (a, b) by itself faster than MKL all of them."""
    wide = max(left.shape[1:]) >= ONE_BY_ONE
    return left.device.type == "cpu" and left.dtype == torch.float32 and wide and has_onednn(left.dtype)


def _row_blocks(count: int, width: int, device: torch.device) -> Iterator[slice]:
    """Yield slices that cut `count` items of `width` rows each into blocks of a size chosen for the device."""
    height = max(1, (BLOCK_ROWS if device.type == "cpu" else BLOCK_ROWS_GPU) // max(1, width))
    for start in range(0, count, height):
        yield slice(start, min(count, start + height))


def _places_with_gradient(gradient: Tensor) -> Tensor | None:
    """Return the places of the items with a gradient, or None if all items should be processed.

    The result is None where the share of items with a gradient is at least `SPARSE`. It is also None on a GPU, where
    reading the places would force the host to wait. With a hinge on hardest negatives, at most three pairs per row have
    a gradient on average.

    Args:
        gradient: (n, ...).

    Returns:
        The places, (number of items with a gradient,), or None.
    """
    if gradient.device.type != "cpu":
        return None
    places = gradient.flatten(1).any(1).nonzero()[:, 0]
    return places if len(places) < SPARSE * len(gradient) else None
