"""Classes by name, imported when they are first asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from pairsift.errors import InputError, similar

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """The location of a named object.

    Attributes:
        place: `module:attribute`.
        summary: One line about it.
    """

    place: str
    summary: str


class Registry(Mapping[str, T], Generic[T]):
    """The objects of one kind, by name. Listing them imports nothing.

    Args:
        kind: What is listed, in the singular, for messages.
        entries: By name; for what no module gives, such as a pattern of names, the summary alone.
        base: The class whose subclasses they are, as `module:attribute`; None where they are no classes of one kind.
    """

    def __init__(self, kind: str, entries: Mapping[str, Entry | str], base: str | None = None) -> None:
        self.kind = kind
        self._base = base
        self._entries = {name: Entry("", one) if isinstance(one, str) else one for name, one in entries.items()}
        self._loaded: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            self._loaded[name] = self._imported(self._entries[name].place)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._loaded

    def __iter__(self) -> Iterator[str]:
        return iter([*self._entries, *(name for name in self._loaded if name not in self._entries)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def summaries(self) -> dict[str, str]:
        """Return a one-line summary of each entry, by name."""
        added = {name: first_line(thing) for name, thing in self._loaded.items() if name not in self._entries}
        return {name: entry.summary for name, entry in self._entries.items()} | added

    def register(self, name: str, thing: T) -> None:
        """Add an object under a name of its own.

        Raises:
            InputError: The name is taken by something else.
        """
        if name in self._entries or self._loaded.get(name, thing) is not thing:
            raise InputError(f"there is a {self.kind} {name!r} already: choose another name")
        self._loaded[name] = thing

    def find(self, name: str) -> T:
        """Return the object of a name, or at `module:attribute`.

        The module is one that Python finds, or one in the working folder.

        Raises:
            InputError: There is no such name, module or attribute, or it is something else.
        """
        if ":" in name:
            thing = self._imported(name)
            base: Any = object if self._base is None else self._imported(self._base)
            if base is not object and not (isinstance(thing, type) and issubclass(thing, base)):
                raise InputError(f"{name} is no {self.kind}: give a subclass of {base.__module__}.{base.__name__}")
            label = getattr(thing, "name", None)
            if isinstance(label, str) and label not in self._entries:
                self._loaded[label] = thing
            return thing
        if name not in self:
            raise InputError(f"there is no {self.kind} {name!r}; {similar(name, list(self))}")
        return self[name]

    def spec(self, thing: Any) -> str:
        """Return the name of this class for `find`, in another process too."""
        name = getattr(thing, "name", "")
        entry = self._entries.get(name)
        place = f"{thing.__module__}:{thing.__qualname__}"
        return name if entry is not None and entry.place == place else place

    def attributes(self) -> list[str]:
        """Return the names of the classes."""
        return [entry.place.partition(":")[2] for entry in self._entries.values()]

    def attribute(self, module: str, attribute: str) -> T:
        """Return the class of this name, for a module that gives its classes without importing them before.

        Raises:
            AttributeError: There is none.
        """
        for name, entry in self._entries.items():
            if entry.place.partition(":")[2] == attribute:
                return self[name]
        raise AttributeError(f"module {module!r} has no attribute {attribute!r}")

    def _imported(self, place: str) -> T:
        name, _, attribute = place.partition(":")
        try:
            module = _module(name)
        except ImportError as error:
            raise InputError(f"{self.kind} {place}: {error}") from error
        if not hasattr(module, attribute):
            raise InputError(f"{self.kind} {place}: module {name} has no {attribute!r}")
        thing: T = getattr(module, attribute)
        return thing


def _module(name: str) -> ModuleType:
    """Import a module that Python finds, or one that lies in the working folder."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def exported(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return a package's `__getattr__`, which imports a name's module when the name is first asked for.

    Args:
        package: The package's name.
        modules: Names that it gives, with the modules in it that they lie in.
    """

    def get(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{modules[name]}"), name)

    return get


def first_line(thing: object) -> str:
    """Return the first line of something's docstring."""
    return next(iter((getattr(thing, "__doc__", None) or "").strip().splitlines()), "")
