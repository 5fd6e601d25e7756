"""The base of all methods: phases, subsets, the loss of a step, and the parts that a method is composed of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from pydantic import Field, PrivateAttr
from torch import Tensor, nn

from pairsift.arrays import Array, Ints
from pairsift.errors import InputError
from pairsift.match.base import Matcher
from pairsift.methods.parts.part import Part
from pairsift.methods.presets import Preset
from pairsift.options import Options
from pairsift.steps import Batch, Network, Observation, Phase, Request, Setting, Term


class Epochs(Options):
    """The lengths of a method's phases: each field that `lengths` names is a number of epochs.

    `--epochs` scales them. A method has them in its field `epochs`.
    """

    def lengths(self) -> dict[str, int | None]:
        """Return the length of each phase by the name of its field; None where it is left open."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def scaled(self, total: int) -> Self:
        """Scale the phases in proportion to a total number of epochs; a phase of at least one epoch keeps one.

        Raises:
            InputError: There are fewer epochs than phases, or no phase has any.
        """
        lengths = {name: int(length or 0) for name, length in self.lengths().items()}
        phases = {name: length for name, length in lengths.items() if length > 0}
        if not phases:
            raise InputError("has no phase to scale: give its phases epochs instead")
        if total < len(phases):
            raise InputError(f"needs at least {len(phases)}, one for each of {', '.join(phases)}")
        shares = {name: total * length / sum(phases.values()) for name, length in phases.items()}
        scaled = dict.fromkeys(phases, 1)
        for _ in range(total - len(phases)):
            scaled[max(phases, key=lambda name: shares[name] - scaled[name])] += 1
        return type(self)(**{**lengths, **scaled})


class DividedEpochs(Epochs):
    """The phases of methods that divide pairs: a warm-up on all pairs, clean pairs alone, clean and noisy pairs."""

    warmup: int = Field(default=5, ge=0, description="Epochs on all pairs, as given.")
    clean: int = Field(default=20, ge=0, description="Epochs on clean pairs only.")
    all: int = Field(default=20, ge=0, description="Epochs on clean and noisy pairs.")

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, clean pairs, all pairs."""
        return (
            Phase("warm-up", self.warmup, warm=True, competes=False),
            Phase("clean", self.clean, ("clean",), observe=True, competes=False),
            Phase("all", self.all, ("clean", "noisy"), observe=True),
        )


class Method(Options, ABC):
    """A method of training on pairs of which some are mismatched. A subclass can be read beside its paper.

    Its fields are its options: parts, groups of options, and single ones. Its state is named arrays of shape
    (networks, n_pairs, ...), one row per pair (or per image where a part says so), which belong to its parts and which
    the loop saves with every checkpoint.

    Attributes:
        name: What the command line calls it.
        citation: The BibTeX entry of the paper; empty where there is none.
        needs_truth: Whether it can only run where the true correspondences are known.
        competes_with_linear: Whether a linear model, fitted to the training pairs as far as they are believed, competes
            with the networks on dev, where there are few pairs (`pairsift.runs.job`).
        presets: Defaults by the name of a preset, for the method, the loop and the losses.
    """

    name: ClassVar[str]
    citation: ClassVar[str] = ""
    needs_truth: ClassVar[bool] = False
    competes_with_linear: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, Preset]] = {}

    networks: int = Field(default=2, ge=1, le=2, description="2, or 1 for a network that believes itself.")

    _state: dict[str, Array] = PrivateAttr(default_factory=dict)
    _setting: Setting = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Take copies of the parts, which keep state: no other method shares them."""
        for name, part in self._parts().items():
            self.__dict__[name] = part.model_copy()

    def _parts(self) -> dict[str, Part]:
        parts = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: part for name, part in parts.items() if isinstance(part, Part)}

    @property
    def needs_verified(self) -> bool:
        """Whether the method can only run where some training pairs are verified."""
        return False

    @property
    def setting(self) -> Setting:
        """The setting of the run."""
        return self._setting

    @property
    def setting_if_any(self) -> Setting | None:
        """The setting of the run, or None before the method began."""
        return getattr(self, "_setting", None)

    @property
    def state(self) -> dict[str, Array]:
        """The named arrays."""
        return self._state

    @abstractmethod
    def phases(self) -> tuple[Phase, ...]:
        """Return the phases, in order. Once the method has begun they may depend on the setting."""

    def check(self, matcher: type[Matcher], starts_trained: bool) -> None:
        """Refuse a matcher that the method cannot run on.

        Args:
            matcher: The class of the matcher.
            starts_trained: Whether its similarities are useful before any training: by its class, or because it starts
                from vectors that share a space.

        Raises:
            InputError: It lacks something that the method needs.
        """
        return None

    def head(self, dim: int) -> nn.Module | None:
        """Return the method's own trainable part, such as one from codes of length `dim` to class logits."""
        return None

    def begin(self, setting: Setting) -> None:
        """Take the setting and make the state that training starts from."""
        self._setting = setting
        self._state = {}
        for part in self._parts().values():
            part.begin(setting, self._state)

    def resume(self, state: Mapping[str, Array]) -> None:
        """Put saved arrays into the state."""
        self._state.update(state)

    def observe(self, network: Network, k: int, batch: Batch) -> dict[str, Tensor]:
        """Return what the parts note of each pair of a batch, each (B, ...), in evaluation mode without gradient.

        Args:
            network: The network that encodes the batch.
            k: Its number.
            batch: The pairs.
        """
        observation = Observation.make(network, k, batch)
        notes: dict[str, Tensor] = {}
        for part in self._parts().values():
            notes |= part.observe(observation)
        return notes

    def update(self, notes: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """Turn what the pass of each network noted, (n, ...) in the order of `setting.ids`, into state.

        Args:
            notes: By network.
            epoch: Number of the epoch that begins, from 0.
        """
        for part in self._parts().values():
            part.update(notes, epoch)

    def values_of_pairs(self) -> dict[str, Array]:
        """Return the arrays of the state that hold one number for every training pair or its image, (networks, n)."""
        setting = self.setting
        per_image = {name for part in self._parts().values() for name in part.per_image}
        values = {}
        for name, array in self.state.items():
            if name in per_image and array.shape[1:] == (setting.n_images,):
                values[name] = array[:, setting.image_of[setting.ids]]
            elif name not in per_image and array.shape[1:] == (len(setting.image_of),):
                values[name] = array[:, setting.ids]
        return values

    def facts(self) -> dict[str, float]:
        """Return numbers that describe the present state, for the log."""
        return {name: value for part in self._parts().values() for name, value in part.facts().items()}

    def subset(self, name: str, network: int) -> Ints:
        """Return ids of the pairs in this network's subset of this name, (n,).

        The first subset of a phase must not be empty. Another one that is empty is left out of the steps.
        """
        if name != "all":
            raise KeyError(f"{self.name} has no subset {name!r}")
        return self.setting.ids

    def requests(self, ids: Mapping[str, Ints], network: int) -> dict[str, Request]:
        """Return what a step of this network reads: by default the pairs of its subsets, each with its own caption.

        Args:
            ids: Ids of the step's pairs by subset.
            network: The network that steps.
        """
        return {name: Request(rows) for name, rows in ids.items()}

    @abstractmethod
    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Return the loss of one step of network k on the batches that were requested, as terms."""


@runtime_checkable
class Sorting(Protocol):
    """A method that sorts training pairs into kinds of its own."""

    def verdicts(self) -> list[str] | None:
        """Return the kind of each training pair, in the order of `setting.ids`; None where there are no kinds yet.

        `clean` is the word for pairs that the method believes; any other names a kind of mismatch.
        """
        ...
