"""CRCL: cross-modal active complementary learning with self-refining correspondence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field
from torch import Tensor

from pairsift.arrays import Array
from pairsift.loss.complementary import active_complementary
from pairsift.match.base import scale_at
from pairsift.methods.base import Epochs, Method, Notes, Part, trust_facts
from pairsift.methods.parts.momentum import moving_average
from pairsift.methods.presets import CLIP, TWO_TOWER, Preset
from pairsift.options import Options
from pairsift.steps import Observation, Phase, Setting, Step, Term, not_negatives

PIECES = ("first", "second", "third", "last")
PAPER = Preset(
    {"networks": 1},
    {
        "batch_size": 128,
        "lr": 5e-4,
        "weight_decay": 0.01,
        "schedule": "step",
        "decay_epoch": 15,
        "decay_every": 15,
        "max_norm": 2.0,
    },
)


class CRCLEpochs(Epochs):
    """The pieces of CRCL, each with new networks."""

    first: int = Field(default=7, ge=0, description="Epochs of the first networks.")
    second: int = Field(default=7, ge=0, description="Epochs of the second networks.")
    third: int = Field(default=7, ge=0, description="Epochs of the third networks.")
    last: int = Field(default=32, ge=0, description="Epochs of the networks that are kept.")

    def phases(self, frozen: int) -> tuple[Phase, ...]:
        """Return two phases for each piece: the first uses correspondences as they are, the second refines them.

        Args:
            frozen: Epochs of the first phase; at most half of a piece, but one where the piece has no more.
        """
        phases: list[Phase] = []
        for name in PIECES:
            length = int(getattr(self, name))
            still, last = min(frozen, (length + 1) // 2), name == "last"
            phases.append(Phase(f"{name} frozen", still, competes=False, restarts=bool(phases), teachers=False))
            phases.append(Phase(name, length - still, observe=True, competes=last))
        return tuple(phases)


class Correspondence(Part):
    """The correspondence of every pair, an average of the match probabilities that networks gave it (CRCL).

    State: `correspondence`, (networks, n_pairs), y of network k for every pair, in [0, 1]; 1 at first.
    """

    momentum: float = Field(default=0.2, ge=0, le=1, description="Share of the new estimate in the average.")
    least: float = Field(default=0.1, ge=0, le=1, description="Below this value a correspondence becomes 0.")
    block: int = Field(
        default=128,
        ge=2,
        description="About how many pairs share a softmax where the probability is estimated, which depends on it "
        "(128, the paper's batch); no more than come at once, batch_size for matchers that compare tokens.",
    )

    def initial_state(self, setting: Setting) -> dict[str, Array]:
        """Return correspondences that believe every pair."""
        return {"correspondence": setting.per_pair(1)}

    def refine(self, network: int, probability: Array, first: bool) -> None:
        """Move the average of a network by new match probabilities of the training pairs, (n,).

        Args:
            network: Number of the network.
            probability: In [0, 1], in the order of `setting.ids`.
            first: Whether there were none before; they are then taken as they are.
        """
        ids, y = self.setting.ids, self.state["correspondence"]
        average = moving_average(np.asarray(probability, np.float32), y[network, ids], 1.0 if first else self.momentum)
        y[network, ids] = np.where(average < self.least, 0.0, average)

    def facts(self) -> dict[str, float]:
        """Return the mean doubt, and with the truth the share of pairs on the right side of one half."""
        y = self.state["correspondence"][:, self.setting.ids]
        return trust_facts(self.setting, y, y > 0.5)


class Weights(Options):
    """The weights of the two parts of the loss."""

    active: float = Field(default=1.0, ge=0, description="Weight of the active loss.")
    complementary: float = Field(default=5.0, ge=0, description="Weight of the complementary loss.")


class CRCL(Method):
    """The method CRCL: a loss between InfoNCE and complementary learning, by correspondences that networks refine.

    A pair of correspondence y = 1 is pulled together and its negatives pushed apart; one of y = 0 only has a bounded
    loss on its negatives. The correspondence is an average over epochs of the softmax probability that the network
    gives the pair. Networks learn wrong pairs in time, so training is cut into pieces: each begins with new networks
    and optimizers and keeps nothing but the correspondences, which stay as they are in its first epochs.

    The published code refines by training steps on augmented pairs; here a pass in evaluation mode precedes each
    refining epoch. Of two networks, each trains by its peer's correspondences; the paper has one. Only the last
    piece is evaluated for the checkpoint, by the refining epochs.
    """

    name: ClassVar[str] = "crcl"
    citation: ClassVar[str] = """
@inproceedings{qin2023crcl,
  author = {Qin, Yang and Sun, Yuan and Peng, Dezhong and Zhou, Joey Tianyi and Peng, Xi and Hu, Peng},
  title = {Cross-modal Active Complementary Learning with Self-refining Correspondence},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {36},
  year = {2023}
}
"""
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER,
        "paper_coco": PAPER.plus(
            epochs={"first": 4, "second": 4, "third": 4, "last": 22}, train={"decay_epoch": 10, "decay_every": 10}
        ),
        "two_tower": TWO_TOWER.plus(epochs={"first": 4, "second": 4, "third": 0, "last": 8}, frozen=1),
        "clip": CLIP.plus(epochs={"first": 2, "second": 0, "third": 0, "last": 4}, frozen=1, tau=0.0, networks=1),
    }

    epochs: CRCLEpochs = CRCLEpochs()
    correspondence: Correspondence = Correspondence()
    weights: Weights = Weights()
    tau: float = Field(default=0.05, ge=0, description="Temperature of the softmax; 0 for the matcher's own.")
    frozen: int = Field(default=2, ge=1, description="First epochs of a piece, when correspondences stay as they are.")

    def phases(self) -> tuple[Phase, ...]:
        """Return the pieces, each in two phases, on all pairs."""
        return self.epochs.phases(self.frozen)

    def observe(self, seen: Observation) -> dict[str, Tensor]:
        """Return the mean of both directions' softmax probabilities of each pair, (B,)."""
        scale = scale_at(seen.network.matcher, self.tau)
        return {"probability": seen.match_probability(scale, self.correspondence.block)}

    def update(self, notes: Notes, epoch: int) -> None:
        """Refine the correspondences; after the first pass of all they are the probabilities themselves."""
        observed = [phase.observe for phase in self.phases() for _ in range(phase.epochs)]
        for k, noted in enumerate(notes):
            self.correspondence.refine(k, noted["probability"], first=epoch == observed.index(True))

    def step(self, step: Step) -> list[Term]:
        """Return the active and the complementary loss of all pairs by their correspondences."""
        matcher, batch, reduction = step.network.matcher, step.batch, self.setting.ranking.reduction
        similarity, _ = step.network(batch)
        y = self.correspondence.of_batch("correspondence", step.k, batch)
        logits = similarity * scale_at(matcher, self.tau)
        active, negative = active_complementary(logits, not_negatives(batch), y)
        return [
            Term("active", active, self.weights.active, reduction),
            Term("complementary", negative, self.weights.complementary, reduction),
        ]
