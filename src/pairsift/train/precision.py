"""The precision in which a training computes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from pairsift.match.base import Matcher
from pairsift.train.options import TrainOptions

PRODUCTS: Any = getattr(torch.backends.mkldnn, "matmul", None)  # settings of products on CPUs, from torch 2.9 on
PAYS_FROM = 1.5  # times as fast as in float32: processors with matrix units reach 3 to 8
REPEATS = 8  # of a product in each precision


def autocast_context(device: torch.device, options: TrainOptions, trained: Matcher | None = None) -> torch.autocast:
    """Return the autocast context: bf16 where the options ask for it.

    With `auto`, bf16 where a GPU trains a matcher that gains by it.

    Args:
        device: The device of the networks.
        options: The options of the training.
        trained: The matcher in training; None in recall, search and scoring.
    """
    gains = options.precision == "auto" and device.type == "cuda" and trained is not None and trained.gains_by_bf16
    return torch.autocast(device.type, torch.bfloat16, enabled=options.precision == "bf16" or gains)


def takes_fast_products(device: torch.device, options: TrainOptions) -> bool:
    """Return whether training steps multiply in bfloat16: with `auto`, on a CPU where it is much faster."""
    return options.precision == "auto" and device.type == "cpu" and fast_products_pay()


@contextmanager
def fast_products(enabled: bool) -> Iterator[None]:
    """Round the factors of float32 products on a CPU to bfloat16, and add them up in float32.

    Weights, sums and everything else stay in float32.
    """
    if not enabled:
        yield
        return
    before = PRODUCTS.fp32_precision
    PRODUCTS.fp32_precision = "bf16"
    try:
        yield
    finally:
        PRODUCTS.fp32_precision = before


@cache
def fast_products_pay() -> bool:
    """Return whether products in bfloat16 take at most two thirds of the time here, measured in less than a second."""
    if PRODUCTS is None:
        return False
    left, right = torch.ones(512, 1024), torch.ones(1024, 1024)
    seconds = [[_seconds(left, right, enabled) for enabled in (False, True)] for _ in range(REPEATS)]
    slow, fast = map(min, zip(*seconds, strict=True))
    return bool(slow >= PAYS_FROM * fast)


def _seconds(left: torch.Tensor, right: torch.Tensor, fast: bool) -> float:
    with fast_products(fast):
        start = time.perf_counter()
        torch.mm(left, right)
        return time.perf_counter() - start
