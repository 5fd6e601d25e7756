"""The options of the training loop."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pairsift.options import Options

BATCHES = ((5000, 512), (2000, 256), (800, 128), (200, 64))  # smallest number of training pairs, and batch size


class TrainOptions(Options):
    """The options of the training loop."""

    batch_size: int | None = Field(
        default=None,
        ge=2,
        description="Number of pairs in a step; by default 512, or fewer below 5,000 training pairs.",
    )
    batch_limit: int = Field(default=512, ge=2, description="Largest default of batch_size.")
    lr: float = Field(default=1e-3, gt=0, description="Peak learning rate.")
    weight_decay: float = Field(default=0.05, ge=0, description="Decoupled weight decay of AdamW (0: Adam).")
    schedule: Literal["one_cycle", "step", "constant"] = Field(
        default="one_cycle",
        description="How the learning rate changes; one_cycle: a linear rise and a cosine fall, by steps.",
    )
    warmup_steps: int = Field(
        default=0,
        ge=0,
        description="With one_cycle: number of steps of the rise, at most half of the run; 0 for a tenth of the run.",
    )
    decay_epoch: int = Field(
        default=30,
        ge=0,
        description="With step: the first epoch of the decayed rate, not counting warm-up epochs.",
    )
    decay_factor: float = Field(default=0.1, gt=0, le=1, description="With step: factor of the rate in a decay.")
    decay_every: int = Field(
        default=0, ge=0, description="With step: number of epochs from one decay to the next; 0 for a single decay."
    )
    max_norm: float = Field(default=2.0, ge=0, description="Largest gradient norm of a network; 0 for none.")
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="Seed of weights, order and dropout.")
    device: str = Field(default="auto", description="auto, cpu, cuda or cuda:N.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto",
        description="bf16: mixed precision, for recall too; auto: in training alone, mixed precision for clip and vsrn "
        "on GPUs, where they gain by it, and for two_tower products with factors in bf16 on CPUs that are much faster "
        "with them (measured when training begins); fp32 otherwise.",
    )
    checkpoint_minutes: float = Field(
        default=10.0,
        ge=0,
        description="Longest time between two checkpoints, in minutes; there is always one after every epoch.",
    )
    threads: int = Field(
        default=0,
        ge=0,
        description="CPU threads of torch and threads that decode images; 0 for as many as the cores that the process "
        "may use, at most torch's own choice.",
    )
    tensorboard: bool = Field(
        default=False, description="Also write the log for TensorBoard, into the run's folder (needs pairsift[log])."
    )

    def with_batch_size(self, pairs: int) -> TrainOptions:
        """Return these options with a batch size: by default, the one for this number of training pairs."""
        if self.batch_size is not None:
            return self
        size = next((size for least, size in BATCHES if pairs >= least), max(2, pairs // 4))
        return self.replaced(batch_size=min(size, self.batch_limit))
