"""Co-dividing: the clean probabilities that NCR and its successors share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pairsift.methods.base import Array, Method, Phase, Setting
from pairsift.pairs.pairs import Ints
from pairsift.trust.division import divide, peer
from pairsift.trust.mixture import fit_mixture


class DividingMethod(Method):
    """A method that fits a mixture to each network's losses and trains each network on its peer's division.

    Its phases are a warm-up on all pairs, clean pairs alone, then clean and noisy pairs.

    State: `clean_probability`, (networks, n_pairs), w of network k for every pair; 1 until the first division.
    """

    warmup_epochs: int
    clean_epochs: int
    all_epochs: int
    threshold: float = 0.5

    def phases(self) -> tuple[Phase, ...]:
        """Warm-up, clean pairs, all pairs."""
        return (
            Phase("warm-up", self.warmup_epochs, warm=True),
            Phase("clean", self.clean_epochs, ("clean",), observe=True),
            Phase("all", self.all_epochs, ("clean", "noisy"), observe=True),
        )

    def begin(self, setting: Setting) -> None:
        """Every pair starts as clean."""
        super().begin(setting)
        self.state["clean_probability"] = np.ones((self.networks, len(setting.image_of)), np.float32)

    def update(self, seen: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """w = posterior of the mixture component with the smaller loss (NCR)."""
        for k, notes in enumerate(seen):
            loss = np.asarray(notes["loss"], np.float32)
            mixture = fit_mixture(loss, self.setting.seed)
            self.state["clean_probability"][k, self.setting.ids] = mixture.low(loss)

    def facts(self) -> dict[str, float]:
        """The estimated share of mismatched pairs."""
        return {"noise_rate": float(1 - self.state["clean_probability"][:, self.setting.ids].mean())}

    def believed(self, name: str, network: int) -> Array:
        """An array of the state as network k trains by it: its peer's, (n_pairs, ...)."""
        array: Array = self.state[name][peer(network, self.networks)]
        return array

    def divided(self, clean_probability: Array) -> NDArray[np.bool_]:
        """Return which pairs are clean, (n,).

        Where held-out evidence is known, no more pairs are noisy than it leaves room for.

        Args:
            clean_probability: (n,), in [0, 1].
        """
        most = 1.0 if self.setting.prior is None else self.setting.prior.most
        return divide(np.asarray(clean_probability, np.float32), self.threshold, most=most)

    def subset(self, name: str, network: int) -> Ints:
        """`clean` and `noisy` by the peer's division; `all`."""
        ids = self.setting.ids
        if name not in ("clean", "noisy"):
            return super().subset(name, network)
        clean = self.divided(self.believed("clean_probability", network)[ids])
        return ids[clean] if name == "clean" else ids[~clean]
