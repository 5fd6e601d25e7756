"""The precision in which a training computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pairsift.cores import bfloat16_pays
from pairsift.match.base import Matcher
from pairsift.train.options import TrainOptions

PRODUCTS: Any = getattr(torch.backends.mkldnn, "matmul", None)  # settings of products on CPUs, from torch 2.9 on


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


def takes_fast_products(device: torch.device, options: TrainOptions, trained: Matcher) -> bool:
    """Return whether training steps multiply in bfloat16.

    With `auto`, they do on a CPU where it is much faster, for a matcher whose recall was measured to stay the same.
    """
    asked = options.precision == "auto" and device.type == "cpu" and trained.keeps_recall_in_bf16
    return asked and PRODUCTS is not None and bfloat16_pays()


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
