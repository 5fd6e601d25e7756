"""The learning rate over a run."""

from __future__ import annotations

import math

from pairsift.train.options import TrainOptions


def learning_rate(options: TrainOptions, epoch: int, part: float, epochs: int, warmup: int, steps: int = 1) -> float:
    """Return the learning rate of a step.

    Args:
        options: The run's training options.
        epoch: Epoch of the step, from 0.
        part: Share of the epoch that is done, [0, 1).
        epochs: Epochs of the whole run.
        warmup: Warm-up epochs of the method, which the decay epoch does not count.
        steps: Steps of an epoch on all training pairs, in which the warm-up steps are counted.

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
