"""How steadily a pair's image keeps its class prediction from one epoch to the next (PC2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import Field

from pairsift.arrays import Array, Floats
from pairsift.methods.parts.mixture import fit_mixture
from pairsift.methods.parts.part import Part
from pairsift.steps import Setting


class Stability(Part):
    """The stability w^o of every pair, by a mixture over the oscillation of its image's predictions (PC2 Eq. 7).

    Before two passes have something to compare, every pair counts as stable. It reads the `predictions` of the pass
    before from the state, so it is updated before the part that renews them.

    State: `stability`, (networks, n_pairs), w^o in [0, 1].
    """

    rectify: bool = Field(
        default=True, description="Whether stability rectifies the correspondence of clean pairs (Eq. 8)."
    )

    def begin(self, setting: Setting, state: dict[str, Array]) -> None:
        """Let every pair start as stable."""
        super().begin(setting, state)
        state["stability"] = self.array_of_pairs(1)

    def update(self, notes: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """Fit w^o by the drift of each image's prediction since the pass before."""
        ids, bank = self.setting.ids, self.state["predictions"]
        for k, noted in enumerate(notes):
            current = np.asarray(noted["predictions"], np.float32)
            previous = np.asarray(bank[k, self.setting.image_of[ids]], np.float32)
            if previous.any():
                drift = oscillation(current, previous)
                self.state["stability"][k, ids] = fit_mixture(drift, self.setting.seed).low(drift)


def oscillation(current: Floats, previous: Floats) -> Floats:
    """Return KL(current || previous) of each row's class prediction (PC2 Eq. 7), (n,), at least 0.

    Args:
        current: Predictions of this epoch, (n, K), rows summing to 1.
        previous: Predictions of the epoch before, (n, K).
    """
    tiny = np.float32(1e-12)
    ratio = np.log(np.maximum(current, tiny)) - np.log(np.maximum(previous, tiny))
    return np.asarray(np.maximum((current * ratio).sum(1), 0), np.float32)
