"""PC2: pseudo-classification based pseudo-captioning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from pairsift.arrays import Array, Ints
from pairsift.match.base import Matcher
from pairsift.methods.base import DividedEpochs, Method
from pairsift.methods.parts.captions import CaptionSearch, CleanBatch
from pairsift.methods.parts.classifier import PseudoClassifier
from pairsift.methods.parts.division import Division
from pairsift.methods.parts.meta import OptionalMetaCorrection
from pairsift.methods.parts.stability import Stability
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.options import Options
from pairsift.steps import Batch, Network, Pairing, Phase, Request, Term, correspond, not_negatives


class PC2Epochs(DividedEpochs):
    """The phases of PC2; the published code has those on clean pairs only, the paper does not name them."""

    clean: int = Field(default=25, ge=0, description="Epochs on clean pairs only.")
    all: int = Field(default=25, ge=0, description="Epochs on clean pairs and on pseudo-captioned noisy ones.")


class PC2Weights(Options):
    """The weights of the loss beside the clean pairs' ranking loss (Eq. 10)."""

    noisy: float = Field(default=1.0, ge=0, description="Weight of the noisy pairs' loss, lambda^n.")
    pseudo: float = Field(default=1.0, ge=0, description="Weight of the pseudo-classification loss, lambda^pse.")
    entropy: float = Field(default=10.0, ge=0, description="Weight of the entropy, lambda^ent.")


class PC2(Method):
    """The method PC2: a pseudo-classifier of clean pairs finds captions for the images of noisy pairs.

    Where the published code differs from the paper, the paper holds: the entropy is that of the batch's mean
    prediction (Eq. 3), oscillation compares adjacent epochs (Eq. 7), a pseudo-caption is taken with its own length,
    and margins carry no gradient. The pseudo-classifier reads global vectors. In the warm-up it learns from all pairs,
    as in the published code. Before two passes have something to compare, every pair counts as stable, so that clean
    pairs are believed in full for one epoch; the paper names no start, and w alone was no better on dev.

    With `--pc2.meta.use true` it is the supplement's PC2+MSCN: a meta network that verified pairs teach corrects the
    similarities of Eq. 6 and 9 (`MetaCorrection`), and nothing else changes.
    """

    name: ClassVar[str] = "pc2"
    citation: ClassVar[str] = """
@inproceedings{duan2024pc2,
  author = {Duan, Y. and Gu, Z. and Ying, Z. and Qi, L. and Meng, C. and Shi, Y.},
  title = {{PC2}: Pseudo-Classification Based Pseudo-Captioning for Noisy Correspondence Learning in
    Cross-Modal Retrieval},
  booktitle = {Proceedings of the 32nd ACM International Conference on Multimedia},
  pages = {9397--9406},
  year = {2024}
}
"""
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER,
        "paper_coco": PAPER.having(epochs={"warmup": 10}),
        "paper_now": PAPER.having(epochs={"warmup": 10}),
        "two_tower": TWO_TOWER.having(epochs={"warmup": 2, "clean": 3, "all": 3}, captions={"search": "epoch"}),
        "clip": CLIP.having(epochs={"warmup": 1, "clean": 2, "all": 2}, captions={"search": "epoch"}),
    }

    epochs: PC2Epochs = PC2Epochs()
    division: Division = Division()
    stability: Stability = Stability()
    classifier: PseudoClassifier = PseudoClassifier()
    captions: CaptionSearch = CaptionSearch()
    weights: PC2Weights = PC2Weights()
    meta: OptionalMetaCorrection = OptionalMetaCorrection()

    @property
    def needs_verified(self) -> bool:
        """Whether the method can only run where some training pairs are verified."""
        return self.meta.use

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, clean pairs, all pairs; with a meta network verified pairs come along after the warm-up."""
        return self.meta.with_verified(self.epochs.phases())

    def check(self, matcher: type[Matcher], starts_trained: bool) -> None:
        """Refuse a matcher without what the pseudo-classifier reads."""
        self.classifier.check(self.name, matcher)

    def head(self, dim: int) -> nn.Module:
        """Return the pseudo-classifier C, one for both modalities."""
        classifier = self.classifier.head(dim)
        return self.meta.head(classifier) if self.meta.use else classifier

    def subset(self, name: str, network: int) -> Ints:
        """Return `clean` and `noisy` pairs by the peer's division, or `all`; with a meta network `verified` ones too.

        The verified pairs are then in no other subset.
        """
        if name == "verified":
            return self.setting.verified
        ids = self.division.subset(name, network) if name in ("clean", "noisy") else super().subset(name, network)
        return self.meta.unverified(ids, may_be_empty=name == "noisy") if self.meta.use else ids

    def update(self, notes: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """Renew w, w^o and the predictions; then search for captions by them."""
        super().update(notes, epoch)
        self.captions.search_all(self.division)

    def requests(self, ids: Mapping[str, Ints], network: int) -> dict[str, Request]:
        """Return the subsets' pairs, noisy ones with the captions that the last search found."""
        return {
            name: Request(rows, self.captions.captions(network, rows) if name == "noisy" else None)
            for name, rows in ids.items()
        }

    def correspondence(self, k: int, batch: Batch) -> Tensor:
        """Return y_i = w_i + (1 - w_i) 1(w^o_i >= tau) w^o_i, from the peer (inside Eq. 8), (B,)."""
        w, stable = (
            correspond(self.division.of_peer(name, k), batch.ids, batch.image_rows)
            for name in ("clean_probability", "stability")
        )
        return w + (1 - w) * (stable >= self.division.threshold) * stable if self.stability.rectify else w

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Return L = L_c + lambda^n L_n + lambda^pse L_pse + lambda^ent L_ent (Eq. 10)."""
        network, batch = networks[k], batches["clean" if "clean" in batches else "all"]
        seed, images, texts = self.meta.encode(network, batch)
        ones = torch.ones(len(batch), device=images.vectors.device)
        y = self.correspondence(k, batch) if "clean" in batches else ones
        pairing = Pairing(images, texts, not_negatives(batch))
        logits = network.logits(images)
        ranking = self.meta.ranking_term("clean", network, pairing, y, phase.warm)
        terms = [*self.classifier.terms(logits, network.logits(texts), self.weights.pseudo, self.weights.entropy)]
        if "noisy" in batches:
            terms.append(self._noisy(network, k, batches["noisy"], CleanBatch(batch, images, texts, logits)))
        if "verified" in batches:
            of_meta = self.meta.terms(network, ranking, y, (batch, batches["verified"]), seed, shares_graph=True)
            return [*of_meta, *terms]
        return [ranking, *terms]

    def _noisy(self, network: Network, k: int, noisy: Batch, clean: CleanBatch) -> Term:
        """Return L_n (Eq. 4 to 6), on images of noisy pairs with captions of the clean images predicted most alike."""
        images = network.matcher.encode_images(noisy.images)
        pairing, y = self.captions.rematch(network, k, noisy, images, clean)
        term = self.meta.ranking_term("noisy", network, pairing, y.clamp(0, 1))
        return replace(self.captions.keep_alike(term, y), weight=self.weights.noisy)
