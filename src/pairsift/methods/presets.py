"""Presets: the defaults that a method, the loop and the losses have in a paper, or on a matcher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Preset:
    """Defaults by the names of their options.

    Attributes:
        method: Options of the method; groups are mappings.
        train: Options of the loop.
        loss: Name of the ranking loss.
        losses: Options of the ranking losses, by their names; only the chosen loss reads its own.
    """

    method: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    loss: str = "infonce"
    losses: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def plus(self, train: Mapping[str, Any] | None = None, **method: Any) -> Preset:
        """Return the preset with more options of the method, and of the loop."""
        return Preset({**self.method, **method}, {**self.train, **(train or {})}, self.loss, self.losses)


# The schedule that NCR, PC2 and PCSR share: SGR with the hardest negative, on one GPU.
PAPER = Preset(
    train={
        "batch_size": 128,
        "lr": 2e-4,
        "weight_decay": 0.0,
        "schedule": "step",
        "decay_epoch": 30,
        "max_norm": 2.0,
    },
    loss="hinge",
    losses={"hinge": {"reduction": "sum"}},
)

# With batches of 512 and a one-cycle rate the hardest negatives collapse from the second epoch on; their mean does not.
TWO_TOWER = Preset(losses={"hinge": {"negatives": "mean", "reduction": "sum"}})

# The same where correspondences weigh pairs as they are.
TWO_TOWER_LINEAR = Preset(losses={**TWO_TOWER.losses, "infonce": {"base": 1.0}})

# Fine-tuning as the baseline of NPC (Zhang et al., AAAI 2024) does it: five epochs in all, with the optimizer of CLIP.
CLIP = Preset(
    train={
        "batch_size": 256,
        "lr": 5e-7,
        "weight_decay": 0.2,
        "warmup_steps": 500,
        "adam_beta2": 0.98,
        "adam_epsilon": 1e-6,
    }
)
CLIP_LINEAR = Preset(train=CLIP.train, losses={"infonce": {"base": 1.0}})
