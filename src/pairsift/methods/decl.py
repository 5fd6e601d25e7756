"""DECL: deep evidential cross-modal learning with a robust dynamic hinge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from pairsift.arrays import Array, Bools
from pairsift.loss.evidential import evidence, evidential_loss
from pairsift.loss.hinge import hinge
from pairsift.match.base import Codes, Matcher, at_least_float32
from pairsift.methods.base import Epochs, Method
from pairsift.methods.parts.division import divide
from pairsift.methods.parts.part import Part
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.options import Options
from pairsift.steps import Batch, Network, Observation, Phase, Setting, Term, correspond, not_negatives


class DECLEpochs(Epochs):
    """The phases of DECL."""

    warmup: int = Field(default=5, ge=0, description="Epochs in which every pair is believed.")
    train: int = Field(default=40, ge=0, description="Epochs that begin with a division.")


class EvidenceDivision(Part):
    """The division of pairs by whether their own image and caption have the most evidence of a block (DECL).

    State: `clean_probability`, (networks, n_pairs), the evidence of the pair as a share of its own and that of the
    strongest negative, by network k; 1 until the first pass.
    """

    scale: float = Field(
        default=0.0,
        ge=0,
        description="Factor of the similarity in the raw score r; 0 for the score before the sigmoid, or for the "
        "similarity itself where the matcher has no such score.",
    )
    tau: float = Field(default=0.1, ge=0.04, description="Temperature of the evidence, exp(tanh(r) / tau).")
    block: int = Field(
        default=128,
        ge=2,
        description="About how many pairs a pair is compared with, which decides how strict the division is (128, the "
        "paper's batch); no more than come at once, batch_size for matchers that compare tokens.",
    )

    def begin(self, setting: Setting, state: dict[str, Array]) -> None:
        """Believe every pair."""
        super().begin(setting, state)
        state["clean_probability"] = self.array_of_pairs(1)

    def scores(self, matcher: Matcher, images: Codes, texts: Codes) -> Tensor:
        """Return the raw scores r of every image with every text, (n_images, n_texts), in float32 at least."""
        if self.scale:
            return matcher.similarity(images, texts) * self.scale
        if type(matcher).logits is Matcher.logits:  # a cosine times an inverse temperature
            return matcher.similarity(images, texts)
        return at_least_float32(matcher.logits(images, texts))

    def observe(self, observation: Observation) -> dict[str, Tensor]:
        """Return (e_ii + e_ii) / (e_ii + e_ii + max_j (e_ij + e_ji)), (B,): above one half where the pair is first."""
        shares = []
        for images, texts, exclude in observation.blocks(self.block):
            both = evidence(self.scores(observation.network.matcher, images, texts), self.tau)
            both = both + both.T
            own = both.diagonal()
            itself = torch.eye(len(both), dtype=torch.bool, device=both.device)
            negatives = both.masked_fill(exclude | exclude.T | itself, 0.0)
            shares.append(own / (own + negatives.max(1).values))
        return {"share": torch.cat(shares)}

    def update(self, notes: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """Keep the shares."""
        for k, noted in enumerate(notes):
            self.state["clean_probability"][k, self.setting.ids] = noted["share"]

    def clean(self, network: int) -> Bools:
        """Return which training pairs a network believes, (n,): those of a share above one half.

        Where held-out evidence is known, no more pairs are noisy than it leaves room for.
        """
        shares = np.asarray(self.state["clean_probability"][network, self.setting.ids], np.float32)
        most = 1.0 if self.setting.prior is None else self.setting.prior.most
        return divide(shares, least=0.0, most=most)

    def facts(self) -> dict[str, float]:
        """Return the share of noisy pairs; with the truth also the share of pairs on the right side."""
        clean, matches = [self.clean(k) for k in range(self.setting.networks)], self.setting.matched
        facts = {"noise_rate": float(1 - np.mean(clean))}
        if matches is not None:
            facts["discrimination"] = float(np.mean([side == matches[self.setting.ids] for side in clean]))
        return facts


class DynamicHinge(Options):
    """The hinge whose negatives become fewer and harder with every step (DECL)."""

    weight: float = Field(
        default=0.8, ge=0, description="Weight of a batch's *sum* of hinges beside its mean evidential loss, lambda_1."
    )
    margin: float = Field(default=0.2, ge=0, description="Margin, in units of tanh(r).")
    anneal: float = Field(default=0.025, ge=0, description="By how much the number of negatives falls in a step.")
    least: int = Field(default=5, ge=1, description="The number of hardest negatives that it does not fall below.")


class DECL(Method):
    """The method DECL: a row of a batch is a choice among captions, with evidence for each, and noisy pairs get none.

    The raw score r of image and caption gives evidence, and that a Dirichlet distribution over the captions of the
    batch. An evidential loss fits it to the pair where it is believed and to no evidence where it is not; a hinge over
    tanh(r) counts for believed pairs alone. Before each epoch after the warm-up, a pair is believed if no other
    caption and image of its block have more evidence with it.

    r is the score before a sigmoid, or a cosine as it is: times the usual inverse temperature, tanh(r) would be 1 for
    all pairs that are somewhat alike, and nothing could be told apart. The evidential loss is reduced as the run's
    ranking loss is and its weight divided by 128, so that its share beside the sum of the hinges is the paper's in
    batches of any size. Of two networks, each trains by its peer's division; the paper has one.
    """

    name: ClassVar[str] = "decl"
    citation: ClassVar[str] = """
@inproceedings{qin2022decl,
  author = {Qin, Yang and Peng, Dezhong and Peng, Xi and Wang, Xu and Hu, Peng},
  title = {Deep Evidential Learning with Noisy Correspondence for Cross-modal Retrieval},
  booktitle = {Proceedings of the 30th ACM International Conference on Multimedia},
  pages = {4948--4956},
  year = {2022}
}
"""
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER.having({"decay_epoch": 20}, networks=1),
        "paper_coco": PAPER.having({"lr": 5e-4, "decay_epoch": 10}, epochs={"warmup": 2, "train": 20}, networks=1),
        # Matchers of distributions, whose preset this is too, have scores before a sigmoid, which were not tried.
        "two_tower": TWO_TOWER.having(
            epochs={"warmup": 2, "train": 6}, dynamic={"anneal": 1.0}, division={"scale": 1.0}
        ),
        "clip": CLIP.having(epochs={"warmup": 1, "train": 4}, networks=1),
    }

    epochs: DECLEpochs = DECLEpochs()
    division: EvidenceDivision = EvidenceDivision()
    dynamic: DynamicHinge = DynamicHinge()
    regularisation: float = Field(default=0.1, ge=0, description="Weight of the divergence, lambda_2.")

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, and training by divisions, on all pairs."""
        return (
            Phase("warm-up", self.epochs.warmup, warm=True, competes=False),
            Phase("train", self.epochs.train, observe=True),
        )

    def begin(self, setting: Setting) -> None:
        """Believe every pair, and count the steps of each network from 0."""
        super().begin(setting)
        self.state["believed"] = self.division.array_of_pairs(1)
        self.state["steps"] = np.zeros(setting.networks, np.int64)

    def update(self, notes: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """Divide the pairs anew."""
        super().update(notes, epoch)
        for k in range(self.setting.networks):
            self.state["believed"][k, self.setting.ids] = self.division.clean(k)

    def negatives(self, network: int, size: int) -> int:
        """Return how many negatives the hinge averages in a step of the network on `size` pairs."""
        return max(int(size - self.dynamic.anneal * self.state["steps"][network]), self.dynamic.least)

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Return the robust dynamic hinge of believed pairs, and the evidential loss of all."""
        network, batch = networks[k], batches["all"]
        logits = self.division.scores(network.matcher, *network.encode(batch))
        exclude = not_negatives(batch)
        y = correspond(self.division.of_peer("believed", k), batch.ids, logits)
        margin = torch.full_like(y, self.dynamic.margin)
        distances = y * hinge(logits.tanh(), margin, self.negatives(k, len(batch)), exclude)
        self.state["steps"][k] += 1
        values = evidential_loss(evidence(logits, self.division.tau), y, exclude, self.regularisation)
        return [
            Term("hinge", distances, self.dynamic.weight, self.setting.ranking.reduction),
            self.setting.auxiliary_term("evidence", values, 1.0),
        ]
