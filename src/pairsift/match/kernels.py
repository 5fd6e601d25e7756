"""Products and blocks that suit the processor, for passes that are written by hand."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

ROWS = 2048  # of a block on a CPU, so that it stays in the cache
ROWS_GPU = 2**17
SPARSE = 0.3  # share of the pairs with a gradient, below which the others are left out of a backward pass


def mapped(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W^T + b, outside autograd.

    The same as `torch.nn.functional.linear`, but on CPUs by oneDNN where torch has it. In float32 torch takes MKL,
    whose products of narrow matrices are a sixth slower on some processors, and which writes the bias beforehand.

    Args:
        x: (rows, in).
        weight: W, (out, in), as precise as x.
        bias: b, (out,), as precise as x.

    Returns:
        (rows, out).
    """
    if x.device.type == "cpu" and _has_onednn(x.dtype):
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return product
    return torch.addmm(bias, x, weight.T)


def _has_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN is there and computes with this type on this processor; bfloat16 not all of them know."""
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not (there and torch.backends.mkldnn.enabled and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


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


def live(gradient: Tensor) -> Tensor | None:
    """Which items have a gradient, where so few have that the others are worth leaving out.

    Under a hinge with hardest negatives three pairs of a row have one. On a GPU the answer would have to be waited for.

    Args:
        gradient: (n, ...).

    Returns:
        Their places, (few,), or None.
    """
    if gradient.device.type != "cpu":
        return None
    places = gradient.flatten(1).any(1).nonzero()[:, 0]
    return places if len(places) < SPARSE * len(gradient) else None
