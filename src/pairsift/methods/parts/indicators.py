"""Indicators of mismatch across and within the modalities, averaged over epochs (GSC)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from pairsift.arrays import Array, Ints
from pairsift.loss.structure import structure_agreement
from pairsift.match.base import Matcher, scale_at
from pairsift.methods.parts.mixture import fit_mixture
from pairsift.methods.parts.momentum import least, moving_average
from pairsift.methods.parts.part import Part
from pairsift.steps import Observation, Setting


class StructureIndicators(Part):
    """The cross-modal indicator y_CM and the intra-modal one y_IM of every pair, averaged over epochs (GSC).

    State: `cross_modal` and `intra_modal`, (networks, n_pairs), the averages of network k for every pair; 1 at first.
    """

    use: Literal["both", "cross_modal", "intra_modal"] = Field(
        default="both", description="What a label is made of: the lesser of both indicators, or one of them."
    )
    beta1: float = Field(
        default=0.7, ge=0, le=1, description="Share of the new estimate in the cross-modal average; 1 for no average."
    )
    beta2: float = Field(default=0.7, ge=0, le=1, description="The same for the intra-modal average.")
    tau1: float = Field(
        default=0.07, ge=0, description="Temperature of the cross-modal softmax; 0 for the matcher's own."
    )
    block: int = Field(
        default=128,
        ge=2,
        description="About how many pairs share a softmax where y_CM is estimated, which depends on it (128, the "
        "paper's batch); no more than come at once, batch_size for matchers that compare tokens.",
    )

    def begin(self, setting: Setting, state: dict[str, Array]) -> None:
        """Let every label start at 1."""
        super().begin(setting, state)
        state["cross_modal"], state["intra_modal"] = self.array_of_pairs(1), self.array_of_pairs(1)

    def labels(self, network: int, ids: Ints, device: torch.device) -> Tensor:
        """Return y = min(y_CM, y_IM) (Eq. 5) of these pairs as the network trains by it, its peer's, (len(ids),)."""
        return torch.from_numpy(least(*(self.of_peer(name, network)[ids] for name in self._names))).to(device)

    @property
    def _names(self) -> tuple[str, ...]:
        """Names of the indicators that a label is made of."""
        return ("cross_modal", "intra_modal") if self.use == "both" else (self.use,)

    def scale(self, matcher: Matcher) -> Tensor:
        """Return 1 / tau_1, scalar."""
        return scale_at(matcher, self.tau1)

    def observe(self, observation: Observation) -> dict[str, Tensor]:
        """Return y_CM (Eq. 3) and S_IM (Eq. 8) by the labels that the network trains by, (B,) each."""
        images, texts, matcher = observation.images, observation.texts, observation.network.matcher
        probability = observation.match_probability(self.scale(matcher), self.block)
        within = matcher.intra_similarity(images), matcher.intra_similarity(texts)
        labels = self.labels(observation.k, observation.batch.ids, probability.device)
        return {"probability": probability, "agreement": structure_agreement(*within, labels)}

    def update(self, notes: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """Move the averages by the new estimates (Eq. 10); y_IM is the posterior of the cleaner component (Eq. 4)."""
        ids = self.setting.ids
        for k, noted in enumerate(notes):
            probability, distance = np.asarray(noted["probability"], np.float32), 1 - noted["agreement"]
            clean = np.asarray(fit_mixture(distance, self.setting.seed).low(distance), np.float32)
            for name, estimate, beta in (("cross_modal", probability, self.beta1), ("intra_modal", clean, self.beta2)):
                self.state[name][k, ids] = moving_average(estimate, self.state[name][k, ids], beta)

    def facts(self) -> dict[str, float]:
        """Return the estimated share of mismatched pairs: 1 - the mean of the averages y_IM, which start at 1.

        With the truth also the share of pairs whose label is on the right side of one half.
        """
        ids, matches = self.setting.ids, self.setting.matched
        facts = {"noise_rate": float(1 - self.state["intra_modal"][:, ids].mean())}
        if matches is not None:
            labels = least(*(self.state[name][:, ids] for name in self._names))
            facts["discrimination"] = float(((labels > 0.5) == matches[ids]).mean())
        return facts
