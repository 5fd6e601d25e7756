"""The ranking losses that every method can use."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor

from pairsift.loss.hinge import hinge, hinge_directions
from pairsift.loss.infonce import infonce, infonce_directions
from pairsift.loss.margin import strength
from pairsift.loss.pairwise import pairwise, pairwise_directions
from pairsift.options import Options

Reduction = Literal["mean", "sum"]


class RankingLoss(Protocol):
    """A loss that maps the similarities of a block and the correspondence of every pair to one value per pair."""

    @property
    def reduction(self) -> Reduction:
        """The way in which the training loop reduces the loss over the pairs."""
        ...

    def __call__(self, similarity: Tensor, scale: Tensor, y: Tensor, exclude: Tensor, warm: bool = False) -> Tensor:
        """Return the loss of every pair.

        Args:
            similarity: (B, B), images in rows, pairs on the diagonal.
            scale: The matcher's inverse temperature, scalar.
            y: Correspondence of every pair in [0, 1], (B,).
            exclude: True where row i and column j are not negatives of each other, (B, B).
            warm: Whether the method is in its warm-up. The hinge then takes the mean over all negatives, as in the
                papers.

        Returns:
            (B,), at least 0.
        """
        ...

    def observe(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> Tensor:
        """Return the loss that divides the pairs into clean and noisy, (B,)."""
        ...

    def directions(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two directions of the loss of `observe`: image to text and text to image, (B,) each."""
        ...


class Hinge(Options):
    """The triplet hinge with the margin margin * (base^y - 1) / (base - 1), y the correspondence (NCR, PC2, PCSR)."""

    name: ClassVar[str] = "hinge"
    margin: float = Field(default=0.2, ge=0, description="The margin at y = 1, in units of the similarity.")
    negatives: Annotated[int, Field(ge=1)] | Literal["mean", "hardest"] = Field(
        default="hardest", description="Which negatives count once the warm-up is over, or how many of the hardest."
    )
    base: float = Field(
        default=10.0, ge=1, description="Base m of the curve; with 1 the margin is proportional to the correspondence."
    )
    reduction: Reduction = Field(
        default="mean", description="How the loss is reduced over the batch; the papers' is sum."
    )

    def __call__(self, similarity: Tensor, scale: Tensor, y: Tensor, exclude: Tensor, warm: bool = False) -> Tensor:
        """Return the loss of every pair, as in `RankingLoss`; `scale` is not used."""
        return hinge(similarity, self.margin * strength(y, self.base), "mean" if warm else self.negatives, exclude)

    def observe(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> Tensor:
        """Return the hinge at the full margin, averaged over all negatives, (B,)."""
        captions, images = self.directions(similarity, scale, exclude)
        return captions + images

    def directions(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two directions of `observe`, (B,) each; `observe` is their sum."""
        return hinge_directions(similarity, torch.full_like(similarity.diagonal(), self.margin), "mean", exclude)


class InfoNCE(Options):
    """The symmetric InfoNCE at the matcher's temperature; each pair is weighted by `strength` of its correspondence."""

    name: ClassVar[str] = "infonce"
    base: float = Field(
        default=10.0, ge=1, description="Base m of the curve; with 1 the weight is the correspondence itself."
    )
    reduction: Reduction = Field(default="mean", description="How the loss is reduced over the batch.")

    def __call__(self, similarity: Tensor, scale: Tensor, y: Tensor, exclude: Tensor, warm: bool = False) -> Tensor:
        """Return the loss of every pair, as in `RankingLoss`; `warm` is not used."""
        return strength(y, self.base) * infonce(similarity * scale, exclude)

    def observe(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> Tensor:
        """Return the unweighted InfoNCE, (B,)."""
        return infonce(similarity * scale, exclude)

    def directions(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two directions of `observe`, (B,) each; `observe` is their mean."""
        return infonce_directions(similarity * scale, exclude)


class BCE(Options):
    """The binary cross-entropy of all images with all captions; the correspondence is the label of the pair (PCME++).

    The logit is the similarity less `threshold` at the matcher's temperature. Matchers whose similarity is a logit at
    their temperature, such as `pcmepp`, need no threshold.
    """

    name: ClassVar[str] = "bce"
    pseudo: float = Field(default=0.1, ge=0, description="Weight of the loss with pseudo-positives beside the loss.")
    smoothing: float = Field(default=1e-4, ge=0, lt=0.5, description="How far labels are moved from 0 and 1.")
    threshold: float = Field(default=0.0, description="Similarity at which a match is as likely as not.")
    reduction: Reduction = Field(default="mean", description="How the loss is reduced over the batch.")

    def __call__(self, similarity: Tensor, scale: Tensor, y: Tensor, exclude: Tensor, warm: bool = False) -> Tensor:
        """Return the loss of every pair, as in `RankingLoss`; `warm` is not used."""
        return pairwise((similarity - self.threshold) * scale, y, exclude, self.pseudo, self.smoothing)

    def observe(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> Tensor:
        """Return the mean of `directions`, (B,)."""
        captions, images = self.directions(similarity, scale, exclude)
        return (captions + images) / 2

    def directions(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
        """Return each pair's cross-entropy plus the mean of its negatives', by direction, (B,) each."""
        return pairwise_directions((similarity - self.threshold) * scale, exclude)


AnyRankingLoss = InfoNCE | Hinge | BCE
