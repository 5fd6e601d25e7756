"""RCL: robust cross-modal learning by complementary contrastive losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from pairsift.loss.complementary import Form, complementary
from pairsift.match.base import scale_at
from pairsift.methods.plain import AllPairs, LossEpochs
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.steps import Step, Term, not_negatives


class RCL(AllPairs):
    """The method RCL: no pair is pulled together, all others are pushed apart.

    Most captions of a batch do not belong to a given image, also where the given caption does not. So the loss only
    asks that the probabilities of the negatives be small, and a wrong positive does little harm. No pair is divided
    and nothing is remembered. `log` is bounded by no number, but stays finite where a negative has all the
    probability. The published code's random subset of negatives is left out.
    """

    name: ClassVar[str] = "rcl"
    citation: ClassVar[str] = """
@article{hu2023rcl,
  author = {Hu, Peng and Huang, Zhenyu and Peng, Dezhong and Wang, Xu and Peng, Xi},
  title = {Cross-Modal Retrieval with Partially Mismatched Pairs},
  journal = {IEEE Transactions on Pattern Analysis and Machine Intelligence},
  volume = {45},
  number = {8},
  pages = {9595--9610},
  year = {2023}
}
"""
    presets: ClassVar[Mapping[str, Preset]] = {
        # As the README of the authors' code has it; its script has 2e-4, 30 epochs and a fall at 15.
        "paper": Preset({"networks": 1}, {**PAPER.train, "lr": 5e-4}),
        "paper_coco": Preset({"epochs": {"train": 20}, "networks": 1}, {**PAPER.train, "lr": 5e-4, "decay_epoch": 10}),
        "two_tower": TWO_TOWER.plus({"batch_limit": 128}, epochs={"train": None}, tau=0.1),
        "clip": CLIP.plus(epochs={"train": 5}, tau=0.0, networks=1),
    }

    epochs: LossEpochs = LossEpochs()
    form: Form = Field(default="log", description="The function of a negative's probability.")
    q: float = Field(default=0.5, gt=0, le=1, description="Exponent of the form gce; mae at 1, close to log near 0.")
    tau: float = Field(default=0.05, ge=0, description="Temperature of the softmax; 0 for the matcher's own.")

    def step(self, step: Step) -> list[Term]:
        """Return the complementary loss of the pairs as given; in the warm-up the ranking loss."""
        if step.phase.warm:
            return [self.setting.ranking_loss(step)]
        similarity, _ = step.network(step.batch)
        logits = similarity * scale_at(step.network.matcher, self.tau)
        values = complementary(logits, not_negatives(step.batch), self.form, self.q)
        return [Term("complementary", values, reduction=self.setting.ranking.reduction)]
