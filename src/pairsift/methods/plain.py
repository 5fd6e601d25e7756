"""plain: every pair is believed. Also the base of methods that train on all pairs throughout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np
from pydantic import Field

from pairsift.methods.base import Epochs, Method
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.steps import Phase, Setting, Step, Term

STEPS = 400  # of a run whose number of epochs is left open
DEFAULT_EPOCHS = 7  # epochs after the warm-up where the number of pairs is not known yet


class TrainEpochs(Epochs):
    """The phases of methods that train on all pairs throughout."""

    spare: ClassVar[tuple[str, ...]] = ("warmup",)

    warmup: int = Field(
        default=5,
        ge=0,
        description="Epochs with the ranking loss in its warm-up form (for the hinge: the mean of all negatives).",
    )
    train: int | None = Field(
        default=40,
        ge=0,
        description="Epochs after that; left open (null in YAML): as many as make about 400 steps in all, 8 to 60, and "
        "fewer where recall on dev makes no more progress.",
    )

    def phases(self, setting: Setting | None) -> tuple[Phase, ...]:
        """Return warm-up and training; `setting` and recall on dev decide about a length that is left open."""
        length = self.train if self.train is not None else usual_epochs(setting, self.warmup)
        return Phase("warm-up", self.warmup, warm=True), Phase("train", length, may_end=self.train is None)

    def scaled(self, total: int) -> Self:
        """Return the phases scaled as in `Epochs`. An open length counts as the usual one."""
        if self.train is None:
            return self.replaced(train=DEFAULT_EPOCHS).scaled(total)
        return super().scaled(total)


def usual_epochs(setting: Setting | None, warmup: int = 0) -> int:
    """Return the length of a phase that is left open: about 400 steps with the warm-up, or 7 epochs without a setting.

    Args:
        setting: The setting of the run; None before the number of pairs is known.
        warmup: Epochs of the warm-up before the phase.
    """
    return DEFAULT_EPOCHS if setting is None else max(1, epochs_for(len(setting.ids), setting.batch_size) - warmup)


def epochs_for(pairs: int, batch_size: int) -> int:
    """Return the number of epochs that make about 400 steps, at least 8 and at most 60."""
    return int(np.clip(np.ceil(STEPS * batch_size / max(1, pairs)), 8, 60))


class AllPairs(Method):
    """The base of methods whose networks train independently of each other, on all pairs throughout."""

    epochs: TrainEpochs = TrainEpochs()
    networks: int = Field(default=2, ge=1, le=8, description="How many networks train, independently of each other.")

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up and training, on all pairs."""
        return self.epochs.phases(self.setting_if_any)


class LossEpochs(TrainEpochs):
    """The phases of methods that are a robust loss on all pairs."""

    warmup: int = Field(default=0, ge=0, description="Epochs with the run's ranking loss before the robust one.")


class Plain(AllPairs):
    """The training without protection: the ranking loss with y = 1 for every pair."""

    name: ClassVar[str] = "plain"
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER,
        "two_tower": TWO_TOWER.plus(epochs={"warmup": 1, "train": None}),
        "clip": CLIP.plus(epochs={"warmup": 0, "train": 5}, networks=1),  # the baseline of NPC
    }

    def step(self, step: Step) -> list[Term]:
        """Return the ranking loss on the pairs as given."""
        return [self.setting.ranking_loss(step)]
