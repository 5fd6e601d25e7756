"""How long, how fast and on what to train."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pairsift.errors import InputError

BATCHES = ((5000, 512), (2000, 256), (800, 128), (200, 64))  # from so many training pairs on, batches of so many


@dataclass(frozen=True)
class TrainOptions:
    """The loop's settings.

    Args:
        batch_size: Pairs of the driving subset in a step, at least 2; 0 for 512, or fewer where there are fewer than
            5,000 training pairs.
        lr: Peak learning rate.
        weight_decay: Decoupled weight decay of AdamW (0: Adam).
        schedule: `one_cycle` (linear rise, cosine fall, by steps), `step` or `constant`.
        warmup_steps: With `one_cycle`: steps of the rise, at most half of the run; 0 for a tenth of the run.
        decay_epoch: With `step`: the epoch from which the rate is decayed, not counting warm-up epochs.
        decay_factor: With `step`: what a decay multiplies the rate by, above 0 and at most 1.
        decay_every: With `step`: epochs from one decay to the next; 0 for a single decay.
        max_norm: Largest gradient norm of a network; 0 for none.
        seed: Seed of weights, order and dropout, 0 to 2**32 - 1.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        precision: `fp32`; `bf16`, mixed precision (faster on a CPU that knows it, for token-level matchers
            several times), for recall too; or `auto`: training in mixed precision on GPUs, fp32 otherwise.
        checkpoint_minutes: Longest time between two checkpoints; there is one after every epoch in any case.
        threads: CPU threads of torch and threads that decode images; 0 for as many as the cores that the process may
            use, at most torch's own choice.
        tensorboard: Also write the log for TensorBoard, into the run's folder (needs `pairsift[log]`).
    """

    batch_size: int = 0
    lr: float = 1e-3
    weight_decay: float = 0.05
    schedule: Literal["one_cycle", "step", "constant"] = "one_cycle"
    warmup_steps: int = 0
    decay_epoch: int = 30
    decay_factor: float = 0.1
    decay_every: int = 0
    max_norm: float = 2.0
    seed: int = 0
    device: str = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    checkpoint_minutes: float = 10.0
    threads: int = 0
    tensorboard: bool = False

    def settled(self, pairs: int) -> TrainOptions:
        """Return these options with a batch size for this number of training pairs, where it is left open."""
        if self.batch_size:
            return self
        size = next((size for least, size in BATCHES if pairs >= least), max(2, pairs // 4))
        return replace(self, batch_size=size)

    def __post_init__(self) -> None:
        if self.batch_size < 2 and self.batch_size:
            raise InputError(f"batch_size is {self.batch_size}; a ranking loss needs at least 2 pairs in a batch")
        if not self.lr > 0:
            raise InputError(f"lr is {self.lr}; it must be above 0")
        if not 0 <= self.seed < 2**32:  # what every library's generator takes
            raise InputError(f"seed is {self.seed}; it must lie in 0 to {2**32 - 1}")
        if not 0 < self.decay_factor <= 1:
            raise InputError(f"decay_factor is {self.decay_factor}; it must be above 0 and at most 1")
        counts = "checkpoint_minutes", "threads", "decay_epoch", "decay_every", "warmup_steps"
        for name in ("weight_decay", "max_norm", *counts):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is {getattr(self, name)}; it must not be negative")
