"""sift: new networks learn from the soft correspondences that earlier networks see in every batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor

from pairsift.methods.crossfit import held_out_correspondence, weighed_by_evidence
from pairsift.methods.plain import AllPairs, TrainEpochs, usual_epochs
from pairsift.methods.presets import CLIP_LINEAR, PAPER, TWO_TOWER_LINEAR, Preset
from pairsift.options import Options
from pairsift.steps import Batch, Phase, Setting, Step, Term

# From this number of training pairs on, taught networks were at least as accurate as `crossfit`; seen on
# photographs with one and five captions an image, drawn scenes with five, emoji and drawings with one.
TAUGHT_FROM = 3_000


class SiftEpochs(TrainEpochs):
    """The phases of sift: training as `crossfit` does, then networks that are taught.

    Where networks are taught and its length is left open, the first round is half as long as `crossfit`: on 30,000
    pairs, new networks learned less from teachers that train longer.
    """

    spare: ClassVar[tuple[str, ...]] = ("taught", "warmup")

    train: int | None = Field(
        default=40,
        ge=0,
        description="Epochs after that; left open (null in YAML): as many as make about 400 steps in all, 8 to 60, "
        "half of that where networks are taught, and fewer where recall on dev makes no more progress.",
    )
    taught: int | None = Field(
        default=40,
        ge=0,
        description="Epochs of the taught networks; left open (null in YAML): about 600 steps, 12 to 90, none below "
        "3,000 training pairs, and fewer where recall on dev makes no more progress.",
    )
    total: int | None = Field(
        default=None,
        ge=1,
        description="Number of all epochs (null: the sum of the phases), divided among the phases when it is known "
        "whether networks are taught; --epochs sets it.",
    )

    def lengths(self) -> dict[str, int | None]:
        """Return the lengths of the phases; `total` is none of them."""
        return {name: length for name, length in super().lengths().items() if name != "total"}

    def phases(self, setting: Setting | None) -> tuple[Phase, ...]:
        """Return warm-up, training, and a last phase that teaches new networks; it is empty for few pairs."""
        epochs = self._filled(setting)
        if self.total is not None:
            epochs = epochs.scaled(self.total)
        warmup, train = super(SiftEpochs, epochs).phases(setting)
        may_end = [length is None and self.total is None for length in (self.train, self.taught)]
        taught = Phase("taught", epochs.taught or 0, restarts=True, may_end=may_end[1])
        return warmup, replace(train, may_end=may_end[0]), taught

    def _filled(self, setting: Setting | None) -> Self:
        """Return the phases with usual lengths in the place of open ones, and without a total."""
        usual, taught, train = usual_epochs(setting), self.taught, self.train
        if taught is None:
            few = setting is not None and len(setting.ids) < TAUGHT_FROM
            taught = 0 if few else usual + usual // 2
        if train is None:
            train = max(1, (usual // 2 if taught else usual) - self.warmup)
        return type(self)(warmup=self.warmup, train=train, taught=taught)

    def scaled(self, total: int) -> Self:
        """Return the phases scaled as `Epochs` says; with `taught` left open, once the number of pairs is known.

        Too few epochs for all phases then all belong to the phases before.
        """
        if self.taught is None:
            self.replaced(taught=0).scaled(total)  # refuses too few epochs at once
            return self.replaced(total=total)
        return super(SiftEpochs, self._filled(None)).scaled(total)


class Teaching(Options):
    """The loss of networks that learn from teachers."""

    weight: float = Field(default=2.0, ge=0, description="Weight of the teaching beside the ranking loss, lambda.")
    sharpness: float = Field(
        default=0.7, gt=0, description="Factor of the teachers' scaled similarities, beta; below 1, they are softer."
    )
    balance: bool = Field(
        default=True,
        description="Whether images and captions that attract all others in a batch lose the excess.",
    )


class Sift(AllPairs):
    """The method sift of this project: networks learn from mismatched pairs too.

    First, networks train as `crossfit` does. Then they teach new networks: in every batch of pairs, some of them
    mismatched, they see how well each image fits each caption, and the new networks learn that:

        L = 1/B sum_i y_i l_i  +  lambda 1/B sum_i CE(softmax(beta Q), softmax(S)),

    with y the match probability by held-out evidence, l the ranking loss, S the scaled similarities of the new network,
    and Q the mean of the teachers', balanced over the batch (`balanced`). So the image and the
    caption of a mismatched pair teach how they relate to the others of the batch. Teachers do not learn.

    With the preset `two_tower`, the first round is half as long as `crossfit`, and the second three times as long as
    the first: on 30,000 pairs, new networks learned less from teachers that train longer. On 2,000 pairs and fewer,
    teaching gained nothing in the mean. So where its length is left open, there is none below 3,000 training pairs,
    and the method is `crossfit`.
    """

    name: ClassVar[str] = "sift"
    competes_with_linear: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER,
        "two_tower": TWO_TOWER_LINEAR.plus(epochs={"warmup": 0, "train": None, "taught": None}),
        "clip": CLIP_LINEAR.plus(epochs={"warmup": 0, "train": 5, "taught": 5}),
    }

    epochs: SiftEpochs = SiftEpochs()
    teaching: Teaching = Teaching()
    networks: int = Field(default=2, ge=1, le=8, description="How many networks train; together they are the teachers.")
    evidence: bool = weighed_by_evidence()

    def step(self, step: Step) -> list[Term]:
        """Return the ranking loss weighed by held-out evidence, and once there are teachers, their loss."""
        network, batch = step.network, step.batch
        pairing = network.pairing(batch)
        similarity, scale = network.matcher.similarity(pairing.images, pairing.texts), network.matcher.scale()
        y = held_out_correspondence(self.setting, batch)
        terms = [self.setting.ranking_term("correspondence", network, pairing, y, step.phase.warm, similarity, scale)]
        if self.setting.teachers:
            values = teaching(similarity * scale, self.targets(batch))
            terms.append(Term("teaching", values, self.teaching.weight, self.setting.ranking.reduction))
        return terms

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """Return beta Q, the similarities of a batch as the teachers see them, (B, B)."""
        logits = torch.stack(
            [similarity * scale for similarity, scale in (net(batch) for net in self.setting.teachers)]
        )
        mean = logits.float().mean(0)
        return self.teaching.sharpness * (balanced(mean) if self.teaching.balance else mean)


def balanced(logits: Tensor) -> Tensor:
    """Return logits without the general attraction of each image and of each caption of the block.

        S_ij - log sum_k exp(S_ik) - log sum_k exp(S_kj)

    This is the pointwise mutual information of image i and caption j up to a constant. Images that are close to many
    captions, and captions that are close to many images, lose that excess.

    Args:
        logits: S, scaled similarities, (B, C), images in rows.

    Returns:
        (B, C).
    """
    return logits - logits.logsumexp(1, keepdim=True) - logits.logsumexp(0, keepdim=True)


def teaching(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of each pair's similarities with a teacher's, the mean of both directions.

        -1/2 sum_j softmax_j(Q_ij) log softmax_j(S_ij)  -  1/2 sum_k softmax_k(Q_ki) log softmax_k(S_ki)

    Args:
        logits: S, scaled similarities of the network in training, (B, B), images in rows, pairs on the diagonal.
        targets: Q, the same of the teacher, (B, B), without gradient.

    Returns:
        (B,), at least 0.
    """
    captions = (targets.softmax(1) * logits.log_softmax(1)).sum(1)
    images = (targets.softmax(0) * logits.log_softmax(0)).sum(0)
    return -(captions + images) / 2
