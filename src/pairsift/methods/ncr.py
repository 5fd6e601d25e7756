"""NCR: learning with noisy correspondence by co-dividing and co-rectifying."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from pairsift.arrays import Ints
from pairsift.loss.ranking import hinge
from pairsift.methods.base import DividedEpochs, Method
from pairsift.methods.parts.division import Division, rectified
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.steps import Batch, Network, Phase, Step, Term, not_negatives


class NCR(Method):
    """The method NCR: rectified soft margins on clean pairs, then on noisy pairs too.

    A clean pair's label is y = w + (1 - w) P(I, T) with its own network's prediction P; a noisy pair's label is the
    mean of both networks' predictions. The label sets the margin (hinge) or the weight (InfoNCE) of the pair. Noisy
    pairs are left out of the first half after the warm-up. The paper's labels are per pair: the published code makes
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
    margin: float = Field(default=0.2, ge=0, description="Margin inside the prediction P, in units of the similarity.")

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, clean pairs, all pairs."""
        return self.epochs.phases()

    def subset(self, name: str, network: int) -> Ints:
        """Return `clean` and `noisy` pairs by the peer's division, or `all`."""
        return self.division.subset(name, network)

    def step(self, step: Step) -> list[Term]:
        """Return terms of clean (or all) pairs with y = w + (1 - w) P_k, noisy pairs with y = (P_1 + P_2) / 2."""
        terms = []
        for subset, batch in step.batches.items():
            w = self.division.of_batch("clean_probability", step.k, batch)
            if subset == "all":
                y = torch.ones_like(w)
            elif subset == "clean":
                y = rectified(w, self.predict(step.network, batch))
            else:
                y = torch.stack([self.predict(network, batch) for network in step.networks]).mean(0)
            pairing = step.network.pairing(batch)
            terms.append(self.setting.ranking_term(subset, step.network, pairing, y, step.phase.warm))
        return terms

    @torch.no_grad()
    def predict(self, network: Network, batch: Batch) -> Tensor:
        """Return P(I, T), how far each pair is from the batch's negatives as a probability, (B,), in [0, 1].

        P = clip(a - (mean hinge over captions + mean hinge over images) / 2, 0, a), divided by the mean of the
        batch's highest tenth and clipped to 1, in evaluation mode.
        """
        similarity, _ = network.judge(batch)
        margin = torch.full_like(similarity.diagonal(), self.margin)
        p = (self.margin - hinge(similarity, margin, "mean", not_negatives(batch)) / 2).clamp(0, self.margin)
        top = p.topk(len(p) // 10 + 1).values.mean()
        return (p / top.clamp(min=1e-6)).clamp(max=1)
