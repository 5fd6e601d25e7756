"""Dropout masks that a seed decides, so that a batch can be encoded twice alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from pairsift.match.base import Codes
from pairsift.steps import Batch, Network


def encode(network: Network, batches: Sequence[Batch], seed: int) -> list[tuple[Codes, Codes]]:
    """Return codes of each batch's images and captions, with dropout masks that the seed decides."""
    with seeded_dropout(seed, batches[0].image_rows.device):
        return [network.encode(batch) for batch in batches]


@contextmanager
def seeded_dropout(seed: int, device: torch.device) -> Iterator[None]:
    """Draw dropout masks from a seed alone. The state of the generator is restored afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
