"""NPC: negative pre-aware matching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from pairsift.arrays import Array, Floats, Ints
from pairsift.errors import InputError
from pairsift.match.base import Codes, Matcher
from pairsift.methods.base import Epochs, Method, Notes, Part
from pairsift.methods.parts.division import CleanProbability
from pairsift.methods.parts.dropout import encode
from pairsift.methods.parts.nearest import nearest_clean
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.steps import (
    Batch,
    Network,
    Observation,
    Pairing,
    Phase,
    Request,
    Setting,
    Step,
    Term,
    not_negatives,
    related,
)

SIDES = ("by_image", "by_text")
Directions = tuple[Tensor, Tensor]  # a loss from image to text and one from text to image, (B,) each
LEAST = 0.05  # share of the pairs that a bank takes at least where networks are trained from nothing
FINE_TUNING = CLIP.plus(epochs={"warmup": 0, "train": 5}, train={"lr": 2e-7, "max_norm": 10.0})


class NPCEpochs(Epochs):
    """The phases of NPC."""

    warmup: int = Field(
        default=0,
        ge=0,
        description="Epochs on all pairs as given, before the bank; at least 1 where the matcher starts untrained.",
    )
    train: int = Field(default=5, ge=0, description="Epochs with the bank; it is made at the start of the first.")


class MemoryBank(CleanProbability):
    """The clean pairs with the nearest image and the nearest caption, for every pair (NPC Eq. 3 to 5).

    State beside `clean_probability`: `by_image` and `by_text`, (networks, n_pairs), ids of each pair's bank pairs; -1
    until the bank is made.
    """

    threshold: float = Field(
        default=0.99, ge=0, le=1, description="Smallest clean probability of a pair in the bank, tau."
    )
    least: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Smallest share of the pairs that the bank takes; where fewer reach the threshold, it takes the "
        "pairs of least loss. Eq. 5 has none; a bank has two pairs in any case.",
    )
    refresh: bool = Field(default=False, description="Whether the bank is made anew at the start of every epoch.")
    weight: float = Field(default=1.0, ge=0, description="Weight of the bank's loss L_MB (Eq. 11); 0 leaves it out.")

    def initial_state(self, setting: Setting) -> dict[str, Array]:
        """Return arrays of pairs that all are clean and have no bank pairs."""
        return {**super().initial_state(setting), **{side: setting.per_pair(-1, np.int64) for side in SIDES}}

    def observe(self, seen: Observation) -> dict[str, Tensor]:
        """Return the loss that divides pairs, and both global vectors."""
        return {**super().observe(seen), "by_image": seen.images.vectors, "by_text": seen.texts.vectors}

    def update(self, notes: Notes) -> None:
        """Fit clean probabilities to the losses (Eq. 3 and 4), and make the bank of D_c = {p >= tau} (Eq. 5)."""
        super().update(notes)
        ids = self.setting.ids
        captions = np.arange(len(ids))
        for k, noted in enumerate(notes):
            passed = int((self.state["clean_probability"][k, ids] >= self.threshold).sum())
            smallest = min(len(ids), max(2, ceil(self.least * len(ids))))
            clean = np.argsort(noted["loss"], kind="stable")[: max(passed, smallest)]  # p never rises with the loss
            for side, items in zip(SIDES, (self.setting.image_of[ids], captions), strict=True):
                self.state[side][k, ids] = ids[nearest_clean(noted[side], items, clean)]

    def facts(self) -> dict[str, float]:
        """Return the estimated share of mismatched pairs; once there is a bank, its size and purity."""
        ids = self.setting.ids
        if (self.state["by_image"][:, ids] < 0).any():
            return super().facts()
        passed = float((self.state["clean_probability"][:, ids] >= self.threshold).mean())
        facts = {**super().facts(), "reach_threshold": passed, "bank_share": max(passed, self.least)}
        if self.setting.matched is not None:
            banked = np.stack([self.state[side][:, ids] for side in SIDES])
            facts["bank_purity"] = float(self.setting.matched[banked].mean())
        return facts

    def pairs(self, side: str, ids: Ints, network: int) -> Ints:
        """Return ids of the bank pairs of these pairs on one side, as the network trains by them, (len(ids),)."""
        return np.asarray(self.of_peer(side, network)[ids], np.int64)

    def made_for(self, ids: Ints, network: int) -> bool:
        """Return whether all these pairs have bank pairs."""
        return all((self.pairs(side, ids, network) >= 0).all() for side in SIDES)


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

    State: `weight`, (networks, n_pairs), w of every pair in network k's last step on it, 1 until then; `mean_weight`,
    the mean over all its steps on it, and `weighings`, their number; kept for the record alone, and only where pairs
    are weighted.
    """

    weigh: bool = Field(
        default=True, description="Whether pairs are weighted by their negative impact (Eq. 8); 1 otherwise."
    )

    def initial_state(self, setting: Setting) -> dict[str, Array]:
        """Return full weights."""
        if not self.weigh:
            return {}
        weights = {name: setting.per_pair(1) for name in ("weight", "mean_weight")}
        return {**weights, "weighings": setting.per_pair(0, np.int64)}

    def confidence(
        self,
        network: Network,
        k: int,
        first: Term,
        batches: Sequence[Batch],
        rows: Sequence[Tensor],
        seed: int,
        views: Sequence[View],
    ) -> Tensor:
        """Return the weight w of every pair of the first batch, without gradient, (B,), in [0, 1], and keep it.

        Args:
            network: The network in training.
            k: Its number.
            first: The term of the batch as given, whose gradient makes the step.
            batches: The batch and the bank pairs that it lacks.
            rows: For each side of the bank, rows of the pairs' bank pairs in the concatenated batches, (B,) each.
            seed: Seed of the dropout masks.
            views: The bank pairs as the network sees them now.
        """
        after = views_at(network, self._after(network, k, first), batches, rows, seed)
        if torch.is_autocast_enabled(first.values.device.type):  # `views` is too coarse to be compared with
            views = views_at(network, dict(network.named_parameters()), batches, rows, seed)
        w = confidence(change(self._losses(views), self._losses(after)))
        self._keep(k, batches[0].ids, w.float().cpu().numpy())
        return w

    def _keep(self, k: int, ids: Ints, w: Floats) -> None:
        """Keep the weights of a step of network k, and their means over its steps."""
        self.state["weighings"][k, ids] += 1
        self.state["weight"][k, ids] = w
        mean = self.state["mean_weight"][k, ids]
        self.state["mean_weight"][k, ids] = mean + (w - mean) / self.state["weighings"][k, ids]

    def _after(self, network: Network, k: int, first: Term) -> dict[str, Tensor]:
        """Return theta', the parameters after a step on the batch as given."""
        assert self.setting.after_step is not None, "the setting does not say what a step does"
        parameters = {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}
        gradients = torch.autograd.grad(
            first.reduced(), list(parameters.values()), retain_graph=True, allow_unused=True
        )
        nonzero = {name: g for name, g in zip(parameters, gradients, strict=True) if g is not None}
        return self.setting.after_step(k, nonzero, False)  # the optimizer's momentum is of other batches

    @torch.no_grad()
    def _losses(self, views: Sequence[View]) -> Directions:
        """Return p and q of every pair, its bank pairs' losses from image to text and from text to image (Eq. 6)."""
        p, q = zip(
            *(self.setting.ranking.directions(view.similarity, view.scale, view.exclude) for view in views),
            strict=True,
        )
        return torch.stack(p).sum(0), torch.stack(q).sum(0)


class NPC(Method):
    """The method NPC: a pair weighs less the more a step on its batch harms the clean pairs nearest to it.

    A memory bank holds, for every pair, the clean pair with the nearest image and the one with the nearest text. A step
    asks what an optimizer step on its batch would do to the losses of the batch's bank pairs (Eq. 6 and 7), weights the
    batch by the answer (Eq. 8 and 9) and trains on it together with the bank pairs (Eq. 10 and 11).

    The paper trains a copy A' of the model. Here theta' is computed instead: the parameters after a step of the
    network's own optimizer, with its rate, clipping and second moments, but in the direction of this batch's gradient
    alone, because it is this batch that is asked about. (The published code's copy has moments of its own; the paper
    does not say.) The bank pairs are read at theta and at theta' in training mode with the same dropout masks, since
    different ones would drown a step's effect, and in float32, since mixed precision rounds small steps away; batch
    norms keep no statistics of theta'. A pair that is in the batch and in its bank, or in the bank twice, is encoded
    once.

    Where the published code differs from the paper, the paper holds: weights meet per-pair losses (the code multiplies
    batch means), the bank's loss has a gradient (the code's has none), the bank takes 0.99 (0.9), and p and q are the
    two directions (the code's the two entries). The paper is silent on: who scores the pairs (the network, at the start
    of the phase), which caption of the nearest image (the one of the least loss), and how often the bank is made (once,
    as in the code). A pair of the same image is no negative of another, also among the bank pairs of a batch, where one
    can come several times.

    For heads trained from nothing on noisy pairs 0.99 leaves too few pairs: the preset `two_tower` takes a lower
    threshold, makes the bank every epoch and gives it more weight, as chosen on dev. It and `scratch` also fill the
    bank up to a twentieth of the pairs.

    With the hinge, p and q are mean hinges over all negatives at the full margin, which are seldom exactly 0.
    """

    name: ClassVar[str] = "npc"
    citation: ClassVar[str] = """
@inproceedings{zhang2024npc,
  author = {Zhang, Xu and Li, Hao and Ye, Mang},
  title = {Negative Pre-aware for Noisy Cross-Modal Matching},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
  year = {2024}
}
"""
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": FINE_TUNING,
        "clip": FINE_TUNING,
        "scratch": Preset(
            {"epochs": {"warmup": 5, "train": 40}, "bank": {"least": LEAST}}, PAPER.train, "infonce", PAPER.losses
        ),
        "two_tower": TWO_TOWER.plus(
            epochs={"warmup": 2, "train": 6}, bank={"threshold": 0.8, "least": LEAST, "refresh": True, "weight": 3.0}
        ),
    }

    epochs: NPCEpochs = NPCEpochs()
    bank: MemoryBank = MemoryBank()
    impact: NegativeImpact = NegativeImpact()
    networks: int = Field(default=1, ge=1, le=2, description="1, or 2 that use each other's bank.")

    def check(self, matcher: type[Matcher], starts_trained: bool) -> None:
        """Refuse a matcher that starts untrained if no warm-up precedes the bank."""
        if self.epochs.train and not self.epochs.warmup and not starts_trained:
            raise InputError(
                f"npc makes its bank by what the network knows, and {matcher.name} starts untrained: "
                "take --preset scratch, or give npc.epochs.warmup at least 1 and a learning rate that suits it"
            )

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, the epoch that starts by making the bank, and the rest."""
        bank_epochs = min(1, self.epochs.train)
        return (
            Phase("warm-up", self.epochs.warmup, warm=True, competes=False),
            Phase("bank", bank_epochs, observe=True),
            Phase("train", self.epochs.train - bank_epochs, observe=self.bank.refresh),
        )

    def requests(self, ids: Mapping[str, Ints], network: int) -> dict[str, Request]:
        """Return the step's pairs and, once there is a bank, their bank pairs that are not among them."""
        rows, requests = ids["all"], super().requests(ids, network)
        if self._reads_bank(rows, network):
            bank_ids = np.setdiff1d(np.concatenate([self.bank.pairs(side, rows, network) for side in SIDES]), rows)
            if len(bank_ids):
                company = rows[:1] if len(bank_ids) == 1 else rows[:0]  # a batch norm needs two
                requests["bank"] = Request(np.append(bank_ids, company))
        return requests

    def _reads_bank(self, ids: Ints, network: int) -> bool:
        """Return whether a step on these pairs has a bank and reads it."""
        return (self.impact.weigh or self.bank.weight > 0) and self.bank.made_for(ids, network)

    def step(self, step: Step) -> list[Term]:
        """Return L_RCE + L_MB (Eq. 11)."""
        network, k, batch = step.network, step.k, step.batch
        batches = list(step.batches.values())
        rows = self._bank_rows(batches, k) if self._reads_bank(batch.ids, k) else []
        seed = int(torch.randint(2**31, ()))
        codes = encode(network, batches, seed)
        given = Pairing(*codes[0], not_negatives(batch))
        term = self._term("correspondence", network, given, view(network, given), warm=step.phase.warm)
        if not rows:
            return [term]
        of_bank = pairings(batches, codes, rows)
        views = [view(network, pairing) for pairing in of_bank]
        weight = self.bank.weight
        terms = [
            replace(self._term(side, network, pairing, side_view), weight=weight)
            for side, pairing, side_view in zip(SIDES, of_bank, views, strict=True)
            if weight
        ]  # Eq. 10
        if not self.impact.weigh:
            return [term, *terms]
        w = self.impact.confidence(network, k, term, batches, rows, seed, views)
        weighted = Term(term.name, w * term.values, reduction=term.reduction)  # Eq. 9
        return [weighted, *terms, Term("weight", w, weight=0.0)]

    def _bank_rows(self, batches: Sequence[Batch], k: int) -> list[Tensor]:
        """Return for each side the rows of the first batch's bank pairs in the concatenated batches."""
        ids = np.concatenate([batch.ids for batch in batches])
        order = np.argsort(ids, kind="stable")
        device = batches[0].image_rows.device
        rows = [order[np.searchsorted(ids[order], self.bank.pairs(side, batches[0].ids, k))] for side in SIDES]
        return [torch.from_numpy(side).to(device) for side in rows]

    def _term(self, name: str, network: Network, pairing: Pairing, seen: View, warm: bool = False) -> Term:
        """Return the run's ranking loss with every correspondence 1."""
        y = torch.ones_like(seen.similarity.diagonal())
        return self.setting.ranking_term(name, network, pairing, y, warm, seen.similarity, seen.scale)


def change(before: Directions, after: Directions, eps: float = 1e-6) -> Tensor:
    """Return r = (p^s / p^{s+1} + q^s / q^{s+1}) / 2 for every pair (NPC Eq. 7).

    r is below 1 where the step increased the losses.

    Args:
        before: p^s and q^s, the losses from image to text and from text to image, (B,) each, at least 0.
        after: p^{s+1} and q^{s+1}, the same losses after the step.
        eps: Added to every loss. A pair whose losses are all 0 therefore gives 1.

    Returns:
        (B,), above 0.
    """
    p, q = ((loss_before + eps) / (loss_after + eps) for loss_before, loss_after in zip(before, after, strict=True))
    return (p + q) / 2


def confidence(r: Tensor) -> Tensor:
    """Return w = tanh(r) where r < 1, else 1 (NPC Eq. 8); w jumps from tanh(1) = 0.762 to 1 at r = 1."""
    return torch.where(r < 1, r.tanh(), 1.0)


def pairings(batches: Sequence[Batch], coded: Sequence[tuple[Codes, Codes]], rows: Sequence[Tensor]) -> list[Pairing]:
    """Return pairings of some rows of the concatenated batches.

    Args:
        batches: The batches.
        coded: Codes of their images and captions.
        rows: The rows of each pairing, (B,).
    """
    images, texts = (Codes.join(side) for side in zip(*coded, strict=True))
    image_rows, owners = (torch.cat([getattr(b, name) for b in batches]) for name in ("image_rows", "caption_images"))
    text_numbers = [batch.caption_texts for batch in batches if batch.caption_texts is not None]
    numbers = torch.cat(text_numbers) if len(text_numbers) == len(batches) else None
    found = []
    for side in rows:
        exclude = related(image_rows[side], owners[side], None if numbers is None else numbers[side])
        found.append(Pairing(images.rows(side), texts.rows(side), exclude))
    return found


def view(network: Network, pairing: Pairing) -> View:
    """Return the similarities that a network gives a pairing."""
    similarity = network.matcher.similarity(pairing.images, pairing.texts)
    return View(similarity, network.matcher.scale(), pairing.exclude)


@torch.no_grad()
def views_at(
    network: Network, parameters: Mapping[str, Tensor], batches: Sequence[Batch], rows: Sequence[Tensor], seed: int
) -> list[View]:
    """Return pairings of the batches as the network would see them with other parameters, in its present mode.

    There is no gradient. Everything is in float32, since mixed precision rounds small differences of parameters away.
    Batch norms take these batches' statistics in training mode and leave the network's own as they are.

    Args:
        network: The network.
        parameters: All its parameters by name.
        batches: What to encode.
        rows: The pairings, as in `pairings`.
        seed: Seed of the dropout masks.
    """
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    values = {f"network.{name}": value for name, value in {**buffers, **parameters}.items()}
    with torch.autocast(batches[0].image_rows.device.type, enabled=False):
        views: list[View] = functional_call(_Views(network), values, (batches, rows, seed))
    return views


class _Views(nn.Module):
    """Encoding and pairing in one module, since other parameters can be lent to a module only."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, batches: Sequence[Batch], rows: Sequence[Tensor], seed: int) -> list[View]:
        coded = encode(self.network, batches, seed)
        return [view(self.network, pairing) for pairing in pairings(batches, coded, rows)]
