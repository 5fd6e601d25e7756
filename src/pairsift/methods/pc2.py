"""PC2: pseudo-classification based pseudo-captioning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from pairsift.loss.classes import batch_entropy, pseudo_label_loss
from pairsift.methods.base import (
    Array,
    Batch,
    Network,
    Pairing,
    Phase,
    Setting,
    Term,
    correspond,
    demand,
    not_negatives,
)
from pairsift.methods.captioning import CaptioningMethod, CleanBatch
from pairsift.methods.plain import CLIP, PAPER, TWO_TOWER
from pairsift.trust.division import oscillation
from pairsift.trust.mixture import fit_mixture


class PC2(CaptioningMethod):
    """Clean pairs teach a pseudo-classifier; its predictions find captions for the images of noisy pairs.

    Where the published code differs from the paper, the paper holds: the entropy is that of the batch's mean
    prediction (Eq. 3), oscillation compares adjacent epochs (Eq. 7), a pseudo-caption is taken with its own length,
    and margins carry no gradient. The pseudo-classifier reads global vectors. In the warm-up it learns from all pairs,
    as in the published code. Before two passes have something to compare, every pair counts as stable, so that clean
    pairs are believed in full for one epoch; the paper names no start, and w alone was no better on dev.

    State beside `clean_probability`: `stability`, (networks, n_pairs), w^o; `predictions`, (networks, n_images, K),
    each image's class prediction in the last pass; `pseudo_caption`, (networks, n_pairs), ids, with `search` epoch.

    Args:
        warmup_epochs: Epochs on all pairs, as given.
        clean_epochs: Epochs on clean pairs only (the published code has them, the paper does not name them).
        all_epochs: Epochs on clean pairs and on pseudo-captioned noisy ones.
        classes: K of the pseudo-classifier.
        threshold: Clean probability above which a pair is clean, tau in [0, 1].
        noisy_weight: Weight of the noisy pairs' loss, lambda^n.
        pseudo_weight: Weight of the pseudo-classification loss, lambda^pse.
        entropy_weight: Weight of the entropy, lambda^ent.
        mismatch_threshold: A pseudo-caption less similar than this is not used, [0, 1]; PC2* has 0.5.
        search: Captions are sought in the clean `batch` at hand, or among all clean pairs once an `epoch`, which finds
            a clean caption of the same image where there is one.
        alike: Captions are sought by the images' `class` predictions, or by their `embedding` (Table 3, last row).
        rectify: Whether oscillation rectifies the correspondence of clean pairs (Eq. 8).
        classifier: The pseudo-classifier reads `global` vectors, or all tokens in a row (`flat`, the published code).
        networks: 2, or 1 for a network that believes itself.
    """

    name: ClassVar[str] = "pc2"
    remembers: ClassVar[bool] = True
    summary: ClassVar[str] = "pseudo-classifier, pseudo-captions for noisy pairs, rectified correspondence"
    citation: ClassVar[str] = (
        "Duan et al., PC2: Pseudo-Classification Based Pseudo-Captioning for Noisy Correspondence Learning in "
        "Cross-Modal Retrieval, ACM MM 2024"
    )
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "paper": PAPER,
        "paper_coco": {**PAPER, "pc2.warmup_epochs": 10},
        "paper_now": {**PAPER, "pc2.warmup_epochs": 10},
        "two_tower": {
            **TWO_TOWER,
            "pc2.warmup_epochs": 2,
            "pc2.clean_epochs": 3,
            "pc2.all_epochs": 3,
            "pc2.search": "epoch",
        },
        "clip": {**CLIP, "pc2.warmup_epochs": 1, "pc2.clean_epochs": 2, "pc2.all_epochs": 2, "pc2.search": "epoch"},
    }

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        warmup_epochs: int = 5,
        clean_epochs: int = 25,
        all_epochs: int = 25,
        classes: int = 128,
        threshold: float = 0.5,
        noisy_weight: float = 1.0,
        pseudo_weight: float = 1.0,
        entropy_weight: float = 10.0,
        mismatch_threshold: float = 0.0,
        search: Literal["batch", "epoch"] = "batch",
        alike: Literal["class", "embedding"] = "class",
        rectify: bool = True,
        classifier: Literal["global", "flat"] = "global",
        networks: int = 2,
    ) -> None:
        self.warmup_epochs, self.clean_epochs, self.all_epochs = warmup_epochs, clean_epochs, all_epochs
        self.classes, self.threshold, self.mismatch_threshold = classes, threshold, mismatch_threshold
        self.noisy_weight, self.pseudo_weight, self.entropy_weight = noisy_weight, pseudo_weight, entropy_weight
        self.search, self.alike, self.rectify = search, alike, rectify
        self.classifier, self.networks = classifier, networks

        demand(self, 0, inf, "warmup_epochs", "clean_epochs", "all_epochs")
        demand(self, 0, inf, "noisy_weight", "pseudo_weight", "entropy_weight")
        demand(self, 0, 1, "threshold", "mismatch_threshold")
        demand(self, 1, 2, "networks")
        demand(self, 2, inf, "classes")

    def begin(self, setting: Setting) -> None:
        """Every pair starts as clean and stable, every image without a prediction."""
        super().begin(setting)
        self.state["stability"] = np.ones_like(self.state["clean_probability"])

    def update(self, seen: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """w from the losses; w^o from the drift of each image's prediction since the pass before (Eq. 7)."""
        ids, bank = self.setting.ids, self.state["predictions"]
        for k, notes in enumerate(seen):
            now = np.asarray(notes["predictions"], np.float32)
            before = np.asarray(bank[k, self.setting.image_of[ids]], np.float32)
            if before.any():
                drift = oscillation(now, before)
                self.state["stability"][k, ids] = fit_mixture(drift, self.setting.seed).low(drift)
        super().update(seen, epoch)

    def correspondence(self, k: int, batch: Batch) -> Tensor:
        """y_i = w_i + (1 - w_i) 1(w^o_i >= tau) w^o_i, from the peer (inside Eq. 8), (B,)."""
        w, stable = (
            correspond(self.believed(name, k), batch.ids, batch.image_rows)
            for name in ("clean_probability", "stability")
        )
        return w + (1 - w) * (stable >= self.threshold) * stable if self.rectify else w

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """L = L_c + lambda^n L_n + lambda^pse L_pse + lambda^ent L_ent (Eq. 10)."""
        own = networks[k]
        batch = batches.get("clean") or batches["all"]
        images, texts = own.encode(batch)
        y = (
            self.correspondence(k, batch)
            if "clean" in batches
            else torch.ones(len(batch), device=images.vectors.device)
        )
        terms = [self.ranking_term("clean", own, Pairing(images, texts, not_negatives(batch)), y, phase.warm)]
        logits = own.logits(images)
        terms.append(Term("pseudo", pseudo_label_loss(logits, own.logits(texts)), self.pseudo_weight))
        terms.append(Term("entropy", batch_entropy(logits), self.entropy_weight))
        if "noisy" in batches:
            terms.append(self._noisy(own, k, batches["noisy"], CleanBatch(batch, images, texts, logits)))
        return terms

    def _noisy(self, own: Network, k: int, noisy: Batch, clean: CleanBatch) -> Term:
        """L_n (Eq. 4 to 6): images of noisy pairs with the captions of the clean images predicted most alike."""
        pairing, y = self.rematch(own, k, noisy, own.matcher.encode_images(noisy.images), clean)
        term = self.ranking_term("noisy", own, pairing, y.clamp(0, 1))
        return Term("noisy", term.values * (y >= self.mismatch_threshold), self.noisy_weight, term.reduction)
