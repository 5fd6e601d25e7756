"""RCL: robust cross-modal learning by complementary contrastive losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from pairsift.loss.complementary import Form, complementary
from pairsift.match.base import scale_at
from pairsift.methods.base import Method
from pairsift.methods.plain import LossEpochs, robust
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.steps import Batch, Network, Phase, Term, not_negatives


class RCL(Method):
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
        "paper": Preset({"networks": 1}, PAPER.train),
        "paper_coco": Preset({"epochs": {"train": 20}, "networks": 1}, {**PAPER.train, "lr": 5e-4, "decay_epoch": 10}),
        "two_tower": TWO_TOWER.having({"batch_limit": 128}, epochs={"train": None}, tau=0.1),
        "clip": CLIP.having(epochs={"train": 5}, tau=0.0, networks=1),
    }

    epochs: LossEpochs = LossEpochs()
    form: Form = Field(default="log", description="The function of a negative's probability.")
    q: float = Field(default=0.5, gt=0, le=1, description="Exponent of the form gce; mae at 1, close to log near 0.")
    tau: float = Field(default=0.05, ge=0, description="Temperature of the softmax; 0 for the matcher's own.")
    networks: int = Field(default=2, ge=1, le=8, description="How many networks train, independently of each other.")

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up and training, on all pairs."""
        return self.epochs.phases(self.setting_if_any)

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Return the complementary loss of the pairs as given."""
        network, batch = networks[k], batches["all"]

        def loss(similarity: Tensor) -> Tensor:
            logits = similarity * scale_at(network.matcher, self.tau)
            return complementary(logits, not_negatives(batch), self.form, self.q)

        return robust("complementary", self.setting, network, batch, phase, loss)
