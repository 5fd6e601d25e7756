"""One step of the similarity graph reasoning of SGR, over many small graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pairsift.match.base import full
from pairsift.match.kernels import accumulate, affine, blocks, gradient_places, product


def reason(nodes: Tensor, edge: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, outputs: int) -> Tensor:
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
    result: Tensor = _Reason.apply(nodes, edge, shift, weight, bias, outputs, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return result


class _Reason(torch.autograd.Function):
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
        edges = full(nodes.new_empty(graphs, outputs, count)) if keep else None
        for block in blocks(graphs, count, nodes.device):
            x = nodes[block]
            q = affine(x[:, :outputs].reshape(-1, size), inner, m).view_as(out[block])
            e = torch.bmm(full(q), full(x).transpose(1, 2)).softmax(-1)
            mean = torch.bmm(e, full(x)).to(x.dtype)
            torch.clamp(affine(mean.view(-1, size), outer, b).view_as(out[block]), min=0, out=out[block])
            if queries is not None and mixed is not None and edges is not None:
                queries[block], mixed[block], edges[block] = q, mean, e
        ctx.save_for_backward(nodes, edge, weight, queries, edges, mixed, out)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        nodes, edge, weight, queries, edges, mixed, out = ctx.saved_tensors
        places = gradient_places(gradient)
        if places is None:
            return *_gradients(gradient, nodes, edge, weight, queries, edges, mixed, out), None, None
        selection = (tensor[places] for tensor in (gradient, nodes, queries, edges, mixed, out))
        gradient, live_nodes, queries, edges, mixed, out = selection
        of_live, *rest = _gradients(gradient, live_nodes, edge, weight, queries, edges, mixed, out)
        of_nodes = torch.zeros_like(nodes)
        of_nodes[places] = of_live
        return of_nodes, *rest, None, None


def _gradients(
    gradient: Tensor,
    nodes: Tensor,
    edge: Tensor,
    weight: Tensor,
    queries: Tensor,
    edges: Tensor,
    mixed: Tensor,
    out: Tensor,
) -> tuple[Tensor, ...]:
    """Compute the gradients of all inputs of `reason` from the gradient of its result, (g, outputs, S)."""
    graphs, outputs, size = out.shape
    inner, outer = edge.to(nodes.dtype), weight.to(nodes.dtype)
    of_nodes = torch.empty_like(nodes)
    of_edge, of_weight = torch.zeros_like(edge), torch.zeros_like(weight)
    of_shift, of_bias = torch.zeros_like(edge[0]), torch.zeros_like(edge[0])
    for block in blocks(graphs, nodes.shape[1], nodes.device):
        x, e = nodes[block], edges[block]
        g = (gradient[block] * (out[block] > 0)).view(-1, size)
        accumulate(of_weight, mixed[block].view(-1, size).T, g)
        of_bias.add_(g.sum(0))
        of_mixed = product(g, outer).view(-1, outputs, size)
        of_edges = torch.bmm(of_mixed, x.transpose(1, 2))
        of_logits = ((of_edges - (of_edges * e).sum(-1, keepdim=True)) * e).to(x.dtype)
        of_queries = torch.bmm(of_logits, x).view(-1, size)
        accumulate(of_edge, x[:, :outputs].reshape(-1, size).T, of_queries)
        of_shift.add_(of_queries.sum(0))
        torch.bmm(e.to(x.dtype).transpose(1, 2), of_mixed, out=of_nodes[block])
        of_nodes[block].baddbmm_(of_logits.transpose(1, 2), queries[block])
        of_nodes[block][:, :outputs].add_(product(of_queries, inner).view(-1, outputs, size))
    return of_nodes, of_edge, of_shift, of_weight, of_bias
