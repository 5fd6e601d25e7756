"""NPC: negative pre-aware matching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pairsift.errors import InputError
from pairsift.loss.impact import Directions, change, confidence
from pairsift.match.base import Matcher
from pairsift.methods.base import Array, Batch, Network, Pairing, Phase, Setting, Term, demand, not_negatives
from pairsift.methods.division import DividingMethod
from pairsift.methods.plain import CLIP, PAPER, TWO_TOWER
from pairsift.methods.siamese import View, encode, pairings, view, views_at
from pairsift.pairs.pairs import Ints
from pairsift.trust.nearest import nearest_clean

SIDES = ("by_image", "by_text")
FINE_TUNING = {**CLIP, "lr": 2e-7, "max_norm": 10.0, "npc.warmup_epochs": 0, "npc.epochs": 5}


class NPC(DividingMethod):
    """Each pair weighs as little as a step on its batch would harm the clean pairs nearest to it.

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

    State beside `clean_probability`: `by_image` and `by_text`, (networks, n_pairs), ids of each pair's bank pairs; -1
    until the bank is made.

    Args:
        warmup_epochs: Epochs on all pairs as given, before the bank; at least 1 where the matcher starts untrained.
        epochs: Epochs with the bank; it is made at the start of the first.
        threshold: Clean probability from which on the bank takes a pair, tau in [0, 1].
        least: Smallest share of the pairs that the bank takes; where fewer reach the threshold, those of least loss.
        refresh: Whether the bank is made anew at the start of every epoch.
        self_match: Whether a pair that the bank takes may be its own bank pair.
        weigh: Whether pairs are weighted by their negative impact (Eq. 8); 1 otherwise.
        momentum: Whether theta' has the optimizer's momentum, to which this batch contributes a tenth.
        bank_weight: Weight of the bank's loss L_MB (Eq. 11); 0 leaves it out.
        networks: 1, or 2 that use each other's bank.
    """

    name: ClassVar[str] = "npc"
    summary: ClassVar[str] = "memory bank of clean pairs, weights by negative impact; for matchers that start trained"
    citation: ClassVar[str] = "Zhang et al., Negative Pre-aware for Noisy Cross-Modal Matching, AAAI 2024"
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "paper": FINE_TUNING,
        "clip": FINE_TUNING,
        "scratch": {**PAPER, "loss": "infonce", "npc.warmup_epochs": 5, "npc.epochs": 40},
        "two_tower": {
            **TWO_TOWER,
            "npc.warmup_epochs": 2,
            "npc.epochs": 6,
            "npc.threshold": 0.8,
            "npc.refresh": True,
            "npc.bank_weight": 3.0,
        },
    }

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        warmup_epochs: int = 0,
        epochs: int = 5,
        threshold: float = 0.99,
        least: float = 0.05,
        refresh: bool = False,
        self_match: bool = True,
        weigh: bool = True,
        momentum: bool = False,
        bank_weight: float = 1.0,
        networks: int = 1,
    ) -> None:
        self.warmup_epochs, self.epochs, self.threshold, self.least = warmup_epochs, epochs, threshold, least
        self.refresh, self.self_match, self.weigh, self.bank_weight = refresh, self_match, weigh, bank_weight
        self.momentum, self.networks = momentum, networks

        demand(self, 0, inf, "warmup_epochs", "epochs", "bank_weight")
        demand(self, 0, 1, "threshold", "least")
        demand(self, 1, 2, "networks")

    def check(self, matcher: type[Matcher]) -> None:
        """The bank needs a network that has learned something."""
        if self.epochs and not self.warmup_epochs and not matcher.starts_trained:
            raise InputError(
                f"npc makes its bank by what the network knows, and {matcher.name} starts untrained: "
                "take --preset scratch, or give npc.warmup_epochs at least 1 and a learning rate that suits it"
            )

    def phases(self) -> tuple[Phase, ...]:
        """Warm-up, the epoch that starts by making the bank, and the rest."""
        first = min(1, self.epochs)
        return (
            Phase("warm-up", self.warmup_epochs, warm=True),
            Phase("bank", first, observe=True),
            Phase("train", self.epochs - first, observe=self.refresh),
        )

    def begin(self, setting: Setting) -> None:
        """Every pair starts as clean, without bank pairs."""
        super().begin(setting)
        for side in SIDES:
            self.state[side] = np.full((self.networks, len(setting.image_of)), -1, np.int64)

    def observe(self, network: Network, batch: Batch) -> dict[str, Tensor]:
        """The loss by which pairs are divided, and both global vectors."""
        images, texts = network.encode(batch)
        similarity = network.matcher.similarity(images, texts)
        loss = self.setting.ranking.observe(similarity, network.matcher.scale(), not_negatives(batch))
        return {"loss": loss, "by_image": images.vectors, "by_text": texts.vectors}

    def update(self, seen: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """Clean probabilities from the losses (Eq. 3 and 4), and from D_c = {p >= tau} (Eq. 5) the bank."""
        super().update(seen, epoch)
        ids = self.setting.ids
        captions = np.arange(len(ids))
        for k, notes in enumerate(seen):
            passed = int((self.state["clean_probability"][k, ids] >= self.threshold).sum())
            few = min(len(ids), max(2, ceil(self.least * len(ids))))
            clean = np.argsort(notes["loss"], kind="stable")[: max(passed, few)]  # p never rises with the loss
            for side, items in zip(SIDES, (self.setting.image_of[ids], captions), strict=True):
                self.state[side][k, ids] = ids[nearest_clean(notes[side], items, clean, self.self_match)]

    def facts(self) -> dict[str, float]:
        """The estimated share of mismatched pairs; once there is a bank, how many reach tau and how many it takes."""
        ids = self.setting.ids
        if (self.state["by_image"][:, ids] < 0).any():
            return super().facts()
        passed = float((self.state["clean_probability"][:, ids] >= self.threshold).mean())
        return {**super().facts(), "reach_threshold": passed, "bank_share": max(passed, self.least)}

    def companions(self, wanted: Mapping[str, Ints], network: int) -> Mapping[str, Ints]:
        """The bank pairs of the step's pairs that are not among these, once there is a bank and somebody reads it."""
        ids = wanted["all"]
        if not self._banked(ids, network):
            return {}
        more = np.setdiff1d(np.concatenate([self._bank(side, ids, network) for side in SIDES]), ids)
        return {"bank": np.append(more, ids[: len(more) == 1])} if len(more) else {}  # a batch norm needs two

    def _bank(self, side: str, ids: Ints, network: int) -> Ints:
        """Ids of the bank pairs of these pairs, (len(ids),)."""
        return np.asarray(self.believed(side, network)[ids], np.int64)

    def _banked(self, ids: Ints, network: int) -> bool:
        """Whether a step on these pairs has a bank and reads it."""
        used = self.weigh or self.bank_weight > 0
        return used and all((self._bank(side, ids, network) >= 0).all() for side in SIDES)

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """L_RCE + L_MB (Eq. 11)."""
        own, given = networks[k], batches["all"]
        lot = [given, *([batches["bank"]] if "bank" in batches else [])]
        places = self._places(lot, k) if self._banked(given.ids, k) else []
        seed = int(torch.randint(2**31, ()))
        coded = encode(own, lot, seed)
        first = self._term("correspondence", view(own, Pairing(*coded[0], not_negatives(given))), warm=phase.warm)
        if not places:
            return [first]
        seen = [view(own, pair) for pair in pairings(lot, coded, places)]
        entries = zip(SIDES, seen, strict=True)
        terms = [self._term(side, one, self.bank_weight) for side, one in entries if self.bank_weight]  # Eq. 10
        if not self.weigh:
            return [first, *terms]
        after = views_at(own, self._after(own, first), lot, places, seed)
        if torch.is_autocast_enabled(first.values.device.type):  # `seen` is too coarse to be compared with
            seen = views_at(own, dict(own.named_parameters()), lot, places, seed)
        w = confidence(change(self._losses(seen), self._losses(after)))
        weighted = Term(first.name, w * first.values, reduction=first.reduction)  # Eq. 9
        return [weighted, *terms, Term("weight", w, weight=0.0)]

    def _places(self, lot: Sequence[Batch], k: int) -> list[Tensor]:
        """For each side of MB_batch, where the first batch's bank pairs lie in all batches one after the other."""
        ids = np.concatenate([batch.ids for batch in lot])
        order = np.argsort(ids, kind="stable")
        device = lot[0].image_rows.device
        found = [order[np.searchsorted(ids[order], self._bank(side, lot[0].ids, k))] for side in SIDES]
        return [torch.from_numpy(places).to(device) for places in found]

    def _term(self, name: str, seen: View, weight: float = 1.0, warm: bool = False) -> Term:
        """The run's ranking loss, believing every pair."""
        ranking, y = self.setting.ranking, torch.ones_like(seen.similarity.diagonal())
        return Term(name, ranking(seen.similarity, seen.scale, y, seen.exclude, warm), weight, ranking.reduction)

    def _after(self, own: Network, given: Term) -> dict[str, Tensor]:
        """theta', the parameters after a step on the batch as given."""
        assert own.after is not None, "the loop has not said what a step does"
        parameters = {name: parameter for name, parameter in own.named_parameters() if parameter.requires_grad}
        gradients = torch.autograd.grad(
            given.reduced(), list(parameters.values()), retain_graph=True, allow_unused=True
        )
        found = {name: g for name, g in zip(parameters, gradients, strict=True) if g is not None}
        return own.after(found, self.momentum)

    @torch.no_grad()
    def _losses(self, seen: Sequence[View]) -> Directions:
        """p and q of every pair, its bank pairs' losses from image to text and from text to image (Eq. 6)."""
        p, q = zip(
            *(self.setting.ranking.directions(one.similarity, one.scale, one.exclude) for one in seen), strict=True
        )
        return torch.stack(p).sum(0), torch.stack(q).sum(0)
