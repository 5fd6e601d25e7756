"""NPC: negative pre-aware matching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from pairsift.arrays import Ints
from pairsift.errors import InputError
from pairsift.match.base import Matcher
from pairsift.methods.base import Epochs, Method
from pairsift.methods.parts.impact import NegativeImpact, View, encode, pairings, view
from pairsift.methods.parts.memory_bank import SIDES, MemoryBank
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.steps import Batch, Network, Pairing, Phase, Request, Term, not_negatives

FINE_TUNING = CLIP.having(epochs={"warmup": 0, "train": 5}, train={"lr": 2e-7, "max_norm": 10.0})


class NPCEpochs(Epochs):
    """The phases of NPC."""

    warmup: int = Field(
        default=0,
        ge=0,
        description="Epochs on all pairs as given, before the bank; at least 1 where the matcher starts untrained.",
    )
    train: int = Field(default=5, ge=0, description="Epochs with the bank; it is made at the start of the first.")


class NPC(Method):
    """The method NPC: a pair weighs less the more a step on its batch harms the clean pairs nearest to it.

    A memory bank holds, for every pair, the clean pair with the nearest image and the one with the nearest text. A step
    asks what an optimizer step on its batch would do to the losses of the batch's bank pairs (Eq. 6 and 7), weights the
    batch by the answer (Eq. 8 and 9) and trains on it together with the bank pairs (Eq. 10 and 11).

    The paper trains a copy A' of the model; here theta' is computed instead: the parameters after a step of the
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
    as in the code). A pair of the same image is no negative of another, also among the bank pairs of a batch, of which
    one can come several times.

    For heads trained from nothing on noisy pairs 0.99 leaves too few pairs: the preset `two_tower` takes a lower
    threshold, makes the bank every epoch and gives it more weight, as chosen on dev.

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
        "paper": FINE_TUNING.having(bank={"least": 0.0}),
        "clip": FINE_TUNING,
        "scratch": Preset({"epochs": {"warmup": 5, "train": 40}}, PAPER.train, "infonce", PAPER.losses),
        "two_tower": TWO_TOWER.having(
            epochs={"warmup": 2, "train": 6}, bank={"threshold": 0.8, "refresh": True, "weight": 3.0}
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
                requests["bank"] = Request(np.append(bank_ids, rows[: len(bank_ids) == 1]))  # a batch norm needs two
        return requests

    def _reads_bank(self, ids: Ints, network: int) -> bool:
        """Return whether a step on these pairs has a bank and reads it."""
        return (self.impact.weigh or self.bank.weight > 0) and self.bank.made_for(ids, network)

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Return L_RCE + L_MB (Eq. 11)."""
        network, batch = networks[k], batches["all"]
        parts = [batch, *([batches["bank"]] if "bank" in batches else [])]
        places = self._places(parts, k) if self._reads_bank(batch.ids, k) else []
        seed = int(torch.randint(2**31, ()))
        codes = encode(network, parts, seed)
        given = Pairing(*codes[0], not_negatives(batch))
        term = self._term("correspondence", network, given, view(network, given), warm=phase.warm)
        if not places:
            return [term]
        of_bank = pairings(parts, codes, places)
        views = [view(network, pairing) for pairing in of_bank]
        weight = self.bank.weight
        terms = [
            replace(self._term(side, network, pairing, side_view), weight=weight)
            for side, pairing, side_view in zip(SIDES, of_bank, views, strict=True)
            if weight
        ]  # Eq. 10
        if not self.impact.weigh:
            return [term, *terms]
        w = self.impact.confidence(network, k, term, parts, places, seed, views)
        weighted = Term(term.name, w * term.values, reduction=term.reduction)  # Eq. 9
        return [weighted, *terms, Term("weight", w, weight=0.0)]

    def _places(self, parts: Sequence[Batch], k: int) -> list[Tensor]:
        """Return, for each side of MB_batch, the rows of the first batch's bank pairs in the concatenated batches."""
        ids = np.concatenate([batch.ids for batch in parts])
        order = np.argsort(ids, kind="stable")
        device = parts[0].image_rows.device
        rows = [order[np.searchsorted(ids[order], self.bank.pairs(side, parts[0].ids, k))] for side in SIDES]
        return [torch.from_numpy(places).to(device) for places in rows]

    def _term(self, name: str, network: Network, pairing: Pairing, seen: View, warm: bool = False) -> Term:
        """Return the run's ranking loss with every correspondence 1."""
        y = torch.ones_like(seen.similarity.diagonal())
        return self.setting.ranking_term(name, network, pairing, y, warm, seen.similarity, seen.scale)
