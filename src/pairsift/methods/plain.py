"""No protection at all, and the yardstick that knows the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import ClassVar

import torch

from pairsift.methods.base import Batch, Method, Network, Pairing, Phase, Setting, Term, demand, not_negatives
from pairsift.pairs.pairs import Ints

PAPER = {
    "loss": "hinge",
    "hinge.reduction": "sum",
    "batch_size": 128,
    "lr": 2e-4,
    "weight_decay": 0.0,
    "schedule": "step",
    "decay_epoch": 30,
    "max_norm": 2.0,
}

# With batches of 512 and a one-cycle rate the hardest negatives collapse from the second epoch on; their mean does not.
TWO_TOWER = {"hinge.negatives": "mean", "hinge.reduction": "sum"}

# Fine-tuning as the baseline of NPC (Zhang et al., AAAI 2024) does it: five epochs in all.
CLIP = {"loss": "infonce", "batch_size": 256, "lr": 5e-7, "weight_decay": 0.2, "warmup_steps": 500}


class Plain(Method):
    """Every pair is believed: the ranking loss with y = 1.

    Args:
        warmup_epochs: Epochs with the ranking loss in its warm-up form (for the hinge: the mean of all negatives).
        epochs: Epochs after that.
        networks: How many networks are trained, independently of each other.
    """

    name: ClassVar[str] = "plain"
    summary: ClassVar[str] = "no protection: every pair is believed"
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "paper": PAPER,
        "two_tower": {**TWO_TOWER, "plain.warmup_epochs": 1, "plain.epochs": 7},
        "clip": {**CLIP, "plain.warmup_epochs": 0, "plain.epochs": 5},
    }

    def __init__(self, warmup_epochs: int = 5, epochs: int = 40, networks: int = 2) -> None:
        self.warmup_epochs, self.epochs, self.networks = warmup_epochs, epochs, networks
        demand(self, 0, inf, "warmup_epochs", "epochs")
        demand(self, 1, 8, "networks")

    def phases(self) -> tuple[Phase, ...]:
        """Warm-up, then training, on all pairs."""
        return Phase("warm-up", self.warmup_epochs, warm=True), Phase("train", self.epochs)

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """The ranking loss on the pairs as given."""
        batch = batches["all"]
        images, texts = networks[k].encode(batch)
        pairing = Pairing(images, texts, not_negatives(batch))
        y = torch.ones(len(batch), device=images.vectors.device)
        return [self.ranking_term("correspondence", networks[k], pairing, y, phase.warm)]


class Oracle(Plain):
    """`plain` on the pairs that truly match: what a perfect detector would give. Only where the truth is known.

    Args:
        warmup_epochs: As for `plain`.
        epochs: As for `plain`.
        networks: As for `plain`.
    """

    name: ClassVar[str] = "oracle"
    summary: ClassVar[str] = "plain on the truly matching pairs, to measure against; needs the truth"
    needs_truth: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "paper": PAPER,
        "two_tower": {**TWO_TOWER, "oracle.warmup_epochs": 1, "oracle.epochs": 7},
        "clip": {**CLIP, "oracle.warmup_epochs": 0, "oracle.epochs": 5},
    }

    def begin(self, setting: Setting) -> None:
        """Keep only the pairs that truly match."""
        assert setting.matched is not None, "the oracle needs the truth"
        super().begin(setting)
        self._true: Ints = setting.ids[setting.matched[setting.ids]]

    def subset(self, name: str, network: int) -> Ints:
        """The truly matching pairs stand for all."""
        return self._true
