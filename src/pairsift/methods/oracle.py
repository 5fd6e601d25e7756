"""oracle: training on the pairs that truly match, to measure against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from pairsift.arrays import Ints
from pairsift.methods.plain import AllPairs
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.steps import Phase, Step, Term


class Oracle(AllPairs):
    """The training on the pairs that truly match, as after a perfect detector; the truth must be known.

    With as many epochs as `plain` it takes fewer steps, since an epoch has fewer pairs. With `as_many_steps` its phases
    are longer, so that it takes as many as `plain`.
    """

    name: ClassVar[str] = "oracle"
    needs_truth: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER,
        "two_tower": TWO_TOWER.plus(epochs={"warmup": 1, "train": None}),
        "clip": CLIP.plus(epochs={"warmup": 0, "train": 5}),
    }

    as_many_steps: bool = Field(
        default=False, description="Whether phases are lengthened to as many steps as plain takes."
    )

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up and training, on the true pairs."""
        phases, setting = super().phases(), self.setting_if_any
        if not self.as_many_steps or setting is None:
            return phases
        factor = len(setting.ids) / max(1, len(self.subset("all", 0)))
        return tuple(replace(phase, epochs=round(factor * phase.epochs)) for phase in phases)

    def subset(self, name: str, network: int) -> Ints:
        """Return the truly matching pairs, which stand for all."""
        matches, ids = self.setting.matched, self.setting.ids
        assert matches is not None, "the oracle needs the truth"
        return ids[matches[ids]]

    def step(self, step: Step) -> list[Term]:
        """Return the ranking loss on the pairs as given."""
        return [self.setting.ranking_loss(step)]
