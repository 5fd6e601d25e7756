"""PCSR: pseudo-label consistency-guided sample refinement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from pairsift.arrays import Array, Bools, Floats, Ints
from pairsift.methods.base import Epochs, Method, Notes, Part
from pairsift.methods.parts.division import Division
from pairsift.methods.parts.pseudo_captions import CaptionSearch, CleanBatch, PseudoClassifier, batch_entropy
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.options import Options
from pairsift.steps import Batch, Network, Phase, Request, Setting, Step, Term


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
        default=False,
        description="Whether the classifier also learns in the warm-up, from all pairs; in the paper from clean ones.",
    )


class Consistency(Part):
    """The pseudo-label consistency score (PCS) of every image, and the threshold tau that divides by it.

    The pseudo-classifier gives the images' classes in each pass. PCS is divided by the number of passes that
    were counted, since Eq. 5 moves the threshold by at most 0.18; the threshold starts at a quantile and moves once an
    epoch, by the share of the noisy pairs that reaches it.

    State: `counts`, (networks, n_images, K), Q; `consistency`, (networks, n_images), PCS; `tau`, (networks,), NaN until
    a threshold is needed.
    """

    per_image: ClassVar[tuple[str, ...]] = ("counts", "consistency")

    least_use: float = Field(
        default=0.4,
        ge=0,
        le=1,
        description="Target share of refinable pairs among the noisy ones before the first epoch, lambda_min.",
    )
    most_use: float = Field(default=0.9, ge=0, le=1, description="The same in the last epoch, lambda_max.")
    sensitivity: float = Field(default=0.2, ge=0, description="How strongly tau follows the target, k.")
    rate: float = Field(default=0.7, ge=0, le=1, description="Update rate of tau, beta.")
    counted_from: int = Field(
        default=2,
        ge=1,
        description="First pass after the warm-up that counts; in pass 1 the pseudo-classifier is untrained.",
    )

    def initial_state(self, setting: Setting) -> dict[str, Array]:
        """Return scores that are 0, and thresholds that are not there yet."""
        return {
            "consistency": np.zeros((setting.networks, setting.n_images), np.float32),
            "tau": np.full(setting.networks, np.nan),
        }

    def count_from_zero(self, classes: int) -> None:
        """Put counts of this many classes into the state, 0 for every image."""
        shape = self.setting.networks, self.setting.n_images, classes
        self.state["counts"] = np.zeros(shape, np.float16)  # whole up to 2048

    def count(self, predictions: Sequence[Floats], number: int) -> None:
        """Count each image's class in one more pass, and renew PCS (Eq. 3).

        Args:
            predictions: By network, class predictions of the training pairs' images in the pass, (n, K).
            number: Number of the pass, from 1.
        """
        if number < self.counted_from:
            return
        rows, first_rows = np.unique(self.setting.image_of[self.setting.ids], return_index=True)
        for k, predicted in enumerate(predictions):
            labels = predicted.argmax(1)[first_rows].astype(np.int64)
            counts = tally(self.state["counts"][k, rows], labels)
            self.state["counts"][k, rows] = counts
            self.state["consistency"][k, rows] = consistency(counts)

    def move(self, k: int, noisy: Ints, progress: float) -> None:
        """Move tau of network k, by the noisy pairs of its own division (Eq. 4 to 6).

        Args:
            k: Number of the network.
            noisy: Ids of the pairs that it takes for noisy.
            progress: Share of the passes that are done, [0, 1].
        """
        score = self.state["consistency"][k, self.setting.image_of[noisy]]
        target, tau = target_utilisation(self.least_use, self.most_use, progress), float(self.state["tau"][k])
        if np.isnan(tau):
            tau = first_threshold(score, target)
        gap = target - utilisation(score, tau)
        self.state["tau"][k] = moved_threshold(tau, gap, self.sensitivity, self.rate)

    @property
    def has_thresholds(self) -> bool:
        """Whether every network has a threshold."""
        return not np.isnan(self.state["tau"]).any()

    def refinable(self, noisy: Ints, network: int) -> Bools:
        """Return which of the noisy pairs have an image whose PCS, by the network's peer, reaches tau, (n,)."""
        score = self.of_peer("consistency", network)[self.setting.image_of[noisy]]
        reached: Bools = score >= float(self.of_peer("tau", network))  # in float32, as `utilisation` compares
        return reached

    def lead(self, ids: Ints) -> Floats:
        """Return by how much the PCS of these pairs' images exceeds tau, in the mean of the networks, (n,)."""
        lead = self.state["consistency"][:, self.setting.image_of[ids]] - self.state["tau"][:, None]
        return np.asarray(lead.mean(0))


class NoisyPairs(Options):
    """How noisy pairs train."""

    train: Literal["all", "refinable", "ambiguous", "none"] = Field(
        default="all", description="Noisy pairs that train (Table 4)."
    )
    loss: Literal["own", "refinable", "ambiguous"] = Field(
        default="own",
        description="Noisy pairs train by their own class's loss, or all by the loss of refinable (T_R) or of "
        "ambiguous pairs (T_A) (Table 5).",
    )
    gamma: float = Field(default=0.7, ge=0.001, le=1, description="Exponent of the generalised cross-entropy.")
    entropy_by_pair: bool = Field(
        default=False,
        description="Whether the entropy of ambiguous pairs weighs proportionally less where a step has fewer of them "
        "than of clean ones; if not, it has its full weight, as printed (Eq. 13).",
    )


class PCSRWeights(Options):
    """The weights of the loss."""

    ranking: float = Field(
        default=1.0, ge=0, description="Weight of the clean and ambiguous pairs' triplet loss, lambda_t."
    )
    pseudo: float = Field(default=1.0, ge=0, description="Weight of the pseudo-classification loss, lambda_ce.")
    robust: float = Field(default=1.0, ge=0, description="Weight of the generalised cross-entropy, lambda_gce.")
    entropy: float = Field(default=10.0, ge=0, description="Weight of the entropy, lambda_en.")


class PCSR(Method):
    """The method PCSR: noisy pairs of a steady class get new captions (refinable), others a robust loss (ambiguous).

    There is no public code. Where the paper is silent or contradicts itself: the entropy spreads classes (Eq. 2 is
    printed with the sign that merges them); clean pairs have the full margin; an image is counted once a pass, and not
    in the first, whose pseudo-classifier is untrained; PCS is divided by the passes counted, since Eq. 5 moves the
    threshold by at most 0.18; the threshold starts at a quantile and moves once an epoch; the utilisation counts noisy
    pairs alone; the stages' epochs overlap as printed (1 to 25 and 20 to 40), and here the first stage ends after 25; a
    step's losses are summed; a network's division comes from its peer. Margins carry no gradient.

    The generalised cross-entropy and the entropy of ambiguous pairs are means over these pairs, however few a step has.
    The mean prediction of few pairs is nearly each pair's own, and its entropy at full weight asks every prediction to
    be uncertain; the short presets, `two_tower` and `clip`, weigh it by the number of pairs.
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
        "paper_early": PAPER.plus(epochs={"clean": 19, "refine": 21}),
        "paper_cc152k": PAPER.plus(epochs={"warmup": 10}),
        "two_tower": TWO_TOWER.plus(
            epochs={"warmup": 2, "clean": 3, "refine": 2, "all": 1},
            division={"threshold": 0.7},
            classifier={"in_warmup": True},
            captions={"search": "epoch"},
            consistency={"counted_from": 1},
            noisy={"entropy_by_pair": True},
        ),
        "clip": CLIP.plus(
            epochs={"warmup": 1, "clean": 2, "refine": 1, "all": 1},
            classifier={"in_warmup": True},
            captions={"search": "epoch"},
            consistency={"counted_from": 1},
            noisy={"entropy_by_pair": True},
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
            Phase("clean", self.epochs.clean, ("clean",), observe=True),
            Phase("refine", self.epochs.refine, ("clean", *refinable), observe=True),
            Phase("all", self.epochs.all, ("clean", *refinable, *ambiguous), observe=True),
        )

    def head(self, dim: int) -> nn.Module:
        """Return the pseudo-classifier, one for both modalities."""
        return self.classifier.head(dim)

    def begin(self, setting: Setting) -> Self:
        """Return a copy that has begun, whose counts have the classifier's classes."""
        begun = super().begin(setting)
        begun.consistency.count_from_zero(self.classifier.classes)
        return begun

    def update(self, notes: Notes, epoch: int) -> None:
        """Renew w, predictions and captions; then PCS by one more pass, and from the second stage on tau."""
        super().update(notes, epoch)
        self.captions.search_all(self.division, self.classifier, epoch)
        number = epoch - self.epochs.warmup + 1
        self.consistency.count([noted["classifier.predictions"] for noted in notes], number)
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
            facts |= {"tau": float(self.consistency.state["tau"].mean()), "utilisation": float(np.mean(shares))}
        return facts

    def verdicts(self) -> list[str] | None:
        """Return `clean`, `refinable` or `ambiguous` by the mean of the networks; None without thresholds."""
        ids = self.setting.ids
        if not self.consistency.has_thresholds:
            return None
        clean = self.division.clean(self.division.state["clean_probability"][:, ids].mean(0))
        noisy = np.where(self.consistency.lead(ids) >= 0, "refinable", "ambiguous")
        kinds: list[str] = np.where(clean, "clean", noisy).tolist()
        return kinds

    def subset(self, name: str, network: int) -> Ints:
        """Return `clean` and `noisy` pairs, among these `refinable` and `ambiguous` ones, by the peer; or `all`."""
        if name not in ("refinable", "ambiguous"):
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
            captions = self.captions.captions(network, rows) if name in ("refinable", "ambiguous") else None
            given_texts = captions is not None and self._loss_of(name) == "ambiguous"
            requests[name] = Request(rows, captions, given_texts)
        return requests

    def _loss_of(self, name: str) -> str:
        """Return the class whose loss a noisy subset trains by."""
        return name if self.noisy.loss == "own" else self.noisy.loss

    def step(self, step: Step) -> list[Term]:
        """Return L_clean (Eq. 7), L_refinable (Eq. 11) and L_ambiguous (Eq. 13), as far as the stage has them."""
        network, batch = step.network, step.batch
        pairing = network.pairing(batch)
        images, texts = pairing.images, pairing.texts
        y = torch.ones(len(batch), device=batch.image_rows.device)
        term = self.setting.ranking_term("clean", network, pairing, y, step.phase.warm)
        if "clean" not in step.batches and not self.classifier.in_warmup:
            return [term]
        logits = network.logits(images)
        terms = [
            replace(term, weight=self.weights.ranking),
            *self.classifier.terms(logits, network.logits(texts), self.weights.pseudo, self.weights.entropy),
        ]
        clean = CleanBatch(batch, images, texts, logits)
        for name in ("refinable", "ambiguous"):
            if name in step.batches:
                learn = self._refinable if self._loss_of(name) == "refinable" else self._ambiguous
                terms += learn(name, network, step.k, step.batches[name], clean)
        return terms

    def _refinable(self, name: str, network: Network, k: int, batch: Batch, clean: CleanBatch) -> list[Term]:
        """Return the loss of images with the captions of clean pairs (Eq. 9 to 11)."""
        images = network.matcher.encode_images(batch.images)
        pairing, y = self.captions.rematch(network, k, batch, images, clean, self.classifier)
        term = self.setting.ranking_term(name, network, pairing, y.clamp(0, 1))
        return [self.captions.keep_alike(term, y)]

    def _ambiguous(self, name: str, network: Network, k: int, batch: Batch, clean: CleanBatch) -> list[Term]:
        """Return the triplet loss, and the robust loss and entropy of image and own caption (Eq. 12 and 13)."""
        images = network.matcher.encode_images(batch.images)
        texts = network.matcher.encode_texts(batch.texts if batch.given_texts is None else batch.given_texts)
        p, q = network.logits(images), network.logits(texts)
        pairing, y = self.captions.rematch(network, k, batch, images, clean, self.classifier)
        term = self.captions.keep_alike(self.setting.ranking_term(name, network, pairing, y.clamp(0, 1)), y)
        robust, entropy = generalised_cross_entropy(p, q, self.noisy.gamma), batch_entropy(p)
        full = len(clean.batch) / len(batch) if term.reduction == "sum" else 1.0  # a sum of few pairs is less
        share = len(batch) / len(clean.batch) if self.noisy.entropy_by_pair else 1.0
        return [
            replace(term, weight=self.weights.ranking),
            self.setting.auxiliary_term(f"{name} robust", robust, self.weights.robust * full),
            self.setting.auxiliary_term(f"{name} entropy", entropy, self.weights.entropy * full * share),
        ]


def tally(counts: NDArray[Any], labels: NDArray[np.integer]) -> NDArray[Any]:
    """Return the counts Q of every item's classes with one more pass, (n, K), of the type of `counts`.

    Args:
        counts: How often each item was put into each class so far, (n, K).
        labels: Each item's class in the new pass, (n,).
    """
    result = counts.copy()
    result[np.arange(len(counts)), labels] += 1
    return result


def consistency(counts: NDArray[Any]) -> Floats:
    """Return PCS = n_max - n_second, the lead of the most frequent class over the next (PCSR Eq. 3), (n,), in [0, 1].

    It is divided by the number of counted passes; an item never counted has 0.

    Args:
        counts: How often each item was put into each class, (n, K), K at least 2.
    """
    top = np.partition(counts, counts.shape[1] - 2, axis=1)[:, -2:].astype(np.float32)
    lead = top[:, 1] - top[:, 0]
    return np.asarray(lead / np.maximum(counts.sum(1, dtype=np.float32), 1e-6), np.float32)


def utilisation(score: Floats, threshold: float) -> float:
    """Return lambda, the share of noisy pairs whose score reaches the threshold; 0 of none.

    Args:
        score: PCS of the noisy pairs' images, (n,).
        threshold: tau.
    """
    return float((score >= threshold).mean()) if len(score) else 0.0


def target_utilisation(least: float, most: float, progress: float) -> float:
    """Return lambda_target = lambda_min + (lambda_max - lambda_min) t / T (PCSR Eq. 4), `progress` t / T in [0, 1]."""
    return least + (most - least) * progress


def first_threshold(score: Floats, target: float) -> float:
    """Return the (1 - target)-quantile of the noisy pairs' scores: at least a share `target` of them reaches it.

    The same pass then moves it by Eq. 5 and 6 like any other, since with few levels of the score more than the target
    may reach it.

    Args:
        score: PCS, (n,); where there is none the threshold is 0.5.
        target: lambda_target, [0, 1].
    """
    return float(np.quantile(score, 1 - target, method="lower")) if len(score) else 0.5


def moved_threshold(threshold: float, gap: float, sensitivity: float, rate: float) -> float:
    """Return tau after one update (PCSR Eq. 5 and 6), kept in [0, 1].

        tau_target = tau - k (lambda_target - lambda),    tau_t = (1 - beta) tau + beta tau_target

    Args:
        threshold: tau of the epoch before.
        gap: lambda_target - lambda.
        sensitivity: k, at least 0.
        rate: beta, [0, 1].
    """
    target = threshold - sensitivity * gap
    return min(max((1 - rate) * threshold + rate * target, 0.0), 1.0)


def generalised_cross_entropy(image_logits: Tensor, text_logits: Tensor, gamma: float = 0.7) -> Tensor:
    """Return the generalised cross-entropy between the predictions of image and caption (PCSR Eq. 12).

    Each side's prediction is compared with the most likely class of the other side:

        (1 - p_i(q^_i)^gamma) / gamma  +  (1 - q_i(p^_i)^gamma) / gamma

    Here p is the prediction of the image, q the prediction of the caption, and ^ marks the most likely class. Each term
    tends to the cross-entropy as gamma tends to 0 and equals 1 - p at gamma = 1. With a larger gamma, a label that the
    prediction considers unlikely has a smaller gradient.

    Args:
        image_logits: (B, K).
        text_logits: (B, K). Both predictions have a gradient; the most likely classes have none.
        gamma: In (0, 1].

    Returns:
        (B,), in [0, 2 / gamma].
    """
    total = torch.zeros_like(image_logits[:, 0], dtype=torch.promote_types(image_logits.dtype, torch.float32))
    for logits, opposite in ((image_logits, text_logits), (text_logits, image_logits)):
        log_p = logits.log_softmax(1).gather(1, opposite.argmax(1, keepdim=True))[:, 0]
        total = total - torch.expm1(gamma * log_p) / gamma
    return total
