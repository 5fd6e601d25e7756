"""A gated recurrent unit over sequences of different lengths, with a forward and a backward pass written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate as running
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pairsift.match.base import at_least_float32, autocast_precision
from pairsift.match.kernels import affine, product


def gru_states(unit: nn.GRU, x: Tensor, lengths: Tensor) -> Tensor:
    """Return the states of the last layer of a GRU over sequences; the states of two directions are averaged.

        r = sigmoid(W_ir x + b_ir + W_hr h + b_hr),    n = tanh(W_in x + b_in + r * (W_hn h + b_hn))
        z = sigmoid(W_iz x + b_iz + W_hz h + b_hz),    h' = (1 - z) * n + z * h

    On a CPU the sequences are sorted by length, so that a step computes only the unfinished ones, and the backward
    pass collects the gradient of each weight in one product over all steps. `nn.GRU` adds up a product for each step,
    and took 2.6 times as long in float32 and 1.8 times in bfloat16 where it was measured. Other devices, and several
    layers, use `nn.GRU`.
    Products run in the precision of autocast; gates and states are in float32 at least.

    Args:
        unit: The weights, with biases, in one direction or two.
        x: (n, longest, in); real entries come first.
        lengths: Real entries of each sequence, from 1 to `longest`, (n,).

    Returns:
        (n, longest, dim), 0 at padding.
    """
    if x.device.type != "cpu" or unit.num_layers > 1:
        return _reference(unit, x, lengths)
    order, sizes, place = _packing(lengths, x.shape[1])
    names = ["l0", "l0_reverse"] if unit.bidirectional else ["l0"]
    weights = [getattr(unit, f"{kind}_{name}") for name in names for kind in WEIGHTS]
    rows = autocast_precision(x).flatten(0, 1)[place]
    with torch.autocast("cpu", enabled=False):
        plan = _Plan(sizes, _reversed(lengths[order], sizes) if unit.bidirectional else None)
        packed: Tensor = _Gru.apply(plan, torch.is_grad_enabled(), rows, *weights)  # type: ignore[no-untyped-call]
    out = packed.new_zeros(len(x) * x.shape[1], unit.hidden_size)
    out[place] = packed
    return out.view(len(x), x.shape[1], -1)


WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _reference(unit: nn.GRU, x: Tensor, lengths: Tensor) -> Tensor:
    packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
    result, _ = pad_packed_sequence(unit(packed)[0], batch_first=True, total_length=x.shape[1])
    if unit.bidirectional:
        forward, backward = result.chunk(2, -1)
        result = (forward + backward) / 2
    return result


@dataclass(frozen=True)
class _Plan:
    """The order of the rows: step by step, in each step the unfinished sequences, the longest first.

    Attributes:
        sizes: Sequences in each step, descending.
        turn: For each row the row of the same sequence in reversed order, (rows,); None for one direction.
    """

    sizes: list[int]
    turn: Tensor | None

    @property
    def steps(self) -> list[tuple[int, int]]:
        """The first row and the size of each step."""
        return list(zip(running(self.sizes[:-1], initial=0), self.sizes, strict=True))


def _packing(lengths: Tensor, longest: int) -> tuple[Tensor, list[int], Tensor]:
    """Return the sequences from the longest, the number of them in each step, and each row's place in (n, longest)."""
    lengths, order = lengths.sort(descending=True, stable=True)
    real = torch.arange(int(lengths[0]))[:, None] < lengths
    step, sequence = real.nonzero(as_tuple=True)
    return order, real.sum(1).tolist(), order[sequence] * longest + step


def _reversed(lengths: Tensor, sizes: list[int]) -> Tensor:
    """Return for each row the row of the same sequence as far from the end as this one is from the start."""
    starts = torch.tensor([0, *running(sizes[:-1])])
    real = torch.arange(len(sizes))[:, None] < lengths
    step, sequence = real.nonzero(as_tuple=True)
    return starts[lengths[sequence] - 1 - step] + sequence


class _Gru(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: _Plan, keep: bool, x: Tensor, *weights: Tensor) -> Tensor:
        total, kept = None, []
        for way in range(len(weights) // 4):
            rows = _turned(x, plan, way)
            result, *gates = _run(plan, rows, *weights[4 * way : 4 * way + 4])
            total = result if total is None else _turned(result, plan, way).add_(total).mul_(0.5)
            kept += [result, *gates] if keep else []
        ctx.plan = plan
        ctx.save_for_backward(x, *weights, *kept)
        assert total is not None
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, *rest = ctx.saved_tensors
        ways = len(rest) // 7
        weights, kept = rest[: 4 * ways], rest[4 * ways :]
        if ways == 2:
            gradient = gradient / 2
        of_x, of_weights = None, []
        for way in range(ways):
            plan, saved = ctx.plan, kept[3 * way : 3 * way + 3]
            of_rows, *result = _gradients(
                plan, _turned(gradient, plan, way), _turned(x, plan, way), *saved, *weights[4 * way : 4 * way + 2]
            )
            of_x = of_rows if of_x is None else _turned(of_rows, plan, way).add_(of_x)
            of_weights += result
        return None, None, of_x, *of_weights


def _turned(rows: Tensor, plan: _Plan, way: int) -> Tensor:
    """Return the rows in the order of a direction; turning twice gives the rows back."""
    return rows if way == 0 or plan.turn is None else rows[plan.turn]


def _run(
    plan: _Plan, x: Tensor, of_inputs: Tensor, of_states: Tensor, bias: Tensor, inner: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return one direction's states (rows, dim), its gates r, z, n (rows, 3 dim) and W_hn h + b_hn (rows, dim)."""
    dim = of_states.shape[1]
    bias, shift = bias.clone(), torch.zeros_like(inner)
    bias[: 2 * dim] += inner[: 2 * dim]
    shift[2 * dim :] = inner[2 * dim :]
    gates = at_least_float32(affine(x, of_inputs.to(x.dtype), bias.to(x.dtype)))
    of_states, shift = of_states.to(x.dtype), shift.to(x.dtype)
    out, news = gates.new_empty(len(x), dim), gates.new_empty(len(x), dim)
    before = None
    for start, size in plan.steps:
        here = slice(start, start + size)
        both, n, new = gates[here, : 2 * dim], gates[here, 2 * dim :], news[here]
        if before is None:
            new.copy_(shift[2 * dim :])
        else:
            before = before[:size]
            mapped = affine(before.to(x.dtype), of_states, shift)
            both += mapped[:, : 2 * dim]
            new.copy_(mapped[:, 2 * dim :])
        both.sigmoid_()
        n.addcmul_(both[:, :dim], new).tanh_()
        previous = torch.zeros_like(n) if before is None else before
        before = torch.lerp(n, previous, both[:, dim:], out=out[here])
    return out, gates, news


def _gradients(
    plan: _Plan,
    gradient: Tensor,
    x: Tensor,
    out: Tensor,
    gates: Tensor,
    news: Tensor,
    of_inputs: Tensor,
    of_states: Tensor,
) -> tuple[Tensor, ...]:
    """Return the gradients of one direction's x, W_i, W_h, b_i and b_h from the gradient of its states, (rows, dim)."""
    dim = out.shape[1]
    back = of_states.to(x.dtype).T.contiguous()
    of_mapped, of_n = torch.empty_like(gates), torch.empty_like(news)
    carry = gradient.new_zeros(0, dim)
    starts = [start for start, _ in plan.steps]
    for step in reversed(range(len(starts))):
        here = slice(starts[step], starts[step] + plan.sizes[step])
        r, z, n = torch.split(gates[here], dim, 1)
        of_r, of_z, of_new = torch.split(of_mapped[here], dim, 1)
        # The gradient of a state comes from the result and from the next step.
        g = gradient[here].clone()
        g[: len(carry)] += carry
        # h' = (1 - z) n + z h, back through the sigmoid of z and the tanh of n.
        of_candidate = torch.addcmul(g, g, z, value=-1)
        difference = -n if step == 0 else out[starts[step - 1] : starts[step - 1] + len(g)] - n
        torch.mul(of_candidate, difference, out=of_z).mul_(z)
        torch.addcmul(of_candidate, of_candidate, n.square(), value=-1, out=of_n[here])
        # r * (W_hn h + b_hn), back through the sigmoid of r.
        torch.mul(of_n[here], r, out=of_new)
        torch.mul(of_new, news[here], out=of_r).mul_(1 - r)
        if step:
            carry = at_least_float32(product(of_mapped[here].to(x.dtype), back)).addcmul_(g, z)
    # One product over all steps for each weight.
    first = plan.sizes[0]
    earlier = torch.cat(
        [out[:0], *(out[start : start + size] for start, size in zip(starts, plan.sizes[1:], strict=False))]
    )
    of_inner = of_mapped.sum(0)
    of_weights = product(of_mapped[first:].T.to(x.dtype), earlier.T.to(x.dtype))
    of_mapped[:, 2 * dim :] = of_n
    of_gates = of_mapped.to(x.dtype)
    return (
        product(of_gates, of_inputs.to(x.dtype).T),
        at_least_float32(product(of_gates.T, x.T)),
        at_least_float32(of_weights),
        of_mapped.sum(0),
        of_inner,
    )
