"""PCSR: pseudo-label consistency-guided sample refinement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from pairsift.arrays import Array, Ints
from pairsift.loss.classes import batch_entropy, generalised_cross_entropy
from pairsift.match.base import Matcher, unit
from pairsift.methods.base import Epochs, Method
from pairsift.methods.parts.captions import CaptionSearch, CleanBatch
from pairsift.methods.parts.classifier import PseudoClassifier
from pairsift.methods.parts.consistency import Consistency
from pairsift.methods.parts.division import Division
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.options import Options
from pairsift.steps import Batch, Network, Pairing, Phase, Request, Term, correspond, not_negatives


class PCSREpochs(Epochs):
    """The phases of PCSR: a warm-up and the three stages of adaptive pair optimization."""

    warmup: int = Field(default=5, ge=0, description="Epochs on all pairs, as given, without noisy pairs' losses.")
    clean: int = Field(default=25, ge=0, description="Epochs of the first stage, on clean pairs.")
    refine: int = Field(default=15, ge=0, description="Epochs of the second stage, on clean and refinable pairs.")
    all: int = Field(
        default=10, ge=0, description="Epochs of the third stage, on clean, refinable and ambiguous pairs."
    )


class PCSRClassifier(PseudoClassifier):
    """The pseudo-classifier of PCSR, of 256 classes."""

    classes: int = Field(default=256, ge=2, description="Number of classes, K.")
    in_warmup: bool = Field(
        default=False, description="Whether it trains in the warm-up too, on all pairs; in the paper on clean ones."
    )


class NoisyPairs(Options):
    """How noisy pairs train."""

    train: Literal["all", "refinable", "ambiguous", "none"] = Field(
        default="all", description="Noisy pairs that train (Table 4)."
    )
    loss: Literal["own", "refinable", "ambiguous"] = Field(
        default="own",
        description="Noisy pairs train by their own class's loss, or all by that of refinable (T_R) or of ambiguous "
        "pairs (T_A) (Table 5).",
    )
    ambiguous_text: Literal["rematched", "own"] = Field(
        default="rematched",
        description="The triplet of ambiguous pairs takes the rematched caption, as printed, or their own.",
    )
    gamma: float = Field(default=0.7, ge=0.001, le=1, description="Exponent of the generalised cross-entropy.")


class PCSRWeights(Options):
    """The weights of the loss."""

    ranking: float = Field(
        default=1.0, ge=0, description="Weight of the clean and ambiguous pairs' triplet loss, lambda_t."
    )
    pseudo: float = Field(default=1.0, ge=0, description="Weight of the pseudo-classification loss, lambda_ce.")
    robust: float = Field(default=1.0, ge=0, description="Weight of the generalised cross-entropy, lambda_gce.")
    entropy: float = Field(default=10.0, ge=0, description="Weight of the entropy, lambda_en.")
    soft_clean: bool = Field(default=False, description="Whether the clean probability sets the margin of clean pairs.")


class PCSR(Method):
    """The method PCSR: noisy pairs of a steady class get new captions (refinable), others a robust loss (ambiguous).

    There is no public code. Where the paper is silent or contradicts itself: the entropy spreads classes (Eq. 2 is
    printed with the sign that merges them); clean pairs have the full margin; an image is counted once a pass, and not
    by the first, whose pseudo-classifier nobody has trained; PCS is divided by the passes counted, since Eq. 5 moves
    the threshold by at most 0.18; the threshold starts at a quantile, moves once an epoch, and the utilisation is that
    of the noisy pairs; of the stages' overlapping epochs (1 to 25 and 20 to 40) the first stage has those up to 25;
    a step's losses are summed, and a network's division comes from its peer. Margins carry no gradient.

    The entropy of the ambiguous pairs counts by pair: a batch that holds fewer of them than of clean ones takes it with
    so much less weight. The mean prediction of few pairs is nearly each one's own, and its entropy at full weight would
    ask every prediction to be uncertain.
    """

    name: ClassVar[str] = "pcsr"
    citation: ClassVar[str] = """
@misc{liu_pcsr,
  author = {Liu, Zhuoyao and Liu, Yang and Feng, Wentao and Huang, Shudong and others},
  title = {{PCSR}: Pseudo-label Consistency-Guided Sample Refinement for Noisy Correspondence Learning}
}
"""
    # two_tower's threshold was chosen on dev (0 to 80% noise, three seeds): beside the papers' 0.5 it costs 2 points of
    # rSum at 60% and gains 3.5 at 80%, where after so short a warm-up 0.5 takes many mismatches for clean.
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER,
        "paper_early": PAPER.having(epochs={"clean": 19, "refine": 21}),
        "paper_cc152k": PAPER.having(epochs={"warmup": 10}),
        "two_tower": TWO_TOWER.having(
            epochs={"warmup": 2, "clean": 3, "refine": 2, "all": 1},
            division={"threshold": 0.7},
            classifier={"in_warmup": True},
            captions={"search": "epoch"},
            consistency={"counted_from": 1},
        ),
        "clip": CLIP.having(
            epochs={"warmup": 1, "clean": 2, "refine": 1, "all": 1},
            classifier={"in_warmup": True},
            captions={"search": "epoch"},
            consistency={"counted_from": 1},
        ),
    }

    epochs: PCSREpochs = PCSREpochs()
    division: Division = Division()
    classifier: PCSRClassifier = PCSRClassifier()
    captions: CaptionSearch = CaptionSearch()
    consistency: Consistency = Consistency()
    noisy: NoisyPairs = NoisyPairs()
    weights: PCSRWeights = PCSRWeights()

    def phases(self) -> tuple[Phase, ...]:
        """Return the warm-up and the three stages."""
        refinable = ("refinable",) * (self.noisy.train in ("all", "refinable"))
        ambiguous = ("ambiguous",) * (self.noisy.train in ("all", "ambiguous"))
        return (
            Phase("warm-up", self.epochs.warmup, warm=True, competes=False),
            Phase("clean", self.epochs.clean, ("clean",), observe=True, competes=False),
            Phase("refine", self.epochs.refine, ("clean", *refinable), observe=True, competes=False),
            Phase("all", self.epochs.all, ("clean", *refinable, *ambiguous), observe=True),
        )

    def check(self, matcher: type[Matcher], starts_trained: bool) -> None:
        """Refuse a matcher without what the pseudo-classifier reads."""
        self.classifier.check(self.name, matcher)

    def head(self, dim: int) -> nn.Module:
        """Return the pseudo-classifier, one for both modalities."""
        return self.classifier.head(dim)

    def update(self, notes: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """Renew w, predictions and captions; then PCS by one more pass, and from the second stage on tau."""
        super().update(notes, epoch)
        self.captions.search_all(self.division)
        number = epoch - self.epochs.warmup + 1
        self.consistency.count(notes, number)
        for k in range(self.networks if number > self.epochs.clean else 0):
            passes = self.epochs.clean + self.epochs.refine + self.epochs.all
            self.consistency.move(k, self.division.noisy_by_itself(k), number / passes)

    def facts(self) -> dict[str, float]:
        """Return the parts' facts; once there are thresholds also their mean, and the share refined."""
        facts = super().facts()
        if self.consistency.has_thresholds:
            shares = [
                len(self.subset("refinable", k)) / max(1, len(self.subset("noisy", k))) for k in range(self.networks)
            ]
            facts |= {"tau": float(self.state["tau"].mean()), "utilisation": float(np.mean(shares))}
        return facts

    def verdicts(self) -> list[str] | None:
        """Return `clean`, `refinable` or `ambiguous` by the mean of the networks; None without thresholds."""
        ids = self.setting.ids
        if not self.consistency.has_thresholds:
            return None
        clean = self.division.clean(self.state["clean_probability"][:, ids].mean(0))
        noisy = np.where(self.consistency.lead(ids) >= 0, "refinable", "ambiguous")
        kinds: list[str] = np.where(clean, "clean", noisy).tolist()
        return kinds

    def subset(self, name: str, network: int) -> Ints:
        """Return `clean` and `noisy` pairs, among these `refinable` and `ambiguous` ones, by the peer; or `all`."""
        if name == "all":
            return super().subset(name, network)
        if name in ("clean", "noisy"):
            return self.division.subset(name, network)
        noisy = self.division.subset("noisy", network)
        refinable = self.consistency.refinable(noisy, network)
        return noisy[refinable] if name == "refinable" else noisy[~refinable]

    def requests(self, ids: Mapping[str, Ints], network: int) -> dict[str, Request]:
        """Return the subsets' pairs, noisy ones with the captions that the last search found.

        Where ambiguous pairs have another caption, they read their own too.
        """
        requests = {}
        for name, rows in ids.items():
            rematched = name in ("refinable", "ambiguous") and not self._keeps_caption(name)
            captions = self.captions.captions(network, rows) if rematched else None
            requests[name] = Request(rows, captions, given_texts=rematched and self._loss_of(name) == "ambiguous")
        return requests

    def _loss_of(self, name: str) -> str:
        """Return the class whose loss a noisy subset trains by."""
        return name if self.noisy.loss == "own" else self.noisy.loss

    def _keeps_caption(self, name: str) -> bool:
        """Return whether a noisy subset trains with its own captions alone."""
        return self._loss_of(name) == "ambiguous" and self.noisy.ambiguous_text == "own"

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Return L_clean (Eq. 7), L_refinable (Eq. 11) and L_ambiguous (Eq. 13), as far as the stage has them."""
        network, batch = networks[k], next(iter(batches.values()))
        images, texts = network.encode(batch)
        w = correspond(self.division.of_peer("clean_probability", k), batch.ids, batch.image_rows)
        y = w if self.weights.soft_clean else torch.ones_like(w)
        pairing = Pairing(images, texts, not_negatives(batch))
        term = self.setting.ranking_term("clean", network, pairing, y, phase.warm)
        if "clean" not in batches and not self.classifier.in_warmup:
            return [term]
        logits = network.logits(images)
        terms = [
            replace(term, weight=self.weights.ranking),
            *self.classifier.terms(logits, network.logits(texts), self.weights.pseudo, self.weights.entropy),
        ]
        clean = CleanBatch(batch, images, texts, logits)
        for name in ("refinable", "ambiguous"):
            if name in batches:
                learn = self._refinable if self._loss_of(name) == "refinable" else self._ambiguous
                terms += learn(name, network, k, batches[name], clean)
        return terms

    def _refinable(self, name: str, network: Network, k: int, batch: Batch, clean: CleanBatch) -> list[Term]:
        """Return the loss of images with the captions of clean pairs (Eq. 9 to 11)."""
        images = network.matcher.encode_images(batch.images)
        pairing, y = self.captions.rematch(network, k, batch, images, clean)
        term = self.setting.ranking_term(name, network, pairing, y.clamp(0, 1))
        return [self.captions.keep_alike(term, y)]

    def _ambiguous(self, name: str, network: Network, k: int, batch: Batch, clean: CleanBatch) -> list[Term]:
        """Return the triplet loss, and that of image and own caption teaching each other classes (Eq. 12 and 13)."""
        images = network.matcher.encode_images(batch.images)
        texts = network.matcher.encode_texts(batch.texts if batch.given_texts is None else batch.given_texts)
        p, q = network.logits(images), network.logits(texts)
        if self.noisy.ambiguous_text == "own":
            pairing = Pairing(images, texts, not_negatives(batch))
            y = (unit(p.detach().softmax(1)) * unit(q.detach().softmax(1))).sum(1)
            term = self.setting.ranking_term(name, network, pairing, y.clamp(0, 1))
        else:
            pairing, y = self.captions.rematch(network, k, batch, images, clean)
            term = self.captions.keep_alike(self.setting.ranking_term(name, network, pairing, y.clamp(0, 1)), y)
        share = len(batch) / len(clean.batch) if term.reduction == "mean" else 1.0
        robust = generalised_cross_entropy(p, q, self.noisy.gamma)
        return [
            replace(term, weight=self.weights.ranking),
            self.setting.auxiliary_term(f"{name} robust", robust, self.weights.robust),
            self.setting.auxiliary_term(f"{name} entropy", batch_entropy(p), self.weights.entropy * share),
        ]
