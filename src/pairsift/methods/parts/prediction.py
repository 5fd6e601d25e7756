"""The prediction of NCR: how far each pair stands clear of the negatives of its batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pairsift.loss.ranking import hinge
from pairsift.steps import Batch, Network, not_negatives

MARGIN = 0.2  # of the papers, inside the prediction


def predict(networks: Sequence[Network], batch: Batch, margin: float = MARGIN) -> Tensor:
    """Return P(I, T), how far each pair is from the batch's negatives as a probability, (B,), in [0, 1].

    P = clip(a - (mean hinge over captions + mean hinge over images) / 2, 0, a), divided by the mean of the batch's
    highest tenth and clipped to 1, in evaluation mode and without gradient.

    Args:
        networks: The networks; of several, the mean of their predictions is returned.
        batch: The pairs.
        margin: a, in units of the similarity.
    """
    return torch.stack([_prediction(network, batch, margin) for network in networks]).mean(0)


@torch.no_grad()
def _prediction(network: Network, batch: Batch, margin: float) -> Tensor:
    """Return the prediction of one network, (B,)."""
    similarity, _ = network.judge(batch)
    margins = torch.full_like(similarity.diagonal(), margin)
    p = (margin - hinge(similarity, margins, "mean", not_negatives(batch)) / 2).clamp(0, margin)
    top = p.topk(len(p) // 10 + 1).values.mean()
    return (p / top.clamp(min=1e-6)).clamp(max=1)
