"""NCR: learning with noisy correspondence by co-dividing and co-rectifying."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from pairsift.arrays import Ints
from pairsift.methods.base import DividedEpochs, LabelledSets
from pairsift.methods.parts.division import Division, rectified
from pairsift.methods.parts.prediction import MARGIN, predict
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.steps import Phase, Step, Term


class NCR(LabelledSets):
    """The method NCR: rectified soft margins on clean pairs, then on noisy pairs too.

    A clean pair's label is y = w + (1 - w) P(I, T) with its own network's prediction P; a noisy pair's label is the
    mean of both networks' predictions. The label sets the margin (hinge) or the weight (InfoNCE) of the pair. Noisy
    pairs are left out of the first half after the warm-up, and then have an optimizer step of their own after that of
    the clean pairs, by labels from before both. The paper's labels are per pair: the published code makes
    a (B, B) matrix of them by broadcasting, and takes the margin along the wrong axis in one direction.
    """

    name: ClassVar[str] = "ncr"
    citation: ClassVar[str] = """
@inproceedings{huang2021ncr,
  author = {Huang, Zhenyu and Niu, Guocheng and Liu, Xiao and Ding, Wenbiao and Xiao, Xinyan and Wu, Hua and Peng, Xi},
  title = {Learning with Noisy Correspondence for Cross-modal Matching},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {34},
  pages = {29406--29419},
  year = {2021}
}
"""
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER,
        "paper_coco": PAPER.plus(epochs={"warmup": 10, "clean": 10, "all": 10}, train={"decay_epoch": 10}),
        "paper_cc152k": PAPER.plus(epochs={"warmup": 10}),
        "two_tower": TWO_TOWER.plus(epochs={"warmup": 2, "clean": 3, "all": 3}),
        "clip": CLIP.plus(epochs={"warmup": 1, "clean": 2, "all": 2}),
    }

    epochs: DividedEpochs = DividedEpochs()
    division: Division = Division()
    margin: float = Field(
        default=MARGIN, ge=0, description="Margin inside the prediction P, in units of the similarity."
    )

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, clean pairs, all pairs."""
        return self.epochs.phases()

    def subset(self, name: str, network: int) -> Ints:
        """Return `clean` and `noisy` pairs by the peer's division, or `all`."""
        return self.division.subset(name, network)

    def label(self, step: Step, name: str) -> Tensor:
        """Return y = w + (1 - w) P_k of clean pairs, (P_1 + P_2) / 2 of noisy pairs, and 1 in the warm-up, (B,)."""
        batch = step.batches[name]
        w = self.division.of_batch("clean_probability", step.k, batch)
        if name == "all":
            return torch.ones_like(w)
        if name == "clean":
            return rectified(w, predict([step.network], batch, self.margin))
        return predict(step.networks, batch, self.margin)

    def terms(self, step: Step, name: str, labels: Mapping[str, Tensor]) -> list[Term]:
        """Return the ranking loss of a subset by its labels."""
        pairing = step.network.pairing(step.batches[name])
        return [self.setting.ranking_term(name, step.network, pairing, labels[name], step.phase.warm)]
