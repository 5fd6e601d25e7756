"""Which epochs compete for the checkpoint, and which epochs have the same networks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from pairsift.steps import Phase


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
