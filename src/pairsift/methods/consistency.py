"""Consistency-guided division, the half of PCSR that parts noisy pairs in two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Literal

import numpy as np
from torch import Tensor

from pairsift.methods.base import Array, Batch, Network, Setting
from pairsift.methods.captioning import CaptioningMethod
from pairsift.pairs.pairs import Ints
from pairsift.trust.consistency import (
    consistency,
    first_threshold,
    moved_threshold,
    tally,
    target_utilisation,
    utilisation,
)


class ConsistencyMethod(CaptioningMethod):
    """A method that tells noisy pairs whose image keeps its pseudo-class (refinable) from the others (ambiguous).

    State beside `clean_probability`: `counts`, (networks, n_images, K), Q; `consistency`, (networks, n_images), PCS;
    `tau`, (networks,), NaN until the clean epochs are over; with `search` epoch also `predictions` and
    `pseudo_caption`. The options are those of PCSR.
    """

    refine_epochs: int
    least_use: float
    most_use: float
    sensitivity: float
    rate: float
    start: float | Literal["quantile"]
    score: Literal["share", "count"]
    counted_from: int
    count_decay: float

    def begin(self, setting: Setting) -> None:
        """Every pair starts as clean, every image without a count."""
        super().begin(setting)
        self.state["counts"] = np.zeros((self.networks, setting.n_images, self.classes), np.float16)  # whole up to 2048
        self.state["consistency"] = np.zeros((self.networks, setting.n_images), np.float32)
        self.state["tau"] = np.full(self.networks, np.nan)

    def observe(self, network: Network, batch: Batch) -> dict[str, Tensor]:
        """The loss by which pairs are divided, and the images' classes."""
        notes = super().observe(network, batch)
        notes["label"] = notes["predictions"].argmax(1)
        return notes if self.search == "epoch" else {name: notes[name] for name in ("loss", "label")}

    def update(self, seen: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """w from the losses, PCS from one more pass (Eq. 3), and from the second stage on a new tau."""
        super().update(seen, epoch)
        passes = epoch - self.warmup_epochs + 1
        rows, first = np.unique(self.setting.image_of[self.setting.ids], return_index=True)
        for k, notes in enumerate(seen):
            if passes >= self.counted_from:
                counts = tally(self.state["counts"][k, rows], notes["label"][first].astype(np.int64), self.count_decay)
                self.state["counts"][k, rows] = counts
                self.state["consistency"][k, rows] = consistency(counts, self.score == "share")
            if passes > self.clean_epochs:
                self._move(k, passes / (self.clean_epochs + self.refine_epochs + self.all_epochs))

    def _move(self, k: int, done: float) -> None:
        """tau of network k, by the noisy pairs of its own division (Eq. 4 to 6)."""
        ids = self.setting.ids
        noisy = ids[~self.divided(self.state["clean_probability"][k, ids])]
        score = self.state["consistency"][k, self.setting.image_of[noisy]]
        target, tau = target_utilisation(self.least_use, self.most_use, done), float(self.state["tau"][k])
        if np.isnan(tau):
            tau = first_threshold(score, target) if self.start == "quantile" else float(self.start)
        gap, most = target - utilisation(score, tau), 1.0 if self.score == "share" else inf
        self.state["tau"][k] = moved_threshold(tau, gap, self.sensitivity, self.rate, most)

    def facts(self) -> dict[str, float]:
        """The estimated share of mismatched pairs; once there are thresholds their mean, and the share refined."""
        facts = super().facts()
        if not np.isnan(self.state["tau"]).any():
            shares = [
                len(self.subset("refinable", k)) / max(1, len(self.subset("noisy", k))) for k in range(self.networks)
            ]
            facts |= {"tau": float(self.state["tau"].mean()), "utilisation": float(np.mean(shares))}
        return facts

    def verdicts(self) -> list[str] | None:
        """`clean`, `refinable` or `ambiguous` by the mean of the networks; None where no stage needed thresholds."""
        ids = self.setting.ids
        if np.isnan(self.state["tau"]).any():
            return None
        clean = self.divided(self.state["clean_probability"][:, ids].mean(0))
        lead = self.state["consistency"][:, self.setting.image_of[ids]] - self.state["tau"][:, None]
        words: list[str] = np.where(clean, "clean", np.where(lead.mean(0) >= 0, "refinable", "ambiguous")).tolist()
        return words

    def subset(self, name: str, network: int) -> Ints:
        """`clean` and `noisy` by the peer's division; of the noisy ones `refinable` and `ambiguous` by its PCS."""
        if name not in ("refinable", "ambiguous"):
            return super().subset(name, network)
        noisy = super().subset("noisy", network)
        score = self.believed("consistency", network)[self.setting.image_of[noisy]]
        refinable = score >= float(self.believed("tau", network))  # in float32, as `utilisation` compares
        return noisy[refinable] if name == "refinable" else noisy[~refinable]
