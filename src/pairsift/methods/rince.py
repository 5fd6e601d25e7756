"""RINCE: robust InfoNCE, on images and captions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from pairsift.errors import InputError
from pairsift.loss.infonce import but_diagonal
from pairsift.match.base import Matcher, scale_at
from pairsift.methods.plain import AllPairs, LossEpochs
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.steps import Step, Term, not_negatives

LARGEST = 80.0  # exponent that float32 still holds, with room for a sum over a batch


class RINCE(AllPairs):
    """The method RINCE: InfoNCE whose gradient is smaller where the positive is unlikely.

    q sets how much: near 0 it is InfoNCE, at 1 every positive pulls by its own similarity alone. The paper is about
    one modality; here both directions of the similarity are averaged. The temperature is fixed and never the matcher's
    own: the loss falls without limit as a temperature shrinks, so that a learned one would run away.

    lambda times the size of the batch decides where similarities drift that are all equal: below 1 they rise, above 1
    they fall, until all images are opposite to all captions, where nothing is learned. The published 0.01 suits about
    128 pairs.
    """

    name: ClassVar[str] = "rince"
    citation: ClassVar[str] = """
@inproceedings{chuang2022rince,
  author = {Chuang, Ching-Yao and Hjelm, R Devon and Wang, Xin and Vineet, Vibhav and Joshi, Neel and
    Torralba, Antonio and Jegelka, Stefanie and Song, Yale},
  title = {Robust Contrastive Learning against Noisy Views},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2022}
}
"""
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset({"networks": 1}, PAPER.train),
        "two_tower": TWO_TOWER.plus(epochs={"train": None}, density=0.0, q=0.03),
        "clip": CLIP.plus(epochs={"train": 5}, tau=0.01, density=0.0, networks=1),
    }

    epochs: LossEpochs = LossEpochs()
    q: float = Field(default=0.1, gt=0, le=1, description="How robust; InfoNCE near 0, symmetric at 1.")
    density: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Weight of the sum in the loss, lambda; 0 for one over the pairs of the batch, where "
        "similarities that are all equal neither rise nor fall together.",
    )
    tau: float = Field(default=0.07, gt=0, description="Temperature, which does not learn.")

    def check(self, matcher: type[Matcher], starts_trained: bool) -> None:
        """Refuse a temperature that makes the loss of equal vectors infinite.

        Raises:
            InputError: It is too small for q.
        """
        if self.q / self.tau > LARGEST:
            raise InputError(
                f"rince.tau is {self.tau:g}, too small for rince.q = {self.q:g}: exp(q / tau) overflows; "
                f"give at least {self.q / LARGEST:g}"
            )

    def step(self, step: Step) -> list[Term]:
        """Return the robust InfoNCE of the pairs as given; in the warm-up the ranking loss."""
        if step.phase.warm:
            return [self.setting.ranking_loss(step)]
        similarity, _ = step.network(step.batch)
        logits = similarity * scale_at(step.network.matcher, self.tau)
        values = rince(logits, not_negatives(step.batch), self.q, self.density or 1 / len(step.batch))
        return [Term("rince", values, reduction=self.setting.ranking.reduction)]


def rince(logits: Tensor, exclude: Tensor, q: float, density: float) -> Tensor:
    """Return the robust InfoNCE loss of every pair of a block, the mean of both directions (RINCE).

        -exp(q z_ii) / q  +  (lambda sum_j exp(z_ij))^q / q,        z = S / tau

    The sum runs over the captions that `exclude` leaves, with the pair's own. As q tends to 0 this tends to InfoNCE
    plus log lambda; at q = 1 it is symmetric, and a wrong positive pulls no harder than a right one. It is computed as
    a difference of expm1, so that nothing cancels where q is small.

    Args:
        logits: z, (B, B), images in rows; pairs on the diagonal. exp(q z) must be finite.
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always kept.
        q: In (0, 1].
        density: lambda, above 0.

    Returns:
        (B,), of either sign.
    """
    logits = logits.masked_fill(but_diagonal(exclude), -torch.inf)
    own = torch.expm1(q * logits.diagonal())
    totals = (torch.expm1(q * (math.log(density) + logits.logsumexp(dim))) for dim in (1, 0))
    captions, images = ((total - own) / q for total in totals)
    return (captions + images) / 2
