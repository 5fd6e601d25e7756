"""OSA: one-step anti-noise by what a pretrained model says of each pair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field
from torch import Tensor

from pairsift.arrays import Array, Floats
from pairsift.errors import InputError
from pairsift.match.base import Matcher
from pairsift.methods.base import Epochs, Method, Notes
from pairsift.methods.presets import CLIP_LINEAR, TWO_TOWER_LINEAR, Preset
from pairsift.steps import Observation, Phase, Setting, Step, Term, gather_rows, not_negatives

PEAK = 0.5**0.5  # where x^2 - x^4 is largest
FINE_TUNING = CLIP_LINEAR.plus({"lr": 1e-5, "max_norm": 0.0})


class OSAEpochs(Epochs):
    """The phases of OSA."""

    train: int = Field(default=5, ge=0, description="Epochs; the weights are made at the start of the first.")

    def phases(self) -> tuple[Phase, ...]:
        """Return the epoch that begins with a pass of the estimator, and the rest."""
        first = min(1, self.train)
        return Phase("first", first, observe=True), Phase("train", self.train - first)


class OSA(Method):
    """The method OSA: a pair weighs by how far a pretrained model finds it more alike than unrelated pairs.

    The estimator is the matcher itself before it learns anything here. One pass in evaluation mode gives the excess of
    every pair: its similarity less the mean similarity of unrelated images and captions in a batch. Where the excess is
    negative, the weight is 0; else x is its share of the largest excess among the training pairs, and

        w = 4 (x^2 - x^4)

    up to x = 0.71, where it is 1. The weights are constants of the pairs, and the correspondences in the ranking loss.

    The paper takes the similarity of random pixels with random tokens off, and divides by the largest value of a batch.
    It has no factor 4, so that no weight is above one quarter, and the weight falls again to 0 for the most similar
    pair of the batch; that is an option (`--osa.printed`).
    """

    name: ClassVar[str] = "osa"
    citation: ClassVar[str] = """
@misc{li2024osa,
  author = {Li, Hao and Gu, Jiayang and Song, Jingkuan and Zhang, An and Gao, Lianli},
  title = {One-step Noisy Label Mitigation},
  year = {2024},
  eprint = {2410.01944},
  archiveprefix = {arXiv}
}
"""
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": FINE_TUNING.plus(printed=True),
        "two_tower": TWO_TOWER_LINEAR,
        "clip": FINE_TUNING,
    }

    epochs: OSAEpochs = OSAEpochs()
    printed: bool = Field(
        default=False,
        description="Whether weights are x^2 - x^4 as printed, at most one quarter and falling from x = 0.71 on.",
    )
    networks: int = Field(default=1, ge=1, le=8, description="How many networks train, independently of each other.")

    def check(self, matcher: type[Matcher], starts_trained: bool) -> None:
        """Refuse a matcher that knows nothing before it is trained.

        Raises:
            InputError: It starts untrained.
        """
        if not starts_trained:
            raise InputError(
                f"osa weighs pairs by what the matcher knows before training, and {matcher.name} starts untrained: "
                "take --matcher clip, vectors that share a space (--aligned), or another method"
            )

    def phases(self) -> tuple[Phase, ...]:
        """Return the epoch that makes the weights, and the rest."""
        return self.epochs.phases()

    def initial_state(self, setting: Setting) -> dict[str, Array]:
        """Return the weight of every pair, (networks, n_pairs); 1 at first."""
        return {"weight": setting.per_pair(1)}

    def observe(self, seen: Observation) -> dict[str, Tensor]:
        """Return the similarity of each pair, and the mean one of its image with captions of others, (B,) each."""
        similarity = seen.similarity
        unrelated = ~not_negatives(seen.batch)
        means = (similarity * unrelated).sum(1) / unrelated.sum(1).clamp(min=1)
        return {"similarity": similarity.diagonal(), "unrelated": means}

    def update(self, notes: Notes, epoch: int) -> None:
        """Weigh all training pairs.

        Raises:
            InputError: The matcher finds no pair more alike than unrelated ones.
        """
        for k, noted in enumerate(notes):
            excess = np.asarray(noted["similarity"], np.float32) - np.float32(
                np.mean(noted["unrelated"], dtype=np.float64)
            )
            if excess.max() <= 0:
                raise InputError(
                    "osa: the matcher finds no pair more alike than images and captions of different pairs"
                )
            self.state["weight"][k, self.setting.ids] = weight_of(excess, self.printed)

    def facts(self) -> dict[str, float]:
        """Return the mean weight, and with the truth also the means over matching and over mismatched pairs."""
        weight, matches = self.state["weight"][:, self.setting.ids], self.setting.matched
        facts = {"mean_weight": float(weight.mean())}
        if matches is not None:
            for name, group in (("matching", matches[self.setting.ids]), ("mismatched", ~matches[self.setting.ids])):
                if group.any():
                    facts[f"mean_weight_{name}"] = float(weight[:, group].mean())
        return facts

    def step(self, step: Step) -> list[Term]:
        """Return the ranking loss on the pairs as given, by their weights."""
        weight = gather_rows(self.state["weight"][step.k], step.batch.ids, step.batch.image_rows)
        return [self.setting.ranking_loss(step, weight)]


def weight_of(excess: Floats, printed: bool = False) -> Floats:
    """Return 4 (x^2 - x^4) of each pair, with x the share of its excess in the largest one, (n,), in [0, 1].

    From x = 0.71 on, where it is largest, it stays 1.

    Args:
        excess: Similarity above the mean of unrelated pairs, (n,), at least one above 0. Negative ones count as 0.
        printed: Whether to return x^2 - x^4 itself, which falls to 0 for the largest.
    """
    x = np.maximum(excess, 0) / excess.max()
    if not printed:
        x = np.minimum(x, PEAK)
    return np.asarray((1 if printed else 4) * (x**2 - x**4), np.float32)
