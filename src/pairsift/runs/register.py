"""The registration of a user's methods, matchers, encoders and readers by name."""

from __future__ import annotations

import inspect
from typing import Any

from pairsift.encode.registry import IMAGE_ENCODERS, TEXT_ENCODERS
from pairsift.errors import InputError
from pairsift.match import MATCHERS
from pairsift.match.base import Matcher
from pairsift.methods import METHODS
from pairsift.methods.base import Method
from pairsift.pairs import READERS
from pairsift.registry import Registry


def register(thing: Any, name: str | None = None) -> Any:
    """Register a method, matcher, encoder or reader of the user under a name, in this process.

    It can also be used as a decorator of a class. The command line needs no registration: `--method
    my_module:MyMethod`.

    Args:
        thing: A subclass of `Method` or of `Matcher`; a class of image encoders (with `prepare` and `encode`) or of
            text encoders (with `encode`), which is made without arguments; or a reader, a function of a path and
            `Columns`.
        name: The name; by default the `name` of the class, else the name of the class or function.

    Returns:
        The thing.

    Raises:
        InputError: The thing is none of these, or it has no name, or the name is already in use.
    """
    label = name or getattr(thing, "name", None) or getattr(thing, "__name__", None)
    if not isinstance(label, str):
        raise InputError(f"{thing!r} has no name: give one")
    _registry(thing).register(label, thing)
    return thing


def _registry(thing: Any) -> Registry[Any]:
    if inspect.isclass(thing):
        if issubclass(thing, Method):
            return METHODS
        if issubclass(thing, Matcher):
            return MATCHERS
        if hasattr(thing, "encode"):
            return IMAGE_ENCODERS if hasattr(thing, "prepare") else TEXT_ENCODERS
    elif inspect.isfunction(thing):
        return READERS
    raise InputError(f"{thing!r} is no method, matcher, encoder or reader")
