"""Products and block sizes chosen for the processor, for forward and backward passes written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

BLOCK_ROWS = 2048  # rows of a block on a CPU; the block then stays in the cache
BLOCK_ROWS_GPU = 2**17
ONE_BY_ONE = 64  # rows of a matrix from which a product for each matrix of a batch is faster than one for all
SPARSE = 0.3  # below this share of pairs with a gradient, a backward pass skips the other pairs


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x W^T + b, outside autograd.

    The result is that of `torch.nn.functional.linear`, but on CPUs it is computed by oneDNN where torch includes it. In
    float32 torch uses MKL. On some processors its products of narrow matrices are a sixth slower, and the bias is
    written beforehand.

    Args:
        x: (rows, in).
        weight: W, (out, in), in the precision of x.
        bias: b, (out,), in the precision of x.

    Returns:
        (rows, out).
    """
    if x.device.type == "cpu" and _has_onednn(x.dtype):
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return product
    return torch.addmm(bias, x, weight.T)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x W^T, (rows, in) and (out, in) to (rows, out), outside autograd; in float32 computed as in `affine`.

    On the AMD processor where it was measured this is twice as fast as torch's float32 product, which is MKL's.
    In bfloat16 torch uses oneDNN itself.
    """
    if x.numel() and x.device.type == "cpu" and x.dtype == torch.float32 and _has_onednn(x.dtype):
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
        return result
    return x @ weight.T


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        rows = x.flatten(0, -2)
        out = product(rows, weight) if bias is None else affine(rows, weight, bias)
        return out.view(*x.shape[:-1], len(weight))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        g, rows = gradient.flatten(0, -2), x.flatten(0, -2)
        of_x = product(g, weight.T).view_as(x) if needs_x else None
        return of_x, product(g.T, rows.T) if needs_weight else None, g.sum(0) if needs_bias else None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W^T + b with gradients, (..., in) to (..., out); in float32 on CPUs computed as in `affine`.

    Otherwise it is `torch.nn.functional.linear`. There are no second derivatives in float32 on CPUs.

    Args:
        x: (..., in).
        weight: W, (out, in).
        bias: b, (out,); None for 0.
    """
    plain = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled(x.device.type)
    if x.device.type == "cpu" and x.ndim > 1 and x.numel() and len(weight) and plain and _has_onednn(x.dtype):
        result: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return result
    return functional.linear(x, weight, bias)


def _has_onednn(dtype: torch.dtype) -> bool:
    """Return whether oneDNN is available and supports this type on this processor; not all support bfloat16."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not (available and torch.backends.mkldnn.enabled and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def accumulate(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add the product left right to `total` in place; a product of lower precision is added in that of `total`."""
    by_onednn = left.device.type == "cpu" and left.dtype == torch.float32 and _has_onednn(left.dtype)
    if total.dtype == left.dtype and not by_onednn:
        total.addmm_(left, right)
    else:
        total.add_(product(left, right.T))


def differences(weights: Tensor, context: Tensor, words: Tensor) -> Tensor:
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


def batched(left: Tensor, right: Tensor, out: Tensor) -> None:
    """Write the products left right, (n, a, b) and (n, b, c), into `out`, (n, a, c), outside autograd."""
    if _one_by_one(left) and min(left.shape[1:]) > 1:
        for number in range(len(left)):
            out[number] = product(left[number], right[number].T)
    else:
        torch.bmm(left, right, out=out)


def _one_by_one(left: Tensor) -> bool:
    """Return whether oneDNN multiplies each matrix (a, b) by itself faster than MKL all of them."""
    wide = max(left.shape[1:]) >= ONE_BY_ONE
    return left.device.type == "cpu" and left.dtype == torch.float32 and wide and _has_onednn(left.dtype)


def blocks(count: int, width: int, device: torch.device) -> Iterator[slice]:
    """Yield slices that cut `count` items of `width` rows each into blocks of a size chosen for the device."""
    height = max(1, (BLOCK_ROWS if device.type == "cpu" else BLOCK_ROWS_GPU) // max(1, width))
    for start in range(0, count, height):
        yield slice(start, min(count, start + height))


def gradient_places(gradient: Tensor) -> Tensor | None:
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
