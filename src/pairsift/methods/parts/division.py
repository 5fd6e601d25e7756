"""Clean probabilities by a mixture over the losses, and the division of pairs into clean and noisy ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import Field
from torch import Tensor

from pairsift.arrays import Array, Bools, Floats, Ints
from pairsift.methods.parts.mixture import Kind, fit_mixture
from pairsift.methods.parts.part import Part
from pairsift.steps import Observation, Setting


class CleanProbability(Part):
    """The clean probability w of every pair, by a mixture over each network's losses (NCR).

    State: `clean_probability`, (networks, n_pairs), w of network k for every pair; 1 until the first pass; `loss`,
    (networks, n_pairs), the loss that it was fitted to, 0 until then.
    """

    mixture: Kind = Field(
        default="gaussian", description="Components of the mixture: two Gaussians (NCR), or two betas (BiCro, L2RM)."
    )

    def begin(self, setting: Setting, state: dict[str, Array]) -> None:
        """Let every pair start as clean."""
        super().begin(setting, state)
        state["clean_probability"], state["loss"] = self.array_of_pairs(1), self.array_of_pairs(0)

    def observe(self, observation: Observation) -> dict[str, Tensor]:
        """Return the loss by which pairs are divided."""
        return {"loss": observation.loss(self.setting.ranking)}

    def update(self, notes: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """Fit w, the posterior of the mixture component with the smaller loss."""
        for k, noted in enumerate(notes):
            loss = np.asarray(noted["loss"], np.float32)
            mixture = fit_mixture(loss, self.setting.seed, self.mixture)
            self.state["clean_probability"][k, self.setting.ids] = mixture.low(loss)
            self.state["loss"][k, self.setting.ids] = loss

    def clean(self, clean_probability: Array) -> Bools:
        """Return which of the training pairs are more likely clean than noisy, (n,)."""
        return np.asarray(clean_probability > 0.5, np.bool_)

    def facts(self) -> dict[str, float]:
        """Return the estimated share of mismatched pairs; with the truth also the share of pairs on the right side."""
        probabilities, matches = self.state["clean_probability"][:, self.setting.ids], self.setting.matched
        facts = {"noise_rate": float(1 - probabilities.mean())}
        if matches is not None:
            hits = [self.clean(probability) == matches[self.setting.ids] for probability in probabilities]
            facts["discrimination"] = float(np.mean(hits))
        return facts


class Division(CleanProbability):
    """The division of the training pairs into clean and noisy ones; each network trains by its peer's (co-teaching).

    State: `clean_probability`, as for `CleanProbability`.
    """

    threshold: float = Field(default=0.5, ge=0, le=1, description="Clean probability above which a pair is clean.")

    def clean(self, clean_probability: Array) -> Bools:
        """Return which of the training pairs are clean, (n,).

        Where held-out evidence is known, no more pairs are noisy than it leaves room for.

        Args:
            clean_probability: Of the training pairs, (n,), in [0, 1].
        """
        most = 1.0 if self.setting.prior is None else self.setting.prior.most
        return divide(np.asarray(clean_probability, np.float32), self.threshold, most=most)

    def subset(self, name: str, network: int) -> Ints:
        """Return ids of the pairs that the network's peer takes for clean (`clean`) or for noisy (`noisy`)."""
        ids = self.setting.ids
        clean = self.clean(self.of_peer("clean_probability", network)[ids])
        return ids[clean] if name == "clean" else ids[~clean]

    def noisy_by_itself(self, network: int) -> Ints:
        """Return ids of the pairs that the network itself takes for noisy."""
        ids = self.setting.ids
        return ids[~self.clean(self.state["clean_probability"][network, ids])]


class BetaDivision(Division):
    """The division by a mixture of two betas (BiCro and L2RM)."""

    mixture: Kind = Field(default="beta", description="Components of the mixture: two betas, or two Gaussians (NCR).")


class CoDivision(Division):
    """The division of the training pairs into three sets by the word of all networks (CREAM).

    A pair is `clean` where every network says so, `noisy` where none does, and `hard` where they disagree; a network
    alone has no hard pairs. Where no pair is clean to all, those are that are clean by the mean of the networks.
    """

    def sets(self) -> dict[str, Bools]:
        """Return which of the training pairs are in each set, by its name, (n,)."""
        probability = self.state["clean_probability"][:, self.setting.ids]
        votes = np.stack([self.clean(row) for row in probability]).sum(0)
        clean: Bools = votes == len(probability)
        clean = clean if clean.any() else self.clean(probability.mean(0))
        noisy: Bools = (votes == 0) & ~clean
        return {"clean": clean, "hard": ~clean & ~noisy, "noisy": noisy}

    def subset(self, name: str, network: int) -> Ints:
        """Return ids of the pairs in the set `clean`, `hard` or `noisy`, the same for every network."""
        return self.setting.ids[self.sets()[name]]

    def facts(self) -> dict[str, float]:
        """Return the facts of `Division`, and the share of hard pairs."""
        return {**super().facts(), "hard": float(self.sets()["hard"].mean())}


def rectified(w: Tensor, prediction: Tensor) -> Tensor:
    """Return the label w + (1 - w) P of pairs with the clean probability w and a network's prediction P, (B,) (NCR)."""
    return w + (1 - w) * prediction


def divide(clean_probability: Floats, threshold: float = 0.5, least: float = 0.01, most: float = 1.0) -> Bools:
    """Return which pairs are taken as clean: clean probability above the threshold (co-dividing of NCR).

    Neither side of two or more pairs is left empty: where fewer than `least` of them (or half, if that is less) fall on
    one side, the most extreme ones are put there (ties by position). Where more than `most` would be noisy, those of
    them with the highest clean probability are taken as clean; this comes last.

    Args:
        clean_probability: (n,), in [0, 1].
        threshold: In [0, 1].
        least: Smallest share of each side, [0, 0.5].
        most: Largest share of noisy pairs, [0, 1].

    Returns:
        True at clean pairs, (n,).
    """
    n = len(clean_probability)
    clean = clean_probability > threshold
    side_size = min(int(np.ceil(least * n)), n // 2)
    order = np.argsort(clean_probability, kind="stable")
    if clean.sum() < side_size:
        clean[order[n - side_size :]] = True
    if n - clean.sum() < side_size:
        clean[order[:side_size]] = False
    surplus = int((~clean).sum() - np.floor(most * n))
    if surplus > 0:
        noisy = order[~clean[order]]
        clean[noisy[len(noisy) - surplus :]] = True
    return clean
