"""Losses as pure functions. Each returns one value per pair and reduces nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pairsift.registry import Entry, Registry

if TYPE_CHECKING:
    from pairsift.loss.ranking import AnyRankingLoss

RANKING_LOSSES: Registry[type[AnyRankingLoss]] = Registry(
    "loss",
    {
        "infonce": Entry(
            "pairsift.loss.ranking:InfoNCE", "symmetric InfoNCE, each pair weighed by its correspondence; the default"
        ),
        "hinge": Entry(
            "pairsift.loss.ranking:Hinge", "triplet hinge whose margin is set by the correspondence (NCR, PC2, PCSR)"
        ),
        "bce": Entry(
            "pairsift.loss.ranking:BCE",
            "binary cross-entropy of all images with all captions, the correspondence as label; of PCME++ and PCME",
        ),
        "sigmoid": Entry(
            "pairsift.loss.ranking:Sigmoid", "the same as SigLIP sums it, without smooth labels; of SigLIP"
        ),
    },
)
