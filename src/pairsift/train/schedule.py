"""The schedule of a run: epochs that compete for the checkpoint, epochs of the same networks, and the learning rate."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from pairsift.steps import Phase
from pairsift.train.options import TrainOptions

LEAST_GAIN = 0.005  # share of the rSum by which an epoch must beat the best before it to count as progress
PATIENCE = 60  # steps without progress after which a stage comes to its end
TAIL = 1.0  # length of the end as a share of the epochs before it
LARGEST_RSUM = 600.0
RISE = 0.1  # share of a one-cycle schedule in which the rate rises


def competing(phases: Sequence[Phase]) -> list[bool]:
    """Return whether the checkpoint of each epoch competes for the best. If no phase competes, the last one does.

    Args:
        phases: The phase of each epoch.
    """
    competes = [phase.competes for phase in phases]
    return competes if any(competes) else [phase == phases[-1] for phase in phases]


def network_epochs(phases: Sequence[Phase], epoch: int) -> tuple[int, int]:
    """Return the first epoch of the networks that train in an epoch, and the epoch after their last.

    Args:
        phases: The phase of each epoch.
        epoch: The epoch, from 0.
    """
    starts = [e for e, phase in enumerate(phases) if phase.restarts and (e == 0 or phases[e - 1] is not phase)]
    edges = sorted({0, *starts, len(phases)})
    place = bisect_right(edges, epoch)
    return edges[place - 1], edges[place]


@dataclass(frozen=True)
class Ending:
    """The end of a stage that made no more progress: the rest of its schedule in fewer epochs.

    Attributes:
        first: First epoch of the stage.
        begin: First epoch of the end.
        end: Epoch after the last.
        planned: Number of epochs of the stage as it was planned.
    """

    first: int
    begin: int
    end: int
    planned: int

    def done(self, epoch: float) -> float:
        """Return the share of the stage's schedule that is done in an epoch of its end, counted from the first."""
        before = (self.begin - self.first) / self.planned
        return before + (1 - before) * (epoch + self.first - self.begin) / (self.end - self.begin)


def ending(rsums: Sequence[float], first: int, planned: int, steps: int) -> Ending | None:
    """Return the end of a stage whose recall on dev makes no more progress; None where it goes on as planned.

    Progress is an rSum at least 0.5% above the best before it. A stage comes to its end after 60 steps without
    progress, not counting the first tenth of the plan, or when none is possible any more. The end takes as many epochs
    as the stage took so far, and not more than were planned.

    Args:
        rsums: rSum on dev after each epoch of the stage so far, in percent, [0, 600].
        first: First epoch of the stage.
        planned: Number of epochs of the stage as it was planned.
        steps: Number of steps in an epoch.
    """
    best, since = 0.0, 0
    for epoch, rsum in enumerate(rsums):
        progress = rsum >= best * (1 + LEAST_GAIN) and rsum > best
        waited = since + steps if epoch >= RISE * planned else 0
        best, since = (rsum, 0) if progress else (best, waited)
    if since < PATIENCE and best * (1 + LEAST_GAIN) <= LARGEST_RSUM:
        return None
    begin = first + len(rsums)
    end = begin + math.ceil(TAIL * len(rsums))
    return Ending(first, begin, end, planned) if end < first + planned else None


def learning_rate(
    options: TrainOptions,
    epoch: int,
    part: float,
    epochs: int,
    warmup: int,
    steps: int = 1,
    end: Ending | None = None,
) -> float:
    """Return the learning rate of a step.

    Args:
        options: The run's training options.
        epoch: Epoch of the step, from 0.
        part: Share of the epoch that is done, [0, 1).
        epochs: Epochs of the whole run as it was planned.
        warmup: Warm-up epochs of the method, which the decay epoch does not count.
        steps: Steps of an epoch on all training pairs, the unit of the warm-up steps.
        end: The end of the run that the epoch belongs to, if it does.

    Returns:
        The rate, above 0 and at most `options.lr`.
    """
    if options.schedule == "constant":
        return options.lr
    if options.schedule == "step":
        over = epoch - warmup - options.decay_epoch
        decays = 0 if over < 0 else 1 + (over // options.decay_every if options.decay_every else 0)
        return options.lr * options.decay_factor**decays
    done, rise = (epoch + part) / epochs if end is None else end.done(epoch + part), RISE
    if options.warmup_steps:
        rise = min(0.5, options.warmup_steps / (epochs * steps))
    if done < rise:
        return options.lr * max(0.04, done / rise)
    return options.lr * max(1e-3, 0.5 + 0.5 * math.cos(math.pi * (done - rise) / (1 - rise)))
