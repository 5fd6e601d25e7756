"""Which epochs compete for the checkpoint, by which pairs it is chosen, and which epochs have the same networks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pairsift.pairs.pairs import UNUSED, Pairs
from pairsift.steps import Phase, Prior

LEAST_BELIEF = 0.5  # smallest match probability of a dev pair that counts in the choice of the networks
MIN_DECIDING = 10  # smallest number of images of such dev pairs; where there are fewer, all dev pairs count


def competing(phases: Sequence[Phase]) -> list[bool]:
    """Return whether the checkpoint of each epoch competes for the best; where no phase says so, the last phase's do.

    Args:
        phases: The phase of each epoch.
    """
    competes = [phase.competes for phase in phases]
    return competes if any(competes) else [phase == phases[-1] for phase in phases]


def stretch(phases: Sequence[Phase], epoch: int) -> tuple[int, int]:
    """Return the first epoch of the networks that train in an epoch, and the one before which the next ones restart.

    Args:
        phases: The phase of each epoch.
        epoch: The epoch, from 0.
    """
    starts = [e for e, phase in enumerate(phases) if phase.restarts and (e == 0 or phases[e - 1] is not phase)]
    edges = sorted({0, *starts, len(phases)})
    place = bisect_right(edges, epoch)
    return edges[place - 1], edges[place]


def deciding_pairs(pairs: Pairs, prior: Prior | None) -> Pairs:
    """Return the pairs by whose recall on dev the checkpoint is chosen: without the dev pairs that are not believed.

    Where believed pairs of less than ten images are left in dev, or no mismatches are known, all count.

    Args:
        pairs: The pairs.
        prior: What held-out evidence says of them.
    """
    if prior is None or not prior.finds_mismatches:
        return pairs
    dev = pairs.split == "dev"
    doubted = dev & (prior.probability < LEAST_BELIEF)
    if not doubted.any() or len(np.unique(pairs.image_of[dev & ~doubted])) < MIN_DECIDING:
        return pairs
    split = pairs.split.astype("<U7")
    split[doubted] = UNUSED
    return replace(pairs, split=split)
