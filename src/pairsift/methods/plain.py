"""No protection at all, and the yardstick that knows the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pairsift.methods.base import (
    Batch,
    Method,
    Network,
    Pairing,
    Phase,
    Setting,
    Term,
    correspond,
    demand,
    not_negatives,
)
from pairsift.pairs.pairs import Ints

STEPS = 400  # of a run whose number of epochs is left open

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


def epochs_for(pairs: int, batch_size: int) -> int:
    """Return the number of epochs that make about 400 steps, at least 8 and at most 60."""
    return int(np.clip(np.ceil(STEPS * batch_size / max(1, pairs)), 8, 60))


class Plain(Method):
    """Every pair is believed: the ranking loss with y = 1.

    Args:
        warmup_epochs: Epochs with the ranking loss in its warm-up form (for the hinge: the mean of all negatives).
        epochs: Epochs after that; 0 for as many as make about 400 steps in all, at least 8 epochs and at most 60.
        networks: How many networks are trained, independently of each other.
    """

    name: ClassVar[str] = "plain"
    summary: ClassVar[str] = "no protection: every pair is believed"
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "paper": PAPER,
        "two_tower": {**TWO_TOWER, "plain.warmup_epochs": 1, "plain.epochs": 0},
        "clip": {**CLIP, "plain.warmup_epochs": 0, "plain.epochs": 5},
    }

    open_epochs: ClassVar[Mapping[str, int]] = {"epochs": 7}

    def __init__(self, warmup_epochs: int = 5, epochs: int = 40, networks: int = 2) -> None:
        self.warmup_epochs, self.epochs, self.networks = warmup_epochs, epochs, networks
        demand(self, 0, inf, "warmup_epochs", "epochs")
        demand(self, 1, 8, "networks")
        self._epochs = max(1, epochs)

    def settle(self, pairs: int, batch_size: int) -> None:
        """Choose the number of epochs where it is left open."""
        if not self.epochs:
            self._epochs = max(1, epochs_for(pairs, batch_size) - self.warmup_epochs)

    def phases(self) -> tuple[Phase, ...]:
        """Warm-up, then training, on all pairs."""
        return Phase("warm-up", self.warmup_epochs, warm=True), Phase("train", self._epochs)

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """The ranking loss on the pairs as given."""
        batch = batches["all"]
        images, texts = networks[k].encode(batch)
        pairing = Pairing(images, texts, not_negatives(batch))
        return [self.ranking_term("correspondence", networks[k], pairing, self.correspondence(batch), phase.warm)]

    def correspondence(self, batch: Batch) -> Tensor:
        """y, 1 for every pair, (B,)."""
        return torch.ones(len(batch), device=batch.image_rows.device)


class Crossfit(Plain):
    """Every pair counts as far as models believe it that did not see it; the default.

    The correspondence y of a pair is its match probability by held-out evidence, from before the training. Where that
    finds less than 1% of mismatched pairs, every y is 1, as for `plain`. Pairs of little trust stay in the batches, as
    negatives of the others.

    Args:
        warmup_epochs: Epochs with the ranking loss in its warm-up form, for the hinge.
        epochs: As for `plain`.
        networks: As for `plain`.
    """

    name: ClassVar[str] = "crossfit"
    summary: ClassVar[str] = "pairs weigh as far as models believe them that did not see them; the default"
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "paper": PAPER,
        "two_tower": {**TWO_TOWER, "infonce.base": 1.0, "crossfit.warmup_epochs": 0, "crossfit.epochs": 0},
        "clip": {**CLIP, "infonce.base": 1.0, "crossfit.warmup_epochs": 0, "crossfit.epochs": 5},
    }

    def correspondence(self, batch: Batch) -> Tensor:
        """y, the probability of a match by held-out evidence, (B,)."""
        prior = self.setting.prior
        if prior is None or prior.rate < 0.01:
            return super().correspondence(batch)
        return correspond(prior.probability, batch.ids, batch.image_rows)


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
        "two_tower": {**TWO_TOWER, "oracle.warmup_epochs": 1, "oracle.epochs": 0},
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
