"""The schedule of a run: epochs that compete for the checkpoint, epochs of the same networks, and the learning rate."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from pairsift.steps import Phase
from pairsift.train.options import TrainOptions


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


def learning_rate(options: TrainOptions, epoch: int, part: float, epochs: int, warmup: int, steps: int = 1) -> float:
    """Return the learning rate of a step.

    Args:
        options: The run's training options.
        epoch: Epoch of the step, from 0.
        part: Share of the epoch that is done, [0, 1).
        epochs: Epochs of the whole run.
        warmup: Warm-up epochs of the method, which the decay epoch does not count.
        steps: Steps of an epoch on all training pairs, the unit of the warm-up steps.

    Returns:
        The rate, above 0 and at most `options.lr`.
    """
    if options.schedule == "constant":
        return options.lr
    if options.schedule == "step":
        over = epoch - warmup - options.decay_epoch
        decays = 0 if over < 0 else 1 + (over // options.decay_every if options.decay_every else 0)
        return options.lr * options.decay_factor**decays
    done, rise = (epoch + part) / epochs, 0.1
    if options.warmup_steps:
        rise = min(0.5, options.warmup_steps / (epochs * steps))
    if done < rise:
        return options.lr * max(0.04, done / rise)
    return options.lr * max(1e-3, 0.5 + 0.5 * math.cos(math.pi * (done - rise) / (1 - rise)))
