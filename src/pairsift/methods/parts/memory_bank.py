"""A bank of the clean pairs that lie nearest to every pair (NPC)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np
from pydantic import Field
from torch import Tensor

from pairsift.arrays import Array, Ints
from pairsift.methods.parts.division import CleanProbability
from pairsift.methods.parts.nearest import nearest_clean
from pairsift.steps import Observation, Setting

SIDES = ("by_image", "by_text")


class MemoryBank(CleanProbability):
    """The clean pairs with the nearest image and the nearest caption, for every pair (NPC Eq. 3 to 5).

    State beside `clean_probability`: `by_image` and `by_text`, (networks, n_pairs), ids of each pair's bank pairs; -1
    until the bank is made.
    """

    threshold: float = Field(
        default=0.99, ge=0, le=1, description="Clean probability from which on the bank takes a pair, tau."
    )
    least: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Smallest share of the pairs that the bank takes; where fewer reach the threshold, those of least "
        "loss.",
    )
    refresh: bool = Field(default=False, description="Whether the bank is made anew at the start of every epoch.")
    self_match: bool = Field(default=True, description="Whether a pair that the bank takes may be its own bank pair.")
    weight: float = Field(default=1.0, ge=0, description="Weight of the bank's loss L_MB (Eq. 11); 0 leaves it out.")

    def begin(self, setting: Setting, state: dict[str, Array]) -> None:
        """Let every pair start as clean, without bank pairs."""
        super().begin(setting, state)
        for side in SIDES:
            state[side] = self.array_of_pairs(-1, np.int64)

    def observe(self, observation: Observation) -> dict[str, Tensor]:
        """Return the loss by which pairs are divided, and both global vectors."""
        return {
            **super().observe(observation),
            "by_image": observation.images.vectors,
            "by_text": observation.texts.vectors,
        }

    def update(self, notes: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """Fit clean probabilities to the losses (Eq. 3 and 4), and make the bank of D_c = {p >= tau} (Eq. 5)."""
        super().update(notes, epoch)
        ids = self.setting.ids
        captions = np.arange(len(ids))
        for k, noted in enumerate(notes):
            passed = int((self.state["clean_probability"][k, ids] >= self.threshold).sum())
            smallest = min(len(ids), max(2, ceil(self.least * len(ids))))
            clean = np.argsort(noted["loss"], kind="stable")[: max(passed, smallest)]  # p never rises with the loss
            for side, items in zip(SIDES, (self.setting.image_of[ids], captions), strict=True):
                self.state[side][k, ids] = ids[nearest_clean(noted[side], items, clean, self.self_match)]

    def facts(self) -> dict[str, float]:
        """Return the estimated share of mismatched pairs; once there is a bank, its size and purity."""
        ids = self.setting.ids
        if (self.state["by_image"][:, ids] < 0).any():
            return super().facts()
        passed = float((self.state["clean_probability"][:, ids] >= self.threshold).mean())
        facts = {**super().facts(), "reach_threshold": passed, "bank_share": max(passed, self.least)}
        if self.setting.matched is not None:
            banked = np.stack([self.state[side][:, ids] for side in SIDES])
            facts["bank_purity"] = float(self.setting.matched[banked].mean())
        return facts

    def pairs(self, side: str, ids: Ints, network: int) -> Ints:
        """Return ids of the bank pairs of these pairs on one side, as the network trains by them, (len(ids),)."""
        return np.asarray(self.of_peer(side, network)[ids], np.int64)

    def made_for(self, ids: Ints, network: int) -> bool:
        """Return whether all these pairs have bank pairs."""
        return all((self.pairs(side, ids, network) >= 0).all() for side in SIDES)
