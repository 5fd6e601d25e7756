"""How a network would see a batch with other parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call

from pairsift.methods.base import Batch, Network, not_negatives


@dataclass(frozen=True)
class View:
    """A network's similarities of a batch.

    Attributes:
        similarity: (B, B), images in rows, pairs on the diagonal.
        scale: Inverse temperature, scalar.
        exclude: True where a row and a column are not each other's negatives, (B, B).
    """

    similarity: Tensor
    scale: Tensor
    exclude: Tensor


def view(network: Network, batch: Batch, seed: int | None = None) -> View:
    """The batch as the network sees it, with dropout masks of this seed or of the running generator."""
    with masks(seed, batch.image_rows.device):
        similarity, scale = network(batch)
    return View(similarity, scale, not_negatives(batch))


@torch.no_grad()
def views_at(
    network: Network, parameters: Mapping[str, Tensor], batches: Sequence[Batch], seeds: Sequence[int]
) -> list[View]:
    """The batches as the network would see them with other parameters, in its present mode, without gradient.

    In float32, also inside mixed precision, which rounds small differences of parameters away. Batch norms take these
    batches' statistics in training mode and leave the network's own as they are.

    Args:
        network: The network.
        parameters: All its parameters by name.
        batches: What to see.
        seeds: A seed of dropout masks for each.
    """
    found = []
    for batch, seed in zip(batches, seeds, strict=True):
        device = batch.image_rows.device
        spare = {name: buffer.clone() for name, buffer in network.named_buffers()}
        with masks(seed, device), torch.autocast(device.type, enabled=False):
            similarity, scale = functional_call(network, {**spare, **parameters}, (batch,))
        found.append(View(similarity, scale, not_negatives(batch)))
    return found


@contextmanager
def masks(seed: int | None, device: torch.device) -> Iterator[None]:
    """Dropout with masks that a seed alone decides; afterwards the generator is where it was. None changes nothing."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
