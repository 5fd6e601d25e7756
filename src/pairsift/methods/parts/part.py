"""What a part of a method is: options, per-pair state, and what an epoch's pass notes for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from pydantic import PrivateAttr
from torch import Tensor

from pairsift.arrays import Array
from pairsift.options import Options
from pairsift.steps import Observation, Setting


class Part(Options):
    """A component of methods that estimates how well pairs match. Its fields are its options.

    Its state is named arrays of shape (networks, n_pairs, ...) or (networks, n_images, ...). They lie in the method's
    `state` beside those of the method's other parts, so that the loop saves them with every checkpoint.

    Attributes:
        per_image: Names of its arrays that have a row per image.
    """

    per_image: ClassVar[tuple[str, ...]] = ()

    _state: dict[str, Array] = PrivateAttr(default_factory=dict)
    _setting: Setting = PrivateAttr()

    @property
    def state(self) -> dict[str, Array]:
        """The named arrays of the method and of all its parts."""
        return self._state

    @property
    def setting(self) -> Setting:
        """The setting of the run."""
        return self._setting

    def begin(self, setting: Setting, state: dict[str, Array]) -> None:
        """Take the setting, and put the arrays that training starts from into the state."""
        self._setting, self._state = setting, state

    def observe(self, observation: Observation) -> dict[str, Tensor]:
        """Return named values of each pair of a batch, (B, ...), from the pass before an epoch.

        `update` gets them for all training pairs. Where two parts of a method use one name, the later part's count.
        """
        return {}

    def update(self, notes: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """Turn notes into state.

        Args:
            notes: For each network what its pass noted of the training pairs, (n, ...) in the order of `setting.ids`.
            epoch: Number of the epoch that begins, from 0.
        """
        return None

    def facts(self) -> dict[str, float]:
        """Return numbers about the present state, for the log."""
        return {}

    def of_peer(self, name: str, network: int) -> Array:
        """Return an array of the state as this network trains by it: its peer's, (n_pairs, ...) or (n_images, ...)."""
        array: Array = self.state[name][peer(network, self.setting.networks)]
        return array

    def array_of_pairs(self, fill: float, dtype: type = np.float32) -> Array:
        """Return a new array of one value per network and pair, (networks, n_pairs)."""
        return np.full((self.setting.networks, len(self.setting.image_of)), fill, dtype)


def peer(network: int, networks: int) -> int:
    """Return the network whose trust this one trains by: the other of two (co-teaching), itself where it is alone."""
    return (network + 1) % networks
