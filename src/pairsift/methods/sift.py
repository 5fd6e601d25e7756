"""sift: new networks learn from the soft correspondences that the networks before them see in every batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor

from pairsift.loss.teaching import balanced, teaching
from pairsift.methods.base import Method
from pairsift.methods.crossfit import held_out_correspondence
from pairsift.methods.plain import DEFAULT_EPOCHS, TrainEpochs, usual_epochs
from pairsift.methods.presets import CLIP_LINEAR, PAPER, TWO_TOWER_LINEAR, Preset
from pairsift.options import Options
from pairsift.steps import Batch, Network, Pairing, Phase, Setting, Term, not_negatives

# Number of training pairs from which on taught networks were as accurate as those of `crossfit` or more; seen on
# photographs with one and five captions an image, drawn scenes with five, emoji and drawings with one.
TAUGHT_FROM = 3_000


class SiftEpochs(TrainEpochs):
    """The phases of sift: training as `crossfit` does, then networks that are taught.

    Where networks are taught and its length is left open, the first round is half as long as `crossfit`: on 30,000
    pairs, new networks learned less from teachers that train longer.
    """

    train: int | None = Field(
        default=40,
        ge=0,
        description="Epochs after that; left open (null in YAML): as many as make about 400 steps in all, 8 to 60, and "
        "half of that where networks are taught.",
    )
    taught: int | None = Field(
        default=40,
        ge=0,
        description="Epochs of the taught networks; left open (null in YAML): about 600 steps, 12 to 90, and none "
        "below 3,000 training pairs.",
    )
    total: int | None = Field(
        default=None,
        ge=1,
        description="Epochs in all (null: as the phases say), which divide among the phases once it is known whether "
        "networks are taught; --epochs sets it.",
    )

    def lengths(self) -> dict[str, int | None]:
        """Return the lengths of the phases; `total` is none of them."""
        return {name: length for name, length in super().lengths().items() if name != "total"}

    def phases(self, setting: Setting | None) -> tuple[Phase, ...]:
        """Return warm-up, training, and a last phase in which new networks are taught; it is empty for few pairs."""
        closed = self._closed(setting)
        if self.total is not None:
            if self.total < sum(map(bool, closed.lengths().values())):
                closed = closed.replaced(taught=0)
            return closed.replaced(total=None).scaled(self.total).phases(setting)
        return *super(SiftEpochs, closed).phases(setting), Phase("taught", closed.taught or 0, restarts=True)

    def _closed(self, setting: Setting | None) -> Self:
        """Return the phases with lengths in the place of those that are left open."""
        usual, taught, train = usual_epochs(setting), self.taught, self.train
        if taught is None:
            taught = usual + usual // 2 if setting is None or len(setting.ids) >= TAUGHT_FROM else 0
        if train is None:
            train = max(1, (usual // 2 if taught else usual) - self.warmup)
        return self.replaced(train=train, taught=taught)

    def scaled(self, total: int) -> Self:
        """Return the phases scaled as `Epochs` says; with `taught` left open, once the number of pairs is known.

        Too few epochs for all phases then all belong to the ones before.
        """
        if self.total is not None:
            return self.replaced(total=None).scaled(total)
        if self.taught is None:
            self.replaced(taught=0).scaled(total)  # refuses too few epochs at once
            return self.replaced(total=total)
        if self.train is None and self.taught:
            return self.replaced(train=DEFAULT_EPOCHS // 2).scaled(total)
        return super().scaled(total)


class Teaching(Options):
    """The options of what the taught networks learn from their teachers."""

    weight: float = Field(default=2.0, ge=0, description="Weight of the teaching beside the ranking loss, lambda.")
    sharpness: float = Field(
        default=0.7, gt=0, description="Factor of the teachers' scaled similarities, beta; below 1, they are softer."
    )
    balance: bool = Field(
        default=True,
        description="Whether images and captions that attract all others in a batch lose what they have more.",
    )


class Sift(Method):
    """The method sift of this project, in which networks learn from mismatched pairs too.

    First, networks train as `crossfit` does. Then these are the teachers of new networks: in every batch of pairs, of
    which some are mismatched, they see how well each image fits each caption, and the new networks learn that

        L = 1/B sum_i y_i l_i  +  lambda 1/B sum_i CE(softmax(beta Q), softmax(S)),

    with y the match probability by held-out evidence, l the ranking loss, S the scaled similarities of the new network,
    and Q the mean of the teachers', balanced over the batch (`pairsift.loss.teaching.balanced`). So the image and the
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
        "two_tower": TWO_TOWER_LINEAR.having(epochs={"warmup": 0, "train": None, "taught": None}),
        "clip": CLIP_LINEAR.having(epochs={"warmup": 0, "train": 5, "taught": 5}),
    }

    epochs: SiftEpochs = SiftEpochs()
    teaching: Teaching = Teaching()
    networks: int = Field(default=2, ge=1, le=8, description="How many networks train; together they are the teachers.")

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, training on all pairs, and teaching."""
        return self.epochs.phases(self.setting_if_any)

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Return the ranking loss weighed by held-out evidence, and once there are teachers, what they teach."""
        network, batch, ranking = networks[k], batches["all"], self.setting.ranking
        pairing = Pairing(*network.encode(batch), not_negatives(batch))
        similarity, scale = network.matcher.similarity(pairing.images, pairing.texts), network.matcher.scale()
        y = held_out_correspondence(self.setting, batch)
        terms = [self.setting.ranking_term("correspondence", network, pairing, y, phase.warm, similarity, scale)]
        if self.setting.teachers:
            values = teaching(similarity * scale, self.targets(batch))
            terms.append(Term("teaching", values, self.teaching.weight, ranking.reduction))
        return terms

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """Return beta Q, the similarities of a batch as the teachers see them, (B, B)."""
        logits = torch.stack(
            [similarity * scale for similarity, scale in (net(batch) for net in self.setting.teachers)]
        )
        mean = logits.float().mean(0)
        return self.teaching.sharpness * (balanced(mean) if self.teaching.balance else mean)
