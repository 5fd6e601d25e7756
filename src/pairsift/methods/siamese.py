"""How a network would see pairs with other parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from pairsift.match.base import Codes
from pairsift.methods.base import Batch, Network, Pairing, related

Coded = tuple[Codes, Codes]


@dataclass(frozen=True)
class View:
    """A network's similarities of a pairing.

    Attributes:
        similarity: (B, B), images in rows, pairs on the diagonal.
        scale: Inverse temperature, scalar.
        exclude: True where a row and a column are not each other's negatives, (B, B).
    """

    similarity: Tensor
    scale: Tensor
    exclude: Tensor


def encode(network: Network, batches: Sequence[Batch], seed: int) -> list[Coded]:
    """Codes of each batch's images and captions, with dropout masks that the seed decides."""
    with masks(seed, batches[0].image_rows.device):
        return [network.encode(batch) for batch in batches]


def pairings(batches: Sequence[Batch], coded: Sequence[Coded], places: Sequence[Tensor]) -> list[Pairing]:
    """Pairs of encoded batches, each chosen by its places in all of them one after the other, (B,)."""
    images, texts = (Codes.join(side) for side in zip(*coded, strict=True))
    rows, owners = (torch.cat([getattr(b, name) for b in batches]) for name in ("image_rows", "caption_images"))
    known = [batch.caption_texts for batch in batches if batch.caption_texts is not None]
    read = torch.cat(known) if len(known) == len(batches) else None
    exclude = [related(rows[at], owners[at], None if read is None else read[at]) for at in places]
    return [Pairing(images.rows(at), texts.rows(at), one) for at, one in zip(places, exclude, strict=True)]


def view(network: Network, pair: Pairing) -> View:
    """The pairing as the network sees it."""
    return View(network.matcher.similarity(pair.images, pair.texts), network.matcher.scale(), pair.exclude)


@torch.no_grad()
def views_at(
    network: Network, parameters: Mapping[str, Tensor], batches: Sequence[Batch], places: Sequence[Tensor], seed: int
) -> list[View]:
    """Pairings of the batches as the network would see them with other parameters, in its present mode, no gradient.

    In float32, also inside mixed precision, which rounds small differences of parameters away. Batch norms take these
    batches' statistics in training mode and leave the network's own as they are.

    Args:
        network: The network.
        parameters: All its parameters by name.
        batches: What to encode.
        places: The pairings, as in `pairings`.
        seed: Of the dropout masks.
    """
    spare = {name: buffer.clone() for name, buffer in network.named_buffers()}
    values = {f"network.{name}": value for name, value in {**spare, **parameters}.items()}
    with torch.autocast(batches[0].image_rows.device.type, enabled=False):
        found: list[View] = functional_call(_Views(network), values, (batches, places, seed))
    return found


class _Views(nn.Module):
    """Encoding and pairing in one module, since other parameters can be lent to a module only."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, batches: Sequence[Batch], places: Sequence[Tensor], seed: int) -> list[View]:
        coded = encode(self.network, batches, seed)
        return [view(self.network, pair) for pair in pairings(batches, coded, places)]


@contextmanager
def masks(seed: int, device: torch.device) -> Iterator[None]:
    """Dropout with masks that a seed alone decides; afterwards the generator is where it was."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
