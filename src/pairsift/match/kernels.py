"""Matrix products by the library that is faster on the processor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x W^T + b, outside autograd.

    It equals `torch.nn.functional.linear`, but on CPUs oneDNN computes it where torch includes it. In float32 torch
    uses MKL, whose products of narrow matrices are a sixth slower on some processors.

    Args:
        x: (rows, in).
        weight: W, (out, in), in the precision of x.
        bias: b, (out,), in the precision of x.

    Returns:
        (rows, out).
    """
    if x.device.type == "cpu" and has_onednn(x.dtype):
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return product
    return torch.addmm(bias, x, weight.T)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x W^T, (rows, in) and (out, in) to (rows, out), outside autograd; in float32 computed as in `affine`.

    On the AMD processor where it was measured this is twice as fast as torch's float32 product, which is MKL's.
    In bfloat16 torch uses oneDNN itself.
    """
    if x.numel() and x.device.type == "cpu" and x.dtype == torch.float32 and has_onednn(x.dtype):
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
    if x.device.type == "cpu" and x.ndim > 1 and x.numel() and len(weight) and plain and has_onednn(x.dtype):
        result: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return result
    return functional.linear(x, weight, bias)


def has_onednn(dtype: torch.dtype) -> bool:
    """Return whether oneDNN is available and supports this type on this processor; not all support bfloat16."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not (available and torch.backends.mkldnn.enabled and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())
