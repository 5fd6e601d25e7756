"""What a step on a batch would do to other pairs: how a network sees them before the step and after it (NPC)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from pairsift.arrays import Array
from pairsift.loss.impact import Directions, change, confidence
from pairsift.match.base import Codes
from pairsift.methods.parts.part import Part
from pairsift.steps import Batch, Network, Pairing, Setting, Term, related

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


class NegativeImpact(Part):
    """The effect of a step on a batch on the clean pairs nearest to each of its pairs (NPC Eq. 6 to 8).

    State: `weight`, (networks, n_pairs), w of every pair in network k's last step on it, 1 until then; kept for the
    record alone, and only where pairs are weighted.
    """

    weigh: bool = Field(
        default=True, description="Whether pairs are weighted by their negative impact (Eq. 8); 1 otherwise."
    )
    momentum: bool = Field(
        default=False,
        description="Whether theta' has the optimizer's momentum, to which this batch contributes a tenth.",
    )

    def begin(self, setting: Setting, state: dict[str, Array]) -> None:
        """Let every pair start with full weight."""
        super().begin(setting, state)
        if self.weigh:
            state["weight"] = self.array_of_pairs(1)

    def confidence(
        self,
        network: Network,
        k: int,
        first: Term,
        batches: Sequence[Batch],
        places: Sequence[Tensor],
        seed: int,
        views: Sequence[View],
    ) -> Tensor:
        """Return the weight w of every pair of the first batch, without gradient, (B,), in [0, 1], and keep it.

        Args:
            network: The network in training.
            k: Its number.
            first: The term of the batch as given, whose gradient makes the step.
            batches: The batch and the bank pairs that it lacks.
            places: For each side of the bank, where the pairs' bank pairs lie in all batches one after the other.
            seed: Seed of the dropout masks.
            views: The bank pairs as the network sees them now.
        """
        after = views_at(network, self._after(network, k, first), batches, places, seed)
        if torch.is_autocast_enabled(first.values.device.type):  # `views` is too coarse to be compared with
            views = views_at(network, dict(network.named_parameters()), batches, places, seed)
        w = confidence(change(self._losses(views), self._losses(after)))
        self.state["weight"][k, batches[0].ids] = w.float().cpu().numpy()
        return w

    def _after(self, network: Network, k: int, first: Term) -> dict[str, Tensor]:
        """Return theta', the parameters after a step on the batch as given."""
        assert self.setting.after_step is not None, "the setting does not say what a step does"
        parameters = {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}
        gradients = torch.autograd.grad(
            first.reduced(), list(parameters.values()), retain_graph=True, allow_unused=True
        )
        nonzero = {name: g for name, g in zip(parameters, gradients, strict=True) if g is not None}
        return self.setting.after_step(k, nonzero, self.momentum)

    @torch.no_grad()
    def _losses(self, views: Sequence[View]) -> Directions:
        """Return p and q of every pair, its bank pairs' losses from image to text and from text to image (Eq. 6)."""
        p, q = zip(
            *(self.setting.ranking.directions(view.similarity, view.scale, view.exclude) for view in views),
            strict=True,
        )
        return torch.stack(p).sum(0), torch.stack(q).sum(0)


def encode(network: Network, batches: Sequence[Batch], seed: int) -> list[Coded]:
    """Return codes of each batch's images and captions, with dropout masks that the seed decides."""
    with masks(seed, batches[0].image_rows.device):
        return [network.encode(batch) for batch in batches]


def pairings(batches: Sequence[Batch], coded: Sequence[Coded], places: Sequence[Tensor]) -> list[Pairing]:
    """Return pairs of encoded batches, each chosen by its places in all of them one after the other, (B,)."""
    images, texts = (Codes.join(side) for side in zip(*coded, strict=True))
    rows, owners = (torch.cat([getattr(b, name) for b in batches]) for name in ("image_rows", "caption_images"))
    text_numbers = [batch.caption_texts for batch in batches if batch.caption_texts is not None]
    numbers = torch.cat(text_numbers) if len(text_numbers) == len(batches) else None
    exclude = [related(rows[side], owners[side], None if numbers is None else numbers[side]) for side in places]
    return [Pairing(images.rows(side), texts.rows(side), rule) for side, rule in zip(places, exclude, strict=True)]


def view(network: Network, pair: Pairing) -> View:
    """Return the pairing as the network sees it."""
    return View(network.matcher.similarity(pair.images, pair.texts), network.matcher.scale(), pair.exclude)


@torch.no_grad()
def views_at(
    network: Network, parameters: Mapping[str, Tensor], batches: Sequence[Batch], places: Sequence[Tensor], seed: int
) -> list[View]:
    """Return pairings of the batches as the network would see them with other parameters, in its present mode.

    There is no gradient. In float32, also inside mixed precision, which rounds small differences of parameters away.
    Batch norms take these batches' statistics in training mode and leave the network's own as they are.

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
        views: list[View] = functional_call(_Views(network), values, (batches, places, seed))
    return views


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
    """Draw dropout masks that a seed alone decides; afterwards the generator is where it was."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
