"""PC2+MSCN: the meta similarity correction of MSCN in PC2 (the supplement of PC2)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from torch import Tensor, nn

from pairsift.arrays import Ints
from pairsift.methods.parts.meta import MetaCorrection
from pairsift.methods.pc2 import PC2
from pairsift.steps import Network, Pairing, Phase, Step, Term


class PC2MSCN(PC2):
    """The method PC2 with similarities that a meta network corrects.

    Verified pairs teach the meta network as in `mscn`, and take part in no other loss. The corrected similarities stand
    in Eq. 6 and 9 of PC2; nothing else changes.
    """

    name: ClassVar[str] = "pc2_mscn"
    needs_verified: ClassVar[bool] = True

    meta: MetaCorrection = MetaCorrection()

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases of PC2; after the warm-up verified pairs come along."""
        return tuple(
            phase if phase.warm else replace(phase, subsets=(*phase.subsets, "verified")) for phase in super().phases()
        )

    def head(self, dim: int) -> nn.Module:
        """Return the meta network beside the pseudo-classifier."""
        return self.meta.head(super().head(dim))

    def subset(self, name: str, network: int) -> Ints:
        """Return `verified` pairs; or the pairs of PC2's subsets that are not verified."""
        if name == "verified":
            return self.setting.verified
        return self.meta.unverified(super().subset(name, network), may_be_empty=name == "noisy")

    def ranking_term(self, name: str, network: Network, pairing: Pairing, y: Tensor, warm: bool = False) -> Term:
        """Return the ranking loss of corrected similarities; the meta network learns from it in the warm-up alone."""
        similarity = self.meta.correct(network, pairing, learns=warm).sigmoid()
        return self.setting.ranking_term(name, network, pairing, y, warm, similarity)

    def step(self, step: Step) -> list[Term]:
        """Return the terms of PC2, and after the warm-up the meta loss."""
        seed, images, texts = self.meta.encode(step.network, step.batch)
        ranking, *terms = self.terms(step, images, texts)
        if "verified" not in step.batches:
            return [ranking, *terms]
        batches = step.batch, step.batches["verified"]
        y = self.correspondence(step)
        return [*self.meta.terms(step.network, ranking, y, batches, seed, step.rate, shares_graph=True), *terms]
