"""The yardstick that knows the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from pydantic import Field

from pairsift.arrays import Ints
from pairsift.methods.base import Method
from pairsift.methods.plain import TrainEpochs, believing
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.steps import Batch, Network, Phase, Term


class Oracle(Method):
    """`plain` on the pairs that truly match: what a perfect detector would give. Only where the truth is known."""

    name: ClassVar[str] = "oracle"
    needs_truth: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER,
        "two_tower": TWO_TOWER.having(epochs={"warmup": 1, "train": None}),
        "clip": CLIP.having(epochs={"warmup": 0, "train": 5}),
    }

    epochs: TrainEpochs = TrainEpochs()
    networks: int = Field(default=2, ge=1, le=8, description="How many networks train, independently of each other.")

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up and training, on the true pairs."""
        return self.epochs.phases(self.setting_if_any)

    def subset(self, name: str, network: int) -> Ints:
        """Return the truly matching pairs, which stand for all."""
        matched, ids = self.setting.matched, self.setting.ids
        assert matched is not None, "the oracle needs the truth"
        return ids[matched[ids]]

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Return the ranking loss on the pairs as given."""
        batch = batches["all"]
        y = torch.ones(len(batch), device=batch.image_rows.device)
        return [believing(self.setting, networks[k], batch, y, phase)]
