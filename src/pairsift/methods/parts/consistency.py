"""How steadily an image is put into one class, and the threshold that parts the steady from the unsteady (PCSR)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pairsift.arrays import Array, Bools, Floats, Ints
from pairsift.methods.parts.part import Part
from pairsift.steps import Setting


class Consistency(Part):
    """The pseudo-label consistency score (PCS) of every image, and the threshold tau that divides by it.

    The images' classes are those of the pseudo-classifier in each pass. PCS is divided by the number of passes that
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
    start: Annotated[float, Field(ge=0)] | Literal["quantile"] = Field(
        default="quantile", description="First tau: the quantile that meets the target, or a number."
    )
    score: Literal["share", "count"] = Field(
        default="share", description="PCS is a share of the counted passes, or the count itself, as printed."
    )
    counted_from: int = Field(
        default=2,
        ge=1,
        description="First pass after the warm-up that counts; in pass 1 the pseudo-classifier is untrained.",
    )
    count_decay: float = Field(
        default=1.0, ge=0, le=1, description="Factor of earlier counts in each pass; 1 as in the paper."
    )

    def begin(self, setting: Setting, state: dict[str, Array]) -> None:
        """Let every image start without a count."""
        super().begin(setting, state)
        state["counts"] = np.zeros_like(state["predictions"], np.float16)  # whole up to 2048
        state["consistency"] = np.zeros((setting.networks, setting.n_images), np.float32)
        state["tau"] = np.full(setting.networks, np.nan)

    def count(self, notes: Sequence[Mapping[str, Array]], number: int) -> None:
        """Count each image's class in one more pass, and renew PCS (Eq. 3).

        Args:
            notes: As for `update`; the predictions are read.
            number: Number of the pass, from 1.
        """
        if number < self.counted_from:
            return
        rows, first_rows = np.unique(self.setting.image_of[self.setting.ids], return_index=True)
        for k, noted in enumerate(notes):
            labels = noted["predictions"].argmax(1)[first_rows].astype(np.int64)
            counts = tally(self.state["counts"][k, rows], labels, self.count_decay)
            self.state["counts"][k, rows] = counts
            self.state["consistency"][k, rows] = consistency(counts, self.score == "share")

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
            tau = first_threshold(score, target) if self.start == "quantile" else float(self.start)
        gap, highest = target - utilisation(score, tau), 1.0 if self.score == "share" else inf
        self.state["tau"][k] = moved_threshold(tau, gap, self.sensitivity, self.rate, highest)

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


def tally(counts: NDArray[Any], labels: NDArray[np.integer], decay: float = 1.0) -> NDArray[Any]:
    """Return the counts Q of every item's classes with one more pass, (n, K), of the type of `counts`.

    Args:
        counts: How often each item was put into each class so far, (n, K).
        labels: Each item's class in the new pass, (n,).
        decay: Factor of the earlier counts; 1 keeps them whole.
    """
    result = (counts * decay).astype(counts.dtype)
    result[np.arange(len(counts)), labels] += 1
    return result


def consistency(counts: NDArray[Any], share: bool = True) -> Floats:
    """Return PCS = n_max - n_second, the lead of the most frequent class over the next (PCSR Eq. 3), (n,), at least 0.

    Args:
        counts: How often each item was put into each class, (n, K), K at least 2.
        share: Divide by the number of counted passes, which gives [0, 1]; an item never counted has 0.
    """
    top = np.partition(counts, counts.shape[1] - 2, axis=1)[:, -2:].astype(np.float32)
    lead = top[:, 1] - top[:, 0]
    return lead / np.maximum(counts.sum(1, dtype=np.float32), 1e-6) if share else lead


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


def moved_threshold(threshold: float, gap: float, sensitivity: float, rate: float, highest: float = inf) -> float:
    """Return tau after one update (PCSR Eq. 5 and 6), kept in [0, highest].

        tau_target = tau - k (lambda_target - lambda),    tau_t = (1 - beta) tau + beta tau_target

    Args:
        threshold: tau of the epoch before.
        gap: lambda_target - lambda.
        sensitivity: k, at least 0.
        rate: beta, [0, 1].
        highest: Largest threshold.
    """
    target = threshold - sensitivity * gap
    return min(max((1 - rate) * threshold + rate * target, 0.0), highest)
