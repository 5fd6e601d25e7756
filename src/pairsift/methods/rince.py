"""RINCE: robust InfoNCE, on images and captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from pairsift.errors import InputError
from pairsift.loss.rince import rince
from pairsift.match.base import Matcher, scale_at
from pairsift.methods.base import Method
from pairsift.methods.plain import LossEpochs, robust
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.steps import Batch, Network, Phase, Term, not_negatives

LARGEST = 80.0  # exponent that float32 still holds, with room for a sum over a batch


class RINCE(Method):
    """The method RINCE: InfoNCE whose gradient is smaller where the positive is unlikely.

    q sets how much: near 0 it is InfoNCE, at 1 every positive pulls by its own similarity alone. The paper is about
    one modality; here both directions of the similarity are averaged. The temperature is fixed and never the matcher's
    own: the loss falls without limit as a temperature shrinks, so that a learned one would run away.

    lambda times the size of the batch decides where similarities drift that are all equal: below 1 they rise, above 1
    they fall, until all images are opposite to all captions, where nothing is learned. The published 0.01 suits about
    128 pairs.
    """

    name: ClassVar[str] = "rince"
    citation: ClassVar[str] = """
@inproceedings{chuang2022rince,
  author = {Chuang, Ching-Yao and Hjelm, R Devon and Wang, Xin and Vineet, Vibhav and Joshi, Neel and
    Torralba, Antonio and Jegelka, Stefanie and Song, Yale},
  title = {Robust Contrastive Learning against Noisy Views},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2022}
}
"""
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset({"networks": 1}, PAPER.train),
        "two_tower": TWO_TOWER.having(epochs={"train": None}, density=0.0, q=0.03),
        "clip": CLIP.having(epochs={"train": 5}, tau=0.01, density=0.0, networks=1),
    }

    epochs: LossEpochs = LossEpochs()
    q: float = Field(default=0.1, gt=0, le=1, description="How robust; InfoNCE near 0, symmetric at 1.")
    density: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Weight of the sum in the loss, lambda; 0 for one over the pairs of the batch, at which "
        "similarities that are all equal neither rise nor fall together.",
    )
    tau: float = Field(default=0.07, gt=0, description="Temperature, which does not learn.")
    networks: int = Field(default=2, ge=1, le=8, description="How many networks train, independently of each other.")

    def check(self, matcher: type[Matcher], starts_trained: bool) -> None:
        """Refuse a temperature with which the loss of equal vectors is not finite.

        Raises:
            InputError: It is too small for q.
        """
        if self.q / self.tau > LARGEST:
            raise InputError(
                f"rince.tau is {self.tau:g}, too small for rince.q = {self.q:g}: exp(q / tau) overflows; "
                f"give at least {self.q / LARGEST:g}"
            )

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up and training, on all pairs."""
        return self.epochs.phases(self.setting_if_any)

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Return the robust InfoNCE of the pairs as given."""
        network, batch = networks[k], batches["all"]

        def loss(similarity: Tensor) -> Tensor:
            logits = similarity * scale_at(network.matcher, self.tau)
            return rince(logits, not_negatives(batch), self.q, self.density or 1 / len(batch))

        return robust("rince", self.setting, network, batch, phase, loss)
