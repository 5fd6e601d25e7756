"""The base of methods and of the parts that they are made of: options, and in a run a setting and state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from pydantic import Field, PrivateAttr
from torch import Tensor, nn

from pairsift.arrays import Array, Bools, Ints
from pairsift.errors import InputError
from pairsift.match.base import Matcher
from pairsift.methods.presets import Preset
from pairsift.options import Options
from pairsift.steps import Batch, Observation, Phase, Request, Setting, Step, Term, gather_rows

T = TypeVar("T")
Notes = Sequence[Mapping[str, Array]]  # by network, named values of all training pairs, (n, ...); empty without a pass


class Component(Options):
    """A method or a part of one: options, which never change, and in a run also a setting and state.

    `begin` returns a copy that has the latter two and leaves the options as they are. So an object of options can be
    given to several runs, compared and hashed.

    The state is named arrays of shape (networks, n_pairs, ...), or (networks, n_images, ...) where `per_image` says so.
    The loop saves them with every checkpoint.

    Attributes:
        per_image: Names of its arrays that have a row per image.
    """

    per_image: ClassVar[tuple[str, ...]] = ()

    _setting: Setting | None = PrivateAttr(default=None)
    _state: dict[str, Array] = PrivateAttr(default_factory=dict)

    def initial_state(self, setting: Setting) -> dict[str, Array]:
        """Return the named arrays of the initial state."""
        return {}

    def begin(self, setting: Setting) -> Self:
        """Return a copy with these options, the setting of a run and the initial state."""
        begun = self.model_copy()
        begun._setting, begun._state = setting, self.initial_state(setting)
        return begun

    @property
    def setting(self) -> Setting:
        """The setting of the run."""
        assert self._setting is not None, "options have no setting: begin them first"
        return self._setting

    @property
    def setting_if_any(self) -> Setting | None:
        """The setting of the run; None before it begins."""
        return self._setting

    @property
    def state(self) -> dict[str, Array]:
        """The named arrays, by name; empty before the run begins."""
        return self._state

    def of_peer(self, name: str, network: int) -> Array:
        """Return the peer's array of the state, which this network trains by, (n_pairs, ...) or (n_images, ...)."""
        array: Array = self.state[name][peer(network, self.setting.networks)]
        return array

    def of_batch(self, name: str, network: int, batch: Batch) -> Tensor:
        """Return the peer's values for a batch's pairs, which this network trains by, (B, ...), on the device."""
        return gather_rows(self.of_peer(name, network), batch.ids, batch.image_rows)

    def facts(self) -> dict[str, float]:
        """Return numbers that describe the present state, for the log."""
        return {}

    def values_of_pairs(self) -> dict[str, Array]:
        """Return the arrays that hold one number for every training pair or for its image, (networks, n)."""
        setting, values = self.setting, {}
        for name, array in self.state.items():
            if name in self.per_image and array.shape[1:] == (setting.n_images,):
                values[name] = array[:, setting.image_of[setting.ids]]
            elif name not in self.per_image and array.shape[1:] == (len(setting.image_of),):
                values[name] = array[:, setting.ids]
        return values


class Part(Component):
    """A component of methods that estimates how well pairs match. Its fields are its options.

    It knows no other part. The method passes to it what it needs.
    """

    def observe(self, seen: Observation) -> dict[str, Tensor]:
        """Return named values of each pair of a batch, (B, ...), from the pass before an epoch.

        `update` gets them, under these names, for all training pairs.
        """
        return {}

    def update(self, notes: Notes) -> None:
        """Turn notes into state.

        Args:
            notes: By network, what the part noted of the training pairs, (n, ...) in the order of `setting.ids`.
        """
        return None


class Epochs(Options):
    """The lengths of a method's phases: each field that `lengths` names is a number of epochs.

    `--epochs` scales them. A method has them in its field `epochs`.

    Attributes:
        spare: Names of the phases that are left out, the first one first, where `--epochs` is fewer than the phases.
    """

    spare: ClassVar[tuple[str, ...]] = ()

    def lengths(self) -> dict[str, int | None]:
        """Return the length of each phase by the name of its field; None where it is left open."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def scaled(self, total: int) -> Self:
        """Scale the phases in proportion to a total number of epochs; a phase of at least one epoch keeps one.

        Where there are fewer epochs than phases, phases that the method can do without are left out.

        Raises:
            InputError: There are fewer epochs than phases that the method needs, or no phase has any.
        """
        lengths = {name: int(length or 0) for name, length in self.lengths().items()}
        phases = {name: length for name, length in lengths.items() if length > 0}
        if not phases:
            raise InputError("has no phase to scale: give its phases epochs instead")
        needed = [name for name in phases if name not in self.spare] or [*phases]
        if total < len(needed):
            raise InputError(f"needs at least {len(needed)}, one for each of {', '.join(needed)}")
        for name in self.spare:
            if total < len(phases) and name in phases:
                lengths[name] = 0
                del phases[name]
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
            Phase("clean", self.clean, ("clean",), observe=True),
            Phase("all", self.all, ("clean", "noisy"), observe=True),
        )


class Method(Component, ABC):
    """A method of training on pairs where some are mismatched. A subclass can be read beside its paper.

    Its fields are its options: parts, groups of options, and single ones. The loop trains with what `begin` returns.
    State and notes of a part belong to that part alone, so that the order of the fields does not matter.

    Attributes:
        name: The method's name on the command line.
        citation: The BibTeX entry of the paper; empty where there is none.
        needs_truth: Whether it can only run where the true correspondences are known.
        needs_verified: Whether it can only run where some training pairs are verified.
        competes_with_linear: Whether a linear model, fitted to the training pairs as far as they are believed, competes
            with the networks on dev, where there are few pairs (`pairsift.runs.job`).
        starts_linear: Whether its networks start as that linear model, with any number of pairs.
        presets: Defaults by the name of a preset, for the method, the loop and the losses.
    """

    name: ClassVar[str]
    citation: ClassVar[str] = ""
    needs_truth: ClassVar[bool] = False
    needs_verified: ClassVar[bool] = False
    competes_with_linear: ClassVar[bool] = False
    starts_linear: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, Preset]] = {}

    networks: int = Field(default=2, ge=1, le=2, description="2, or 1 for a network that believes itself.")
    evidence: bool = Field(
        default=False,
        description="Whether the held-out evidence of pairsift acts inside the method, which no paper has: it bounds "
        "how many pairs count as noisy, and near-duplicate images and equal captions are no negatives of each other.",
    )

    def model_post_init(self, context: Any, /) -> None:
        """Refuse parts of a run in progress.

        Raises:
            InputError: A part has begun.
        """
        if any(part.setting_if_any is not None for part in self.parts.values()):
            raise InputError(f"{self.name}: a part that has begun is no option: give the options that it began with")

    @property
    def parts(self) -> dict[str, Part]:
        """The parts by the names of their fields."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: field for name, field in fields.items() if isinstance(field, Part)}

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

    def begin(self, setting: Setting) -> Self:
        """Return a copy whose parts have begun too.

        Raises:
            InputError: Two arrays of its parts or of its own have one name.
        """
        begun = super().begin(setting)
        vars(begun).update({name: part.begin(setting) for name, part in self.parts.items()})
        self._merged("arrays", [part.state for part in begun.parts.values()], begun.state)
        return begun

    def arrays(self) -> dict[str, Array]:
        """Return the whole state: the method's arrays by name, and a part's as `field.name`."""
        parts = {f"{field}.{name}": a for field, part in self.parts.items() for name, a in part.state.items()}
        return {**self.state, **parts}

    def resume(self, arrays: Mapping[str, Array]) -> None:
        """Put saved arrays into the state, named as `arrays` names them."""
        parts = self.parts
        for name, array in arrays.items():
            field, _, own = name.rpartition(".")
            (parts[field].state if field else self.state)[own] = array

    def observe(self, seen: Observation) -> dict[str, Tensor]:
        """Return the notes of the parts on each pair of a batch, each (B, ...), as `field.name`."""
        return {f"{field}.{name}": v for field, part in self.parts.items() for name, v in part.observe(seen).items()}

    def update(self, notes: Notes, epoch: int) -> None:
        """Turn notes into state. Every part gets its own notes.

        Args:
            notes: By network, what `observe` returned of all training pairs, (n, ...) in the order of `setting.ids`.
            epoch: Number of the epoch that begins, from 0.
        """
        for field, part in self.parts.items():
            part.update([_with_prefix(noted, f"{field}.") for noted in notes])

    def values_of_pairs(self) -> dict[str, Array]:
        """Return the arrays of the method and its parts that hold one number for every training pair, (networks, n)."""
        parts = [part.values_of_pairs() for part in self.parts.values()]
        return self._merged("arrays", parts, super().values_of_pairs())

    def facts(self) -> dict[str, float]:
        """Return numbers that describe the present state, for the log."""
        return self._merged("facts", [part.facts() for part in self.parts.values()], {})

    def _merged(self, what: str, parts: Sequence[Mapping[str, T]], own: Mapping[str, T]) -> dict[str, T]:
        """Return the entries of the parts and of the method in one mapping; equal names are an error."""
        groups = [*parts, own]
        names = [name for group in groups for name in group]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"{self.name}: two {what} of its parts or of its own have the name {', '.join(twice)}")
        return {name: value for group in groups for name, value in group.items()}

    def subset(self, name: str, network: int) -> Ints:
        """Return ids of the pairs in this network's subset of this name, (n,).

        The first subset of a phase must not be empty. Another one that is empty is left out of the steps.
        """
        if name != "all":
            raise KeyError(f"{self.name} has no subset {name!r}")
        return self.setting.ids

    def requests(self, ids: Mapping[str, Ints], network: int) -> dict[str, Request]:
        """Return the pairs that a step of this network reads: by default its subsets, each pair with its own caption.

        Args:
            ids: Ids of the step's pairs by subset.
            network: The network that steps.
        """
        return {name: Request(rows) for name, rows in ids.items()}

    @abstractmethod
    def step(self, step: Step) -> list[Term]:
        """Return the loss of one step of a network on the batches that were requested, as terms."""

    def updates(self, step: Step) -> Iterator[list[Term]]:
        """Yield the loss of every optimizer step that a step takes, one after the other: by default the one of `step`.

        A loss is made when it is asked for, after the optimizer step on the one before.
        """
        yield self.step(step)


class LabelledSets(Method, ABC):
    """The base of methods whose subsets have a label for each pair, and an optimizer step each (NCR, CREAM)."""

    @abstractmethod
    def label(self, step: Step, name: str) -> Tensor:
        """Return the labels of a subset's pairs, without gradient, (B,), in [0, 1]."""

    @abstractmethod
    def terms(self, step: Step, name: str, labels: Mapping[str, Tensor]) -> list[Term]:
        """Return the loss of a subset by the labels of all of them, as terms."""

    def step(self, step: Step) -> list[Term]:
        """Return the losses of all subsets."""
        labels = {name: self.label(step, name) for name in step.batches}
        return [term for name in labels for term in self.terms(step, name, labels)]

    def updates(self, step: Step) -> Iterator[list[Term]]:
        """Yield the loss of one subset after the other, by labels that are made before the first optimizer step."""
        labels = {name: self.label(step, name) for name in step.batches}
        for name in labels:
            yield self.terms(step, name, labels)


@runtime_checkable
class Sorting(Protocol):
    """A method that sorts training pairs into kinds of its own."""

    def verdicts(self) -> list[str] | None:
        """Return the kind of each training pair, in the order of `setting.ids`. None if there are no kinds yet.

        `clean` is the word for pairs that the method believes; any other names a kind of mismatch.
        """
        ...


def peer(network: int, networks: int) -> int:
    """Return the network whose trust this one uses: the other of two (co-teaching), or itself if there is one."""
    return (network + 1) % networks


def _with_prefix(noted: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return the notes whose names begin with a prefix, without the prefix."""
    return {name.removeprefix(prefix): values for name, values in noted.items() if name.startswith(prefix)}


def trust_facts(setting: Setting, trust: Array, clean: Bools) -> dict[str, float]:
    """Return the estimated share of mismatched pairs, and with the truth the share of pairs on the right side.

    Args:
        setting: The setting of the run.
        trust: How far each network believes each training pair, [0, 1], (networks, n).
        clean: Whether it takes the pair for clean, (networks, n) or (n,).
    """
    facts = {"noise_rate": float(1 - trust.mean())}
    if setting.matched is not None:
        facts["discrimination"] = float(np.mean(clean == setting.matched[setting.ids]))
    return facts
