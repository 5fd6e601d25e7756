"""crossfit: every pair weighs as far as models believe it that did not see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from pairsift.methods.base import Method
from pairsift.methods.plain import TrainEpochs, believing
from pairsift.methods.presets import CLIP_LINEAR, PAPER, TWO_TOWER_LINEAR, Preset
from pairsift.steps import Batch, Network, Phase, Setting, Term, correspond


class Crossfit(Method):
    """The method that weights every pair by models that were not fitted to it.

    The correspondence y of a pair is its match probability by held-out evidence, from before the training. Where that
    finds less than 1% of mismatched pairs, every y is 1, as for `plain`. Pairs of little trust stay in the batches, as
    negatives of the others.
    """

    name: ClassVar[str] = "crossfit"
    competes_with_linear: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER,
        "two_tower": TWO_TOWER_LINEAR.having(epochs={"warmup": 0, "train": None}),
        "clip": CLIP_LINEAR.having(epochs={"warmup": 0, "train": 5}),
    }

    epochs: TrainEpochs = TrainEpochs()
    networks: int = Field(default=2, ge=1, le=8, description="How many networks train, independently of each other.")

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up and training, on all pairs."""
        return self.epochs.phases(self.setting_if_any)

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Return the ranking loss on the pairs as given, weighed by their probability of a match."""
        batch = batches["all"]
        y = held_out_correspondence(self.setting, batch)
        return [believing(self.setting, networks[k], batch, y, phase)]


def held_out_correspondence(setting: Setting, batch: Batch) -> Tensor:
    """Return y, the probability of a match by held-out evidence, (B,); 1 where less than 1% is mismatched."""
    prior = setting.prior
    if prior is None or not prior.finds_mismatches:
        return torch.ones(len(batch), device=batch.image_rows.device)
    return correspond(prior.probability, batch.ids, batch.image_rows)
