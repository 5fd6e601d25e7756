"""The two ranking losses that every method can run with."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from pairsift.errors import InputError
from pairsift.loss.hinge import Negatives, hinge, hinge_directions
from pairsift.loss.infonce import infonce, infonce_directions
from pairsift.loss.margin import strength

Reduction = Literal["mean", "sum"]


class RankingLoss(Protocol):
    """A block's similarities and every pair's correspondence in, one loss per pair out."""

    @property
    def reduction(self) -> Reduction:
        """How the loop reduces the loss over the pairs."""
        ...

    def __call__(self, similarity: Tensor, scale: Tensor, y: Tensor, exclude: Tensor, warm: bool = False) -> Tensor:
        """Loss of every pair.

        Args:
            similarity: (B, B), images in rows, pairs on the diagonal.
            scale: The matcher's inverse temperature, scalar.
            y: Correspondence of every pair in [0, 1], (B,).
            exclude: True where a row and a column are not each other's negatives, (B, B).
            warm: Whether the method is warming up (the papers' hinge then takes the mean of all negatives).

        Returns:
            (B,), at least 0.
        """
        ...

    def observe(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> Tensor:
        """The loss by which pairs are divided into clean and noisy, (B,)."""
        ...

    def directions(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
        """That loss before its directions meet: image to text, and text to image, (B,) each."""
        ...


@dataclass(frozen=True)
class Hinge:
    """Triplet hinge whose margin is set by the correspondence: margin * (base^y - 1) / (base - 1) (NCR, PC2, PCSR).

    Args:
        margin: The margin at y = 1, in units of the similarity.
        negatives: `hardest`, `mean`, or how many of the hardest count, once the warm-up is over.
        base: Base m of the curve, at least 1; with 1 the margin is proportional to y.
        reduction: `mean` over the batch, or the papers' `sum`.
    """

    name: ClassVar[str] = "hinge"
    margin: float = 0.2
    negatives: Negatives = "hardest"
    base: float = 10.0
    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        if isinstance(self.negatives, str) and self.negatives not in ("mean", "hardest"):
            raise InputError(f"hinge.negatives is {self.negatives!r}; it must be mean, hardest or a number from 1")
        if not isinstance(self.negatives, str) and self.negatives < 1:
            raise InputError(f"hinge.negatives is {self.negatives}; it must be mean, hardest or a number from 1")
        if not 0 <= self.margin < inf:
            raise InputError(f"hinge.margin is {self.margin}; it must be at least 0, and finite")
        _check(self)

    def __call__(self, similarity: Tensor, scale: Tensor, y: Tensor, exclude: Tensor, warm: bool = False) -> Tensor:
        """See `RankingLoss`; the temperature is not used."""
        return hinge(similarity, self.margin * strength(y, self.base), "mean" if warm else self.negatives, exclude)

    def observe(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> Tensor:
        """Mean hinge over all negatives at the full margin."""
        captions, images = self.directions(similarity, scale, exclude)
        return captions + images

    def directions(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
        """`observe` is their sum."""
        return hinge_directions(similarity, torch.full_like(similarity.diagonal(), self.margin), "mean", exclude)


@dataclass(frozen=True)
class InfoNCE:
    """Symmetric InfoNCE at the matcher's temperature; the correspondence weights the pair by the same curve.

    Args:
        base: Base m of the curve (base^y - 1) / (base - 1); with 1 the weight is y itself.
        reduction: `mean` over the batch, or `sum`.
    """

    name: ClassVar[str] = "infonce"
    base: float = 10.0
    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        _check(self)

    def __call__(self, similarity: Tensor, scale: Tensor, y: Tensor, exclude: Tensor, warm: bool = False) -> Tensor:
        """See `RankingLoss`."""
        return strength(y, self.base) * infonce(similarity * scale, exclude)

    def observe(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> Tensor:
        """Unweighted InfoNCE."""
        return infonce(similarity * scale, exclude)

    def directions(self, similarity: Tensor, scale: Tensor, exclude: Tensor) -> tuple[Tensor, Tensor]:
        """`observe` is their mean."""
        return infonce_directions(similarity * scale, exclude)


def _check(loss: Hinge | InfoNCE) -> None:
    """Refuse what no ranking loss can run with."""
    if not 1 <= loss.base < inf:
        raise InputError(f"{loss.name}.base is {loss.base}; it must be at least 1, and finite")
    if loss.reduction not in ("mean", "sum"):
        raise InputError(f"{loss.name}.reduction is {loss.reduction!r}; it must be mean or sum")


RANKING_LOSSES: dict[str, type[Hinge] | type[InfoNCE]] = {"infonce": InfoNCE, "hinge": Hinge}
