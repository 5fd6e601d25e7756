"""crossfit: pairs weigh by their match probability under models that were not fitted to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from pairsift.methods.plain import AllPairs
from pairsift.methods.presets import CLIP_LINEAR, PAPER, TWO_TOWER_LINEAR, Preset
from pairsift.steps import Batch, Setting, Step, Term, gather_rows


def weighed_by_evidence() -> Any:
    """Return the option `evidence` of methods that are made of it."""
    return Field(
        default=True,
        description="Whether pairs are weighed by held-out evidence, and near-duplicate images and equal captions are "
        "no negatives of each other; without it the first networks train as those of `plain` do.",
    )


class Crossfit(AllPairs):
    """The method that weights every pair by models that were not fitted to it.

    The correspondence y of a pair is its match probability by held-out evidence, from before the training. Where that
    finds less than 1% of mismatched pairs, every y is 1, as for `plain`. Doubtful pairs stay in the batches, as
    negatives of the others.
    """

    name: ClassVar[str] = "crossfit"
    competes_with_linear: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER,
        "two_tower": TWO_TOWER_LINEAR.plus(epochs={"warmup": 0, "train": None}),
        "clip": CLIP_LINEAR.plus(epochs={"warmup": 0, "train": 5}),
    }

    evidence: bool = weighed_by_evidence()

    def step(self, step: Step) -> list[Term]:
        """Return the ranking loss on the pairs as given, weighed by their match probability."""
        return [self.setting.ranking_loss(step, held_out_correspondence(self.setting, step.batch))]


def held_out_correspondence(setting: Setting, batch: Batch) -> Tensor:
    """Return y, the probability of a match by held-out evidence, (B,); 1 where less than 1% is mismatched."""
    prior = setting.prior
    if prior is None or not prior.finds_mismatches:
        return torch.ones(len(batch), device=batch.image_rows.device)
    return gather_rows(prior.probability, batch.ids, batch.image_rows)
