"""PC2: pseudo-classification based pseudo-captioning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from pairsift.arrays import Array, Floats, Ints
from pairsift.match.base import Codes
from pairsift.methods.base import DividedEpochs, Method, Notes, Part
from pairsift.methods.parts.division import Division, fit_mixture
from pairsift.methods.parts.prediction import predict
from pairsift.methods.parts.pseudo_captions import CaptionSearch, CleanBatch, PseudoClassifier
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.options import Options
from pairsift.steps import Batch, Network, Pairing, Phase, Request, Setting, Step, Term, not_negatives


class PC2Epochs(DividedEpochs):
    """The phases of PC2; epochs on clean pairs only are in the published code, and not named in the paper."""

    clean: int = Field(default=25, ge=0, description="Epochs on clean pairs only.")
    all: int = Field(default=25, ge=0, description="Epochs on clean pairs and on pseudo-captioned noisy ones.")

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, clean pairs, all pairs; the last ones alone compete, as in the published code."""
        return tuple(replace(phase, competes=phase.name == "all") for phase in super().phases())


class PC2Weights(Options):
    """The weights of the loss beside the clean pairs' ranking loss (Eq. 10)."""

    noisy: float = Field(default=1.0, ge=0, description="Weight of the noisy pairs' loss, lambda^n.")
    pseudo: float = Field(default=1.0, ge=0, description="Weight of the pseudo-classification loss, lambda^pse.")
    entropy: float = Field(default=10.0, ge=0, description="Weight of the entropy, lambda^ent.")


class Stability(Part):
    """The stability w^o of every pair, by a mixture over the oscillation of its image's predictions (PC2 Eq. 7).

    Before two passes have something to compare, every pair counts as stable.

    State: `stability`, (networks, n_pairs), w^o in [0, 1].
    """

    rectify: bool = Field(
        default=True, description="Whether stability rectifies the correspondence of clean pairs (Eq. 8)."
    )

    def initial_state(self, setting: Setting) -> dict[str, Array]:
        """Return stabilities that are 1."""
        return {"stability": setting.per_pair(1)}

    def compare(self, previous: Sequence[Floats], current: Sequence[Floats]) -> None:
        """Fit w^o to how far each image's prediction has moved since the pass before.

        Args:
            previous: By network, predictions of the training pairs' images in the pass before, (n, K); 0 where there
                was none.
            current: The same in this pass.
        """
        for k, (before, now) in enumerate(zip(previous, current, strict=True)):
            if before.any():
                drift = oscillation(now, before)
                self.state["stability"][k, self.setting.ids] = fit_mixture(drift, self.setting.seed).low(drift)


class PC2(Method):
    """The method PC2: a pseudo-classifier of clean pairs finds captions for the images of noisy pairs.

    Where the published code differs from the paper, the paper holds: the entropy is taken of the batch's mean
    prediction (Eq. 3), oscillation compares adjacent epochs (Eq. 7), a pseudo-caption is taken with its own length,
    and margins carry no gradient. The pseudo-classifier reads global vectors. In the warm-up it learns from all pairs,
    as in the published code. Before two passes have something to compare, every pair counts as stable, so that clean
    pairs are believed in full for one epoch; the paper names no start, and w alone was no better on dev.
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
        "paper_coco": PAPER.plus(epochs={"warmup": 10}),
        "paper_now": PAPER.plus(epochs={"warmup": 10}),
        "two_tower": TWO_TOWER.plus(epochs={"warmup": 2, "clean": 3, "all": 3}, captions={"search": "epoch"}),
        "clip": CLIP.plus(epochs={"warmup": 1, "clean": 2, "all": 2}, captions={"search": "epoch"}),
    }

    epochs: PC2Epochs = PC2Epochs()
    division: Division = Division()
    stability: Stability = Stability()
    classifier: PseudoClassifier = PseudoClassifier()
    captions: CaptionSearch = CaptionSearch()
    weights: PC2Weights = PC2Weights()
    noisy_captions: Literal["pseudo", "own"] = Field(
        default="pseudo",
        description="Noisy pairs take captions of clean pairs, or keep their own with the soft margins of NCR (PC2 "
        "Table 3, the rows without P-Cap).",
    )

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, clean pairs, all pairs."""
        return self.epochs.phases()

    def head(self, dim: int) -> nn.Module:
        """Return the pseudo-classifier C, one for both modalities."""
        return self.classifier.head(dim)

    def subset(self, name: str, network: int) -> Ints:
        """Return `clean` and `noisy` pairs by the peer's division, or `all`."""
        return self.division.subset(name, network)

    def update(self, notes: Notes, epoch: int) -> None:
        """Renew w, the predictions and w^o; then search for captions by the predictions."""
        previous = [self.classifier.predictions_of_pairs(k) for k in range(self.networks)]
        super().update(notes, epoch)
        current = [np.asarray(noted["classifier.predictions"], np.float32) for noted in notes]
        self.stability.compare(previous, current)
        self.captions.search_all(self.division, self.classifier, epoch)

    def requests(self, ids: Mapping[str, Ints], network: int) -> dict[str, Request]:
        """Return the subsets' pairs, noisy ones with the captions that the last search found."""
        return {
            name: Request(rows, self.captions.captions(network, rows) if self._captioned(name) else None)
            for name, rows in ids.items()
        }

    def _captioned(self, name: str) -> bool:
        """Return whether a subset's pairs take captions of clean pairs."""
        return name == "noisy" and self.noisy_captions == "pseudo"

    def correspondence(self, step: Step) -> Tensor:
        """Return y of the driving pairs, (B,): 1 in the warm-up.

        After it, y_i = w_i + (1 - w_i) 1(w^o_i >= tau) w^o_i, from the peer (inside Eq. 8).
        """
        w = self.division.of_batch("clean_probability", step.k, step.batch)
        if "clean" not in step.batches:
            return torch.ones_like(w)
        stable = self.stability.of_batch("stability", step.k, step.batch)
        return w + (1 - w) * (stable >= self.division.threshold) * stable if self.stability.rectify else w

    def ranking_term(self, name: str, network: Network, pairing: Pairing, y: Tensor, warm: bool = False) -> Term:
        """Return the ranking loss of a pairing with the correspondence y, (B,)."""
        return self.setting.ranking_term(name, network, pairing, y, warm)

    def step(self, step: Step) -> list[Term]:
        """Return L = L_c + lambda^n L_n + lambda^pse L_pse + lambda^ent L_ent (Eq. 10)."""
        return self.terms(step, *step.network.encode(step.batch))

    def terms(self, step: Step, images: Codes, texts: Codes) -> list[Term]:
        """Return the terms of Eq. 10, L_c first, by the codes of the driving pairs."""
        network, batch = step.network, step.batch
        pairing = Pairing(images, texts, not_negatives(batch))
        logits = network.logits(images)
        terms = [
            self.ranking_term("clean", network, pairing, self.correspondence(step), step.phase.warm),
            *self.classifier.terms(logits, network.logits(texts), self.weights.pseudo, self.weights.entropy),
        ]
        if "noisy" in step.batches:
            clean = CleanBatch(batch, images, texts, logits)
            terms.append(self._noisy(step, step.batches["noisy"], clean))
        return terms

    def _noisy(self, step: Step, noisy: Batch, clean: CleanBatch) -> Term:
        """Return L_n (Eq. 4 to 6), on images of noisy pairs with captions of the clean images predicted most alike.

        With their own captions it is NCR's loss, by the mean of the networks' predictions.
        """
        network = step.network
        if not self._captioned("noisy"):
            y = predict(step.networks, noisy)
            term = self.ranking_term("noisy", network, network.pairing(noisy), y)
            return replace(term, weight=self.weights.noisy)
        images = network.matcher.encode_images(noisy.images)
        pairing, y = self.captions.rematch(network, step.k, noisy, images, clean, self.classifier)
        term = self.ranking_term("noisy", network, pairing, y.clamp(0, 1))
        return replace(self.captions.keep_alike(term, y), weight=self.weights.noisy)


def oscillation(current: Floats, previous: Floats) -> Floats:
    """Return KL(current || previous) of each row's class prediction (PC2 Eq. 7), (n,), at least 0.

    Args:
        current: Predictions of this epoch, (n, K), rows summing to 1.
        previous: Predictions of the epoch before, (n, K).
    """
    tiny = np.float32(1e-12)
    ratio = np.log(np.maximum(current, tiny)) - np.log(np.maximum(previous, tiny))
    return np.asarray(np.maximum((current * ratio).sum(1), 0), np.float32)
