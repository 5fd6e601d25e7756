"""Things of one's own, by name."""

from __future__ import annotations

import inspect
from typing import Any

from pairsift.encode.names import IMAGE_ENCODERS, TEXT_ENCODERS
from pairsift.errors import InputError
from pairsift.match import MATCHERS
from pairsift.match.base import Matcher
from pairsift.methods import METHODS
from pairsift.methods.base import Method
from pairsift.pairs.formats import READERS
from pairsift.registry import Registry


def register(thing: Any, name: str | None = None) -> Any:
    """Make a method, matcher, encoder or reader of one's own known by a name, in this process.

    A class may be decorated with it. On the command line `--method my_module:MyMethod` does without.

    Args:
        thing: A subclass of `Method` or of `Matcher`; a class of image encoders (with `prepare` and `encode`) or of
            text encoders (with `encode`), which is made without arguments; or a reader, a function of a path and
            `Columns`.
        name: By default its `name`, or the function's.

    Returns:
        The thing.

    Raises:
        InputError: It is none of these, or the name is taken.
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
