"""Iterative cross attention with queries that are updated in each round: IMRAM."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from pairsift.match.base import Codes, at_least_float32
from pairsift.match.cross_attention import (
    EPS,
    Compare,
    affinities,
    attention_weights,
    compare_all,
    compare_pairs,
    cosine,
    gram,
    groups_by_length,
    restored_order,
    right_padded,
)
from pairsift.match.layers import Linear
from pairsift.match.token_encoders import GruSizes, RegionsAndWords, Words
from pairsift.options import Options

BLOCK_CELLS = {"cpu": 2048}  # pairs of a context and a query token per block; on a CPU its gates should fit the cache
BLOCK_CELLS_GPU = 32768
SPARSE = 0.3  # below this share of pairs with a gradient, the backward pass of a block skips the other pairs

Products = list[Tensor]
Score = Callable[[Codes, Codes, Tensor, Tensor, Products | None], tuple[Tensor, Products]]


class ImramOptions(GruSizes):
    """The options of `Imram`."""

    direction: Literal["text", "image", "full"] = Field(
        default="full", description="Words query the regions (text), regions query the words (image), or both (full)."
    )
    steps: int = Field(default=3, ge=1, description="Rounds K.")
    sharpness: float = Field(
        default=9.0, description="lambda of the attention; the paper takes 9 on Flickr30K and 11 on COCO."
    )
    memory: float = Field(
        default=8.0,
        ge=0,
        description="Gigabytes that a training step may keep so as not to compute W_q q_k twice; full at a batch of "
        "128 captions of 12 words fills 6.5.",
    )


class Imram(RegionsAndWords):
    """The IMRAM matcher (Chen et al., Iterative Matching with Recurrent Attention Memory, CVPR 2020).

    In the `text` direction the words query the regions. In the `image` direction the regions query the words. `full`
    adds both. A query token q_1 attends to its context in K rounds, and each round updates it by the attended vector:

        x_k     = sum_c alpha_c v_c,   alpha as in SCAN with the query q_k (`attention_weights`)
        s_k     = mean over the tokens of cos(q_1, x_k)
        q_(k+1) = g q_k + (1 - g) tanh(W_m [q_k; x_k] + b_m),   g = sigmoid(W_g [q_k; x_k] + b_g)

    The similarity is sum_k s_k, in [-K, K], or in [-2K, 2K] for `full`. Queries are not normalised again, as in the
    published scripts; the default of the published code normalises them in every round.

    The published loop is slow, because it needs one matrix product for each image, caption, token and round. This
    implementation splits W [q; x] = W_q q + W_x x, with W for both gates. The second part is linear in the attention,
    W_x x = sum_c alpha_c (W_x v_c), so W_x v_c is computed once per token, and so is W_q q_1. The update after the last
    round is not used and therefore left out. For K = 3 one product of three remains, W_q q_2; for K = 2 none remains.
    The result is exact.

    Args:
        image_dim: Length of a region's feature vector.
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        options: See `ImramOptions`.
    """

    name: ClassVar[str] = "imram"
    options: ClassVar[type[Options]] = ImramOptions

    def __init__(self, image_dim: int, vocabulary_size: int, options: ImramOptions = ImramOptions()) -> None:
        super().__init__()
        self.dim, self.steps = options.dim, options.steps
        self.sharpness, self.memory = options.sharpness, options.memory
        self.regions = Linear(image_dim, self.dim)
        self.words = Words.make(vocabulary_size, options)
        sides = [side for side in ("text", "image") if options.direction in (side, "full")]
        self.largest = float(self.steps * len(sides))
        self.gates = nn.ModuleDict(
            {side: nn.Linear(2 * self.dim, 2 * self.dim) for side in sides}
        )  # rows: W_g, then W_m; columns: for q, then for x

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the similarity of every image with every text, (n_images, n_texts)."""
        images, parts, budget = right_padded(images), [], MemoryBudget(self.memory)
        if "text" in self.gates:
            compare, contexts, queries = self._prepare("text", images, texts, budget)
            parts.append(compare_all(compare, contexts, queries, self._cells(images)))
        if "image" in self.gates:
            compare, contexts, queries = self._prepare("image", texts, images, budget)
            groups = list(groups_by_length(contexts))
            rows = [compare_all(compare, group, queries, self._cells(images)) for _, group in groups]
            parts.append(restored_order(rows, torch.cat([place for place, _ in groups]), 0).T)
        return torch.stack(parts).sum(0)

    def pair_similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the similarity of every image with the text at the same position, (n,)."""
        images, parts, budget = right_padded(images), [], MemoryBudget(self.memory)
        for name, (contexts, queries) in {"text": (images, texts), "image": (texts, images)}.items():
            if name in self.gates:
                parts.append(compare_pairs(*self._prepare(name, contexts, queries, budget), self._cells(images)))
        return torch.stack(parts).sum(0)

    @staticmethod
    def _cells(codes: Codes) -> int:
        return BLOCK_CELLS.get(codes.vectors.device.type, BLOCK_CELLS_GPU)

    def _prepare(
        self, name: str, contexts: Codes, queries: Codes, budget: MemoryBudget
    ) -> tuple[Compare, Codes, Codes]:
        """Return the comparison in this direction, and the codes with the products of each token appended to it."""
        assert contexts.tokens is not None and queries.tokens is not None
        linear, device = self.gates[name], contexts.tokens.device.type
        assert isinstance(linear, nn.Linear)
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else contexts.tokens.dtype
        with torch.autocast(device, enabled=False):
            weight, bias = linear.weight.to(dtype), linear.bias.to(dtype)
            of_query, of_context = weight.chunk(2, 1)
            context_tokens, query_tokens = contexts.tokens.to(dtype), queries.tokens.to(dtype)
            context_tokens = torch.cat([context_tokens, context_tokens @ of_context.T], -1)
            query_tokens = torch.cat([query_tokens, nn.functional.linear(query_tokens, of_query, bias)], -1)
        score = partial(iterate, steps=self.steps, sharpness=self.sharpness)

        def compare(context_block: Codes, query_block: Codes) -> Tensor:
            return checkpointed(score, context_block, query_block, of_query, bias, budget)

        return (
            compare,
            Codes(contexts.vectors, context_tokens, contexts.mask),
            Codes(queries.vectors, query_tokens, queries.mask),
        )


def iterate(
    contexts: Codes,
    queries: Codes,
    weight: Tensor,
    bias: Tensor,
    cache: list[Tensor] | None,
    *,
    steps: int,
    sharpness: float,
) -> tuple[Tensor, list[Tensor]]:
    """Run the rounds of IMRAM in one direction.

    Args:
        contexts: Tokens v_c followed by W_x v_c, (n, C, 3 dim), and their mask.
        queries: Tokens q_1 followed by W_q q_1 + b, (1, m, Q, 3 dim) or (n, 1, Q, 3 dim).
        weight: W_q of both gates, (2 dim, dim).
        bias: b of both gates, (2 dim,).
        cache: W_q q_k + b of the rounds 2 to K - 1 from an earlier call, or None.
        steps: Number of rounds K.
        sharpness: lambda of the attention.

    Returns:
        Scores (n, m), and W_q q_k + b of the rounds 2 to K - 1, (n, m, Q, 2 dim) each.
    """
    assert contexts.tokens is not None and queries.tokens is not None
    dim = weight.shape[1]
    tokens, mixed = torch.split(contexts.tokens, [dim, 2 * dim], -1)
    query, gates = torch.split(queries.tokens, [dim, 2 * dim], -1)
    grams, length = gram(tokens), (at_least_float32(query).square().sum(-1) + EPS).sqrt()
    first_affinity = affinity = affinities(tokens, query)
    total, products = torch.zeros((), device=tokens.device), []
    for step in range(steps):
        alpha = attention_weights(affinity, sharpness, contexts.mask)
        total = total + cosine(first_affinity, alpha, grams, length).mean(-1)
        if step == steps - 1:
            break
        if step > 0:
            gates = linear_with_value(query, weight, bias, cache[step - 1] if cache else None)
            products.append(gates)
        query = remember(_add(gates, alpha, mixed), query)
        affinity = affinities(tokens, query)
    return total, products


def _add(gates: Tensor, alpha: Tensor, mixed: Tensor) -> Tensor:
    """Return gates_q + sum_c alpha_cq mixed_c, (1 or n, m, Q, w), (n, C, m, Q) and (n, C, w) to (n, m, Q, w)."""
    weights = alpha.flatten(2).transpose(1, 2).to(mixed.dtype)
    flat = gates.flatten(1, 2).expand(len(mixed), -1, -1)
    return torch.baddbmm(flat, weights, mixed).view(len(mixed), *gates.shape[1:])


def remember(gates: Tensor, query: Tensor) -> Tensor:
    """Return the next query, g q + (1 - g) tanh(z).

    Args:
        gates: The gate before its sigmoid, then z, concatenated, (n, m, Q, 2 dim).
        query: q, (1 or n, m, Q, dim).

    Returns:
        (n, m, Q, dim), in the precision of `gates`.
    """
    result: Tensor = _Remember.apply(at_least_float32(gates), at_least_float32(query))  # type: ignore[no-untyped-call]
    return result.to(gates.dtype)


class _Remember(torch.autograd.Function):
    """The expression of `remember` with a backward pass written by hand, which halves the passes over memory.

    tanh(z) is computed as 2 sigmoid(2 z) - 1, which is three times as fast.
    """

    @staticmethod
    def forward(ctx: Any, gates: Tensor, query: Tensor) -> Tensor:
        gate, z = gates.chunk(2, -1)
        gate, memory = gate.sigmoid(), (z * 2).sigmoid_().mul_(2).sub_(1)
        ctx.save_for_backward(gate, memory, query)
        return torch.lerp(memory, query, gate)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        gate, memory, query = ctx.saved_tensors
        of_query = gradient * gate
        remainder = gradient - of_query
        of_gates = gradient.new_empty((*gradient.shape[:-1], 2 * gradient.shape[-1]))
        of_gate, of_z = of_gates.chunk(2, -1)
        torch.sub(query, memory, out=of_gate).mul_(gate).mul_(remainder)
        torch.mul(memory, memory, out=of_z).neg_().add_(1).mul_(remainder)
        return of_gates, of_query.sum_to_size(query.shape)


class MemoryBudget:
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


def checkpointed(
    score: Score, contexts: Codes, queries: Codes, weight: Tensor, bias: Tensor, budget: MemoryBudget
) -> Tensor:
    """Compute score(contexts, queries, weight, bias) with a backward pass that computes the score again.

    Autograd would keep the result of every step of the score. Here a block keeps only the large products, as long as
    they fit into the budget. Its backward pass computes the rest again, or everything if no products were kept. If
    the share of pairs whose score has a gradient is below `SPARSE`, it does so only for these pairs. With a loss on
    hardest negatives these are at most three pairs per image on average, and a training step costs little more than its
    forward pass. The gradients equal autograd's. Second derivatives are not supported.

    Args:
        score: Function of n contexts with tokens (n, C, ...), of m queries with tokens (1, m, Q, ...) or
            (n, 1, Q, ...), of weight and bias, and of the products of an earlier call or None. It returns the scores
            (n, m) and its products, (n, m, ...) each.
        contexts: Codes of the contexts.
        queries: Codes of the queries.
        weight: Weight that is passed to the score.
        bias: Bias that is passed to the score.
        budget: Memory for the kept products.

    Returns:
        (n, m).
    """
    tensors = contexts.tokens, contexts.mask, queries.tokens, weight, bias
    result: Tensor = _Checkpointed.apply(score, budget, *tensors)  # type: ignore[no-untyped-call]
    return result


class _Checkpointed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, score: Score, budget: MemoryBudget, *tensors: Tensor) -> Tensor:
        contexts, mask, queries, weight, bias = tensors
        with torch.autocast(contexts.device.type, enabled=False):
            scores, products = score(Codes(contexts, contexts, mask), Codes(queries, queries), weight, bias, None)
        ctx.score, ctx.products = score, budget.take(products)
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


def linear_with_value(x: Tensor, weight: Tensor, bias: Tensor, value: Tensor | None) -> Tensor:
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
