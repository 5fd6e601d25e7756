"""NCR: learning with noisy correspondence by co-dividing and co-rectifying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from pairsift.loss.hinge import hinge
from pairsift.methods.base import Batch, Network, Pairing, Phase, Term, correspond, demand, not_negatives
from pairsift.methods.division import DividingMethod
from pairsift.methods.plain import CLIP, PAPER, TWO_TOWER


class NCR(DividingMethod):
    """Rectified soft margins on clean pairs, then on noisy pairs too.

    A clean pair's label is y = w + (1 - w) P(I, T) with its own network's prediction P; a noisy pair's label is the
    mean of both networks' predictions. The label sets the margin (hinge) or the weight (InfoNCE) of the pair. Noisy
    pairs are left out of the first half after the warm-up. The paper's labels are per pair: the published code makes
    a (B, B) matrix of them by broadcasting, and takes the margin along the wrong axis in one direction.

    Args:
        warmup_epochs: Epochs on all pairs, as given.
        clean_epochs: Epochs on clean pairs only.
        all_epochs: Epochs on clean and noisy pairs.
        threshold: Clean probability above which a pair is clean, [0, 1].
        margin: Margin inside the prediction P, in units of the similarity.
        networks: 2, or 1 for a network that believes itself.
    """

    name: ClassVar[str] = "ncr"
    summary: ClassVar[str] = "mixture division, soft margins by rectified labels"
    citation: ClassVar[str] = "Huang et al., Learning with Noisy Correspondence for Cross-modal Matching, NeurIPS 2021"
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "paper": PAPER,
        "paper_coco": {
            **PAPER,
            "decay_epoch": 10,
            "ncr.warmup_epochs": 10,
            "ncr.clean_epochs": 10,
            "ncr.all_epochs": 10,
        },
        "paper_cc152k": {**PAPER, "ncr.warmup_epochs": 10},
        "two_tower": {**TWO_TOWER, "ncr.warmup_epochs": 2, "ncr.clean_epochs": 3, "ncr.all_epochs": 3},
        "clip": {**CLIP, "ncr.warmup_epochs": 1, "ncr.clean_epochs": 2, "ncr.all_epochs": 2},
    }

    def __init__(
        self,
        warmup_epochs: int = 5,
        clean_epochs: int = 20,
        all_epochs: int = 20,
        threshold: float = 0.5,
        margin: float = 0.2,
        networks: int = 2,
    ) -> None:
        self.warmup_epochs, self.clean_epochs, self.all_epochs = warmup_epochs, clean_epochs, all_epochs
        self.threshold, self.margin, self.networks = threshold, margin, networks

        demand(self, 0, inf, "warmup_epochs", "clean_epochs", "all_epochs", "margin")
        demand(self, 0, 1, "threshold")
        demand(self, 1, 2, "networks")

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Clean (or all) pairs with y = w + (1 - w) P_k, noisy pairs with y = (P_1 + P_2) / 2."""
        own, terms = networks[k], []
        for subset, batch in batches.items():
            w = correspond(self.believed("clean_probability", k), batch.ids, batch.image_rows)
            if subset == "all":
                y = torch.ones_like(w)
            elif subset == "clean":
                y = w + (1 - w) * self.predict(own, batch)
            else:
                y = torch.stack([self.predict(network, batch) for network in networks]).mean(0)
            pairing = Pairing(*own.encode(batch), not_negatives(batch))
            terms.append(self.ranking_term(subset, own, pairing, y, phase.warm))
        return terms

    @torch.no_grad()
    def predict(self, network: Network, batch: Batch) -> Tensor:
        """P(I, T): how far the pair stands clear of the batch's negatives, (B,), in [0, 1].

        P = clip(a - (mean hinge over captions + mean hinge over images) / 2, 0, a), divided by the mean of the
        batch's highest tenth and clipped to 1, in evaluation mode.
        """
        training = network.training
        network.eval()
        images, texts = network.encode(batch)
        similarity = network.matcher.similarity(images, texts)
        network.train(training)
        torch.clear_autocast_cache()  # up to torch 2.9 weights cast here would have no gradient in the step's pass
        margin = torch.full_like(similarity.diagonal(), self.margin)
        p = (self.margin - hinge(similarity, margin, "mean", not_negatives(batch)) / 2).clamp(0, self.margin)
        top = p.topk(len(p) // 10 + 1).values.mean()
        return (p / top.clamp(min=1e-6)).clamp(max=1)
