"""PCSR: pseudo-label consistency-guided sample refinement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import ClassVar, Literal

import torch

from pairsift.loss.classes import batch_entropy, generalised_cross_entropy, pseudo_label_loss
from pairsift.match.base import unit
from pairsift.methods.base import Batch, Network, Pairing, Phase, Term, correspond, demand, not_negatives
from pairsift.methods.captioning import CleanBatch
from pairsift.methods.consistency import ConsistencyMethod
from pairsift.methods.plain import CLIP, PAPER, TWO_TOWER
from pairsift.pairs.pairs import Ints


class PCSR(ConsistencyMethod):
    """Noisy pairs whose image keeps its class get another caption (refinable); the rest a robust loss (ambiguous).

    There is no public code. Where the paper is silent or contradicts itself: the entropy spreads classes (Eq. 2 is
    printed with the sign that merges them); clean pairs have the full margin; an image is counted once a pass, and not
    by the first, whose pseudo-classifier nobody has trained; PCS is divided by the passes counted, since Eq. 5 moves
    the threshold by at most 0.18; the threshold starts at a quantile, moves once an epoch, and the utilisation is that
    of the noisy pairs; of the stages' overlapping epochs (1 to 25 and 20 to 40) the first stage has those up to 25;
    a step's losses are summed, and a network's division comes from its peer. Margins carry no gradient.

    State: that of `ConsistencyMethod`.

    The entropy of the ambiguous pairs counts by pair: a batch that holds fewer of them than of clean ones takes it with
    so much less weight. The mean prediction of few pairs is nearly each one's own, and its entropy at full weight would
    ask every prediction to be uncertain.

    Args:
        warmup_epochs: Epochs on all pairs, as given; the pseudo-classifier is not trained in them.
        clean_epochs: Epochs of the first stage, on clean pairs.
        refine_epochs: Epochs of the second stage, on clean and refinable pairs.
        all_epochs: Epochs of the third stage, on clean, refinable and ambiguous pairs.
        classes: K of the pseudo-classifier.
        threshold: Clean probability above which a pair is clean, [0, 1].
        least_use: Target share of refinable pairs among the noisy ones before the first epoch, lambda_min.
        most_use: The same in the last epoch, lambda_max.
        sensitivity: How strongly the threshold tau of PCS follows the target, k.
        rate: Update rate of tau, beta.
        start: First tau: the `quantile` that meets the target, or a number.
        score: PCS is the `share` of the counted passes, or the `count` itself, as printed.
        counted_from: First pass after the warm-up whose classes count; in pass 1 the pseudo-classifier is untrained.
        count_decay: Factor of earlier counts in each pass, [0, 1]; 1 as in the paper.
        noisy: Noisy pairs that train: `all`, `refinable` or `ambiguous` ones only, or `none` (Table 4).
        noisy_loss: Noisy pairs train by their `own` class's loss, or all by the `refinable` (T_R) or by the
            `ambiguous` (T_A) one (Table 5).
        ambiguous_text: The triplet of ambiguous pairs takes the `rematched` caption, as printed, or their `own`.
        search: Captions are sought in the clean `batch` at hand, or among all clean pairs once an `epoch`, which finds
            a clean caption of the same image where there is one.
        soft_clean: Whether the clean probability sets the margin of clean pairs.
        ranking_weight: Weight of the clean and ambiguous pairs' triplet loss, lambda_t.
        pseudo_weight: Weight of the pseudo-classification loss, lambda_ce.
        robust_weight: Weight of the generalised cross-entropy, lambda_gce.
        entropy_weight: Weight of the entropy, lambda_en.
        gamma: Exponent of the generalised cross-entropy, (0, 1].
        classifier: The pseudo-classifier reads `global` vectors as PC2's does, or by their cosines with learned
            `directions` (soon spread over the classes), or all tokens in a row (`flat`).
        networks: 2, or 1 for a network that believes itself.
    """

    name: ClassVar[str] = "pcsr"
    reads_given: ClassVar[bool] = True
    summary: ClassVar[str] = "steady noisy pairs get other captions, unsteady ones a robust loss"
    citation: ClassVar[str] = (
        "Liu et al., PCSR: Pseudo-label Consistency-Guided Sample Refinement for Noisy Correspondence Learning"
    )
    # two_tower's threshold was chosen on dev (0 to 80% noise, three seeds): beside the papers' 0.5 it costs 2 points of
    # rSum at 60% and gains 3.5 at 80%, where after so short a warm-up 0.5 takes many mismatches for clean.
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "paper": PAPER,
        "paper_early": {**PAPER, "pcsr.clean_epochs": 19, "pcsr.refine_epochs": 21},
        "paper_cc152k": {**PAPER, "pcsr.warmup_epochs": 10},
        "two_tower": {
            **TWO_TOWER,
            "pcsr.warmup_epochs": 2,
            "pcsr.clean_epochs": 3,
            "pcsr.refine_epochs": 2,
            "pcsr.all_epochs": 1,
            "pcsr.threshold": 0.7,
            "pcsr.search": "epoch",
        },
        "clip": {
            **CLIP,
            "pcsr.warmup_epochs": 1,
            "pcsr.clean_epochs": 2,
            "pcsr.refine_epochs": 1,
            "pcsr.all_epochs": 1,
            "pcsr.search": "epoch",
        },
    }

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        warmup_epochs: int = 5,
        clean_epochs: int = 25,
        refine_epochs: int = 15,
        all_epochs: int = 10,
        classes: int = 256,
        threshold: float = 0.5,
        least_use: float = 0.4,
        most_use: float = 0.9,
        sensitivity: float = 0.2,
        rate: float = 0.7,
        start: float | Literal["quantile"] = "quantile",
        score: Literal["share", "count"] = "share",
        counted_from: int = 2,
        count_decay: float = 1.0,
        noisy: Literal["all", "refinable", "ambiguous", "none"] = "all",
        noisy_loss: Literal["own", "refinable", "ambiguous"] = "own",
        ambiguous_text: Literal["rematched", "own"] = "rematched",
        search: Literal["batch", "epoch"] = "batch",
        soft_clean: bool = False,
        ranking_weight: float = 1.0,
        pseudo_weight: float = 1.0,
        robust_weight: float = 1.0,
        entropy_weight: float = 10.0,
        gamma: float = 0.7,
        classifier: Literal["global", "directions", "flat"] = "global",
        networks: int = 2,
    ) -> None:
        self.warmup_epochs, self.clean_epochs = warmup_epochs, clean_epochs
        self.refine_epochs, self.all_epochs, self.networks = refine_epochs, all_epochs, networks
        self.classes, self.threshold, self.start, self.score = classes, threshold, start, score
        self.least_use, self.most_use, self.sensitivity, self.rate = least_use, most_use, sensitivity, rate
        self.counted_from, self.count_decay, self.gamma = counted_from, count_decay, gamma
        self.noisy, self.noisy_loss, self.ambiguous_text = noisy, noisy_loss, ambiguous_text
        self.search, self.soft_clean, self.classifier = search, soft_clean, classifier
        self.ranking_weight, self.pseudo_weight = ranking_weight, pseudo_weight
        self.robust_weight, self.entropy_weight = robust_weight, entropy_weight

        demand(self, 0, inf, "warmup_epochs", "clean_epochs", "refine_epochs", "all_epochs", "sensitivity")
        demand(self, 0, inf, "ranking_weight", "pseudo_weight", "robust_weight", "entropy_weight")
        demand(self, 0, 1, "threshold", "least_use", "most_use", "rate", "count_decay")
        demand(self, 0.001, 1, "gamma")
        demand(self, 1, 2, "networks")
        demand(self, 1, inf, "counted_from")
        demand(self, 2, inf, "classes")
        if start != "quantile":
            demand(self, 0, inf, "start")

    def phases(self) -> tuple[Phase, ...]:
        """Warm-up and the three stages of adaptive pair optimization."""
        refinable = ("refinable",) * (self.noisy in ("all", "refinable"))
        ambiguous = ("ambiguous",) * (self.noisy in ("all", "ambiguous"))
        return (
            Phase("warm-up", self.warmup_epochs, warm=True),
            Phase("clean", self.clean_epochs, ("clean",), observe=True),
            Phase("refine", self.refine_epochs, ("clean", *refinable), observe=True),
            Phase("all", self.all_epochs, ("clean", *refinable, *ambiguous), observe=True),
        )

    def captions(self, name: str, network: int, ids: Ints) -> Ints:
        """With `search` epoch: the captions that the last pass found for noisy pairs, where these train with others."""
        own = self._way(name) == "ambiguous" and self.ambiguous_text == "own"
        return ids if own else super().captions(name, network, ids)

    def _way(self, name: str) -> str:
        """The class whose loss a noisy subset trains by."""
        return name if self.noisy_loss == "own" else self.noisy_loss

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """L_clean (Eq. 7), L_refinable (Eq. 11) and L_ambiguous (Eq. 13), as far as the stage has them."""
        own, batch = networks[k], next(iter(batches.values()))
        images, texts = own.encode(batch)
        w = correspond(self.believed("clean_probability", k), batch.ids, batch.image_rows)
        pairing, y = Pairing(images, texts, not_negatives(batch)), w if self.soft_clean else torch.ones_like(w)
        term = self.ranking_term("clean", own, pairing, y, phase.warm)
        if "clean" not in batches:
            return [term]
        logits = own.logits(images)
        terms = [
            replace(term, weight=self.ranking_weight),
            Term("pseudo", pseudo_label_loss(logits, own.logits(texts)), self.pseudo_weight),  # Eq. 1
            Term("entropy", batch_entropy(logits), self.entropy_weight),  # Eq. 2
        ]
        clean = CleanBatch(batch, images, texts, logits)
        for name in ("refinable", "ambiguous"):
            if name in batches:
                learn = self._refinable if self._way(name) == "refinable" else self._ambiguous
                terms += learn(name, own, k, batches[name], clean)
        return terms

    def _refinable(self, name: str, own: Network, k: int, batch: Batch, clean: CleanBatch) -> list[Term]:
        """The images with the captions of clean pairs (Eq. 9 to 11)."""
        pairing, y = self.rematch(own, k, batch, own.matcher.encode_images(batch.images), clean)
        return [self.ranking_term(name, own, pairing, y.clamp(0, 1))]

    def _ambiguous(self, name: str, own: Network, k: int, batch: Batch, clean: CleanBatch) -> list[Term]:
        """The triplet loss, and image and own caption teaching each other their classes (Eq. 12 and 13)."""
        images = own.matcher.encode_images(batch.images)
        texts = own.matcher.encode_texts(batch.texts if batch.given is None else batch.given)
        p, q = own.logits(images), own.logits(texts)
        if self.ambiguous_text == "own":
            pairing = Pairing(images, texts, not_negatives(batch))
            y = (unit(p.detach().softmax(1)) * unit(q.detach().softmax(1))).sum(1)
        else:
            pairing, y = self.rematch(own, k, batch, images, clean)
        return [
            replace(self.ranking_term(name, own, pairing, y.clamp(0, 1)), weight=self.ranking_weight),
            Term(f"{name} robust", generalised_cross_entropy(p, q, self.gamma), self.robust_weight),
            Term(f"{name} entropy", batch_entropy(p), self.entropy_weight * len(batch) / len(clean.batch)),
        ]
