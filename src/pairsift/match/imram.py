"""Cross attention in several rounds, whose queries remember what they saw: IMRAM."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from pairsift.errors import InputError
from pairsift.match import attend, blocks, sparing
from pairsift.match.base import Codes, full
from pairsift.match.states import Linear, RegionsAndWords, Words

CELLS = {"cpu": 2048}  # pairs of a context and a query token in a block: on a CPU, its gates should stay in the cache
OTHERWISE = 32768


class Imram(RegionsAndWords):
    """IMRAM (Chen et al., Iterative Matching with Recurrent Attention Memory, CVPR 2020).

    In the `text` direction the words query the regions, in the `image` direction the regions query the words; `full`
    adds both. A query token q_1 looks K times at its context, each time changed by what it saw:

        x_k     = sum_c alpha_c v_c,   alpha as in SCAN with the query q_k (`attend.focus`)
        s_k     = mean over the tokens of cos(q_1, x_k)
        q_(k+1) = g q_k + (1 - g) tanh(W_m [q_k; x_k] + b_m),   g = sigmoid(W_g [q_k; x_k] + b_g)

    and the similarity is sum_k s_k, in [-K, K], or [-2K, 2K] for `full`. Queries are not normalised again.

    One matrix product for each image, caption, token and round makes the published loop slow. Of W [q; x] = W_q q +
    W_x x, with W for both gates, the second part is linear in the attention, W_x x = sum_c alpha_c (W_x v_c), so that
    W_x v_c is computed once per token; so is W_q q_1; and the memory after the last round, which nobody reads, is left
    out. K = 3 keeps one such product of three, W_q q_2, and K = 2 none. All this is exact.

    Args:
        image_dim: Length of a region's feature vector.
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        dim: Length of the common vectors.
        word_dim: Length of a word vector.
        direction: `text`, `image` or `full`.
        steps: Rounds K, at least 1.
        sharpness: lambda of the attention; the paper takes 9 on Flickr30K and 11 on COCO.
        memory: Gigabytes that a training step may keep so as not to compute W_q q_k twice; `full` at a batch of 128
            captions of 12 words fills 6.5.

    Raises:
        InputError: No such direction, or less than one round.
    """

    name: ClassVar[str] = "imram"

    def __init__(
        self,
        image_dim: int,
        vocabulary_size: int,
        dim: int = 1024,
        word_dim: int = 300,
        direction: Literal["text", "image", "full"] = "full",
        steps: int = 3,
        sharpness: float = 9.0,
        memory: float = 8.0,
    ) -> None:
        super().__init__()
        if direction not in ("text", "image", "full"):
            raise InputError(f"imram.direction is {direction!r}; it must be text, image or full")
        if steps < 1:
            raise InputError(f"imram.steps is {steps}; it must be at least 1")
        self.dim, self.steps, self.sharpness, self.memory = dim, steps, sharpness, memory
        self.regions = Linear(image_dim, dim)
        self.words = Words(vocabulary_size, word_dim, dim)
        self.gates = nn.ModuleDict(
            {name: nn.Linear(2 * dim, 2 * dim) for name in ("text", "image") if direction in (name, "full")}
        )  # W_g above W_m; the columns of q before those of x

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Similarity of every image with every text, (n_images, n_texts)."""
        images, parts, allowance = blocks.front(images), [], sparing.Allowance(self.memory)
        if "text" in self.gates:
            compare, contexts, queries = self._prepare("text", images, texts, allowance)
            parts.append(blocks.cross(compare, contexts, queries, self._cells(images)))
        if "image" in self.gates:
            compare, contexts, queries = self._prepare("image", texts, images, allowance)
            groups = list(blocks.by_length(contexts))
            rows = [blocks.cross(compare, group, queries, self._cells(images)) for _, group in groups]
            parts.append(blocks.in_order(rows, torch.cat([place for place, _ in groups]), 0).T)
        return torch.stack(parts).sum(0)

    def pair_similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Similarity of every image with the text in the same place, (n,)."""
        images, parts, allowance = blocks.front(images), [], sparing.Allowance(self.memory)
        for name, (contexts, queries) in {"text": (images, texts), "image": (texts, images)}.items():
            if name in self.gates:
                parts.append(blocks.paired(*self._prepare(name, contexts, queries, allowance), self._cells(images)))
        return torch.stack(parts).sum(0)

    @staticmethod
    def _cells(codes: Codes) -> int:
        return CELLS.get(codes.vectors.device.type, OTHERWISE)

    def _prepare(
        self, name: str, contexts: Codes, queries: Codes, allowance: sparing.Allowance
    ) -> tuple[blocks.Compare, Codes, Codes]:
        """How to compare in this direction, and the codes with what is computed once per token behind each token."""
        assert contexts.tokens is not None and queries.tokens is not None
        linear, device = self.gates[name], contexts.tokens.device.type
        assert isinstance(linear, nn.Linear)
        fast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else contexts.tokens.dtype
        with torch.autocast(device, enabled=False):
            weight, bias = linear.weight.to(fast), linear.bias.to(fast)
            of_query, of_context = weight.chunk(2, 1)
            seen, own = contexts.tokens.to(fast), queries.tokens.to(fast)
            seen = torch.cat([seen, seen @ of_context.T], -1)
            own = torch.cat([own, nn.functional.linear(own, of_query, bias)], -1)
        score = partial(iterate, steps=self.steps, sharpness=self.sharpness)

        def compare(some: Codes, others: Codes) -> Tensor:
            return sparing.spare(score, some, others, of_query, bias, allowance)

        return compare, Codes(contexts.vectors, seen, contexts.mask), Codes(queries.vectors, own, queries.mask)


def iterate(
    contexts: Codes,
    queries: Codes,
    weight: Tensor,
    bias: Tensor,
    known: list[Tensor] | None,
    *,
    steps: int,
    sharpness: float,
) -> tuple[Tensor, list[Tensor]]:
    """The rounds of IMRAM in one direction.

    Args:
        contexts: Tokens v_c with W_x v_c behind them, (n, C, 3 dim), and their mask.
        queries: Tokens q_1 with W_q q_1 + b behind them, (1, m, Q, 3 dim) or (n, 1, Q, 3 dim).
        weight: W_q of both gates, (2 dim, dim).
        bias: b of both gates, (2 dim,).
        known: W_q q_k + b of the rounds 2 to K - 1 where an earlier call returned them.
        steps: K.
        sharpness: lambda.

    Returns:
        Scores (n, m) and W_q q_k + b of the rounds 2 to K - 1, (n, m, Q, 2 dim) each.
    """
    assert contexts.tokens is not None and queries.tokens is not None
    dim = weight.shape[1]
    seen, mixed = torch.split(contexts.tokens, [dim, 2 * dim], -1)
    query, gates = torch.split(queries.tokens, [dim, 2 * dim], -1)
    gram, length = attend.gram(seen), (full(query).square().sum(-1) + attend.EPS).sqrt()
    first = affinity = attend.affinity(seen, query)
    total, products = torch.zeros((), device=seen.device), []
    for step in range(steps):
        alpha = attend.focus(affinity, sharpness, contexts.mask)
        total = total + attend.cosine(first, alpha, gram, length).mean(-1)
        if step == steps - 1:
            break
        if step > 0:
            gates = sparing.linear(query, weight, bias, known[step - 1] if known else None)
            products.append(gates)
        query = remember(_add(gates, alpha, mixed), query)
        affinity = attend.affinity(seen, query)
    return total, products


def _add(gates: Tensor, alpha: Tensor, mixed: Tensor) -> Tensor:
    """gates_q + sum_c alpha_cq mixed_c: (1 or n, m, Q, w), (n, C, m, Q) and (n, C, w) to (n, m, Q, w)."""
    weights = alpha.flatten(2).transpose(1, 2).to(mixed.dtype)
    flat = gates.flatten(1, 2).expand(len(mixed), -1, -1)
    return torch.baddbmm(flat, weights, mixed).view(len(mixed), *gates.shape[1:])


def remember(gates: Tensor, query: Tensor) -> Tensor:
    """The next query, g q + (1 - g) tanh(z).

    Args:
        gates: The gate before its sigmoid and z, side by side, (n, m, Q, 2 dim).
        query: q, (1 or n, m, Q, dim).

    Returns:
        (n, m, Q, dim), with the precision of `gates`.
    """
    result: Tensor = _Remember.apply(full(gates), full(query))  # type: ignore[no-untyped-call]
    return result.to(gates.dtype)


class _Remember(torch.autograd.Function):
    """Written out, it needs half as many passes over memory; tanh(z) = 2 sigmoid(2 z) - 1 is three times as fast."""

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
        rest = gradient - of_query
        of_gates = gradient.new_empty((*gradient.shape[:-1], 2 * gradient.shape[-1]))
        of_gate, of_z = of_gates.chunk(2, -1)
        torch.sub(query, memory, out=of_gate).mul_(gate).mul_(rest)
        torch.mul(memory, memory, out=of_z).neg_().add_(1).mul_(rest)
        return of_gates, of_query.sum_to_size(query.shape)
