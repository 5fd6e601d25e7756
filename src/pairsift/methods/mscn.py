"""MSCN: meta similarity correction by pairs that are known to match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import nn

from pairsift.arrays import Ints
from pairsift.methods.base import Epochs, Method
from pairsift.methods.parts.meta import MetaCorrection, MetaDivision, correspondence
from pairsift.methods.presets import CLIP_LINEAR, PAPER, TWO_TOWER_LINEAR, Preset
from pairsift.steps import Batch, Network, Pairing, Phase, Term, not_negatives


class MSCNEpochs(Epochs):
    """The phases of MSCN."""

    warmup: int = Field(default=5, ge=0, description="Epochs on all pairs, in which both networks learn together.")
    train: int = Field(default=50, ge=0, description="Epochs on clean pairs, each with a step of the meta network.")

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, and training on clean and verified pairs."""
        return (
            Phase("warm-up", self.warmup, warm=True, competes=False),
            Phase("meta", self.train, ("clean", "verified"), observe=True),
        )


class MSCN(Method):
    """The method MSCN: a meta network corrects similarities so that a step on them serves pairs known to match.

    The corrected similarity V takes the place of S in the ranking loss; y, which sets the margin (hinge) or the weight
    (InfoNCE) of a pair, is V_ii^2 / (V_ii^2 + (1 - V_ii)^2), without gradient. In the warm-up the meta network learns
    from the ranking loss like the matcher; after it only by the virtual step (`MetaCorrection`). Before every epoch
    the pairs whose V looks like that of mismatched ones are left out (`MetaDivision`), each network by its peer.

    It needs verified training pairs (`--verified` or `--verified-column`), which teach the meta network alone. The
    paper takes 2,900 on Flickr30K, drawn from dev; here none are taken from dev, on which checkpoints are chosen.

    Where the published code differs from this: its meta network reads the similarity vector of SGR or SAF in the place
    of their last layer and its output is the similarity at test time too; here it reads the similarity and partial
    products of the global vectors, so that every matcher can be corrected, and retrieval ranks by the matcher's own
    similarity, so that search keeps its index. It takes margins along the wrong axis in one direction. It updates the
    meta network before the matcher and at a lower rate, here both move in one step, at the matcher's rate or, with
    CLIP, at that of a method's trainable part; its negatives of verified pairs
    are drawn from the training pairs, here they are the other verified pairs of the step.
    """

    name: ClassVar[str] = "mscn"
    citation: ClassVar[str] = """
@inproceedings{han2023mscn,
  author = {Han, Haochen and Miao, Kaiyao and Zheng, Qinghua and Luo, Minnan},
  title = {Noisy Correspondence Learning with Meta Similarity Correction},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  pages = {7517--7526},
  year = {2023}
}
"""
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset(
            train={**PAPER.train, "batch_size": 64}, loss="hinge", losses={"hinge": {"reduction": "sum", "base": 1.0}}
        ),
        "two_tower": TWO_TOWER_LINEAR.having(epochs={"warmup": 2, "train": 6}),
        "clip": CLIP_LINEAR.having(epochs={"warmup": 1, "train": 4}, meta={"rate": CLIP_LINEAR.train["lr"]}),
    }

    epochs: MSCNEpochs = MSCNEpochs()
    meta: MetaCorrection = MetaCorrection()
    division: MetaDivision = MetaDivision()

    @property
    def needs_verified(self) -> bool:
        """Whether the method can only run where some training pairs are verified."""
        return True

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, and training on clean and verified pairs."""
        return self.epochs.phases()

    def head(self, dim: int) -> nn.Module:
        """Return the meta network."""
        return self.meta.head()

    def subset(self, name: str, network: int) -> Ints:
        """Return `verified` pairs; or the others that are `clean` by the peer's division, or all of them."""
        if name == "verified":
            return self.setting.verified
        ids = self.division.subset(name, network) if name == "clean" else super().subset(name, network)
        return self.meta.unverified(ids)

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Return the ranking loss on corrected similarities, and after the warm-up the meta loss."""
        network, batch = networks[k], batches["all" if phase.warm else "clean"]
        seed, images, texts = self.meta.encode(network, batch)
        pairing = Pairing(images, texts, not_negatives(batch))
        logits = self.meta.correct(network, pairing, learns=phase.warm)
        y = torch.ones_like(logits.diagonal()) if phase.warm else correspondence(logits)
        term = self.setting.ranking_term("corrected", network, pairing, y, phase.warm, logits.sigmoid())
        if phase.warm:
            return [term]
        return self.meta.terms(network, term, y, (batch, batches["verified"]), seed)
