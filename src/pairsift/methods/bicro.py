"""BiCro: noisy correspondence rectification by bidirectional cross-modal similarity consistency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import ClassVar

import torch
from pydantic import Field

from pairsift.arrays import Array, Ints
from pairsift.methods.base import DividedEpochs, Method
from pairsift.methods.parts.anchors import AnchorLabels
from pairsift.methods.parts.division import BetaDivision
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.steps import Batch, Network, Pairing, Phase, Term, correspond, not_negatives


class BiCroEpochs(DividedEpochs):
    """The phases of BiCro."""

    warmup: int = Field(default=10, ge=0, description="Epochs on the pairs of least loss in every batch.")


class BiCro(Method):
    """The method BiCro: soft labels from clean anchors, which set the margins of clean and of noisy pairs.

    A pair's label is how alike it and its nearest anchors are in both modalities: y = q for a noisy pair, (1 + q) / 2
    for a clean one and 1 for an anchor (`AnchorLabels`). The label sets the margin (hinge) or the weight (InfoNCE) of
    the pair. In the warm-up only the pairs of least loss in a batch train. Noisy pairs are left out of the first half
    after that.

    Where the published code differs from this: it takes anchors from the clean pairs of a batch of 128, twelve or
    thirteen, while here they come from all clean pairs, once an epoch; it writes the labels of a batch to other pairs
    of the batch, while here a label belongs to its pair; it takes the margin along the wrong axis in one direction; a
    dropped pair has the margin 0 there, which still pulls image and caption together, and no loss here; and it takes a
    step on noisy pairs and then one on clean ones, while here a step has the sum of both losses. An anchor may show the
    same image as the pair.
    """

    name: ClassVar[str] = "bicro"
    citation: ClassVar[str] = """
@inproceedings{yang2023bicro,
  author = {Yang, Shuo and Xu, Zhaopan and Wang, Kai and You, Yang and Yao, Hongxun and Liu, Tongliang and Xu, Min},
  title = {{BiCro}: Noisy Correspondence Rectification for Multi-Modality Data via Bi-directional Cross-modal
    Similarity Consistency},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2023}
}
"""
    # In batches of 512 networks that know nothing yet learn nothing from the pairs of least loss: at 60% noise dev rSum
    # was 3.5 after two epochs of warm-up on 30% of each batch, which is chance.
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER,
        "two_tower": TWO_TOWER.having(epochs={"warmup": 2, "clean": 3, "all": 3}, warmup_share=1.0),
        "clip": CLIP.having(epochs={"warmup": 1, "clean": 2, "all": 2}, warmup_share=1.0),
    }

    epochs: BiCroEpochs = BiCroEpochs()
    division: BetaDivision = BetaDivision()
    anchors: AnchorLabels = AnchorLabels()
    warmup_share: float = Field(
        default=0.3, gt=0, le=1, description="Share of a batch that trains in the warm-up, the pairs of least loss."
    )

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, clean pairs, all pairs."""
        return self.epochs.phases()

    def subset(self, name: str, network: int) -> Ints:
        """Return `clean` and `noisy` pairs by the peer's division, or `all`."""
        return self.division.subset(name, network) if name in ("clean", "noisy") else super().subset(name, network)

    def update(self, notes: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """Renew w; then the labels by the clean pairs."""
        super().update(notes, epoch)
        self.anchors.label_all(notes, self.division)

    def facts(self) -> dict[str, float]:
        """Return the facts of the division, and the share of pairs that `keep_alike` leaves out as `dropped`."""
        return {**super().facts(), "dropped": self.anchors.dropped(self.division)}

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Return terms of the least losses of all pairs, or of clean and of noisy pairs by the peer's labels."""
        network, terms = networks[k], []
        for subset, batch in batches.items():
            y = correspond(self.anchors.of_peer("soft_label", k), batch.ids, batch.image_rows)
            y = torch.ones_like(y) if subset == "all" else y
            pairing = Pairing(*network.encode(batch), not_negatives(batch))
            term = self.setting.ranking_term(subset, network, pairing, y, phase.warm)
            if subset == "all":
                term = smallest_losses(term, self.warmup_share)
            elif subset == "noisy":
                term = self.anchors.keep_alike(term, y)
            terms.append(term)
        return terms


def smallest_losses(term: Term, share: float) -> Term:
    """Return a term with the smallest of its losses alone.

    Args:
        term: The losses, (B,).
        share: Share of them that is kept, (0, 1], rounded up.
    """
    values = term.values.detach()
    kept = torch.zeros(len(values), dtype=torch.bool, device=values.device)
    kept[values.argsort(stable=True)[: ceil(share * len(values))]] = True
    return term.kept(kept)
