"""The options of the command line, made from the fields of option objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal, get_args, get_origin

import click
from click.shell_completion import CompletionItem
from pydantic_core import PydanticUndefined

from pairsift.errors import dashed
from pairsift.options import Options, alternatives, groups

BOOLS = ("true", "false", "yes", "no", "on", "off", "1", "0", "null")  # values that a switch takes
METAVARS = {int: "N", float: "X", bool: "true|false", str: "TEXT"}


class Flag(click.Option):
    """An option on the command line; its value stays text, which the type of the option reads.

    Args:
        path: Names that lead to the option in a tree of options.
        metavar: Placeholder of the value in help.
        about: Description of the option, for help.
        default: Default value, for help.
        section: Heading in help.
        values: Possible values, for completion; empty if there are too many to list.
        switch: Whether the option may stand without a value, which means true.
    """

    def __init__(
        self,
        path: tuple[str, ...],
        metavar: str,
        about: str,
        default: object = None,
        section: str = "",
        values: tuple[str, ...] = (),
        switch: bool = False,
    ) -> None:
        self.path, self.values, self.section, self.switch = path, values, section, switch
        shown = "" if default is None or default == "" else f" [default: {_shown(default)}]"
        super().__init__([dashed(*path), "__".join(path)], metavar=metavar, help=about + shown, type=str, default=None)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the values that begin with the incomplete text."""
        return [CompletionItem(value) for value in self.values if value.startswith(incomplete)]


def flags_of(
    kind: type[Options], section: str, prefix: tuple[str, ...] = (), defaults: Mapping[str, Any] | None = None
) -> list[Flag]:
    """Return a flag for every option of a kind of options, groups within it included.

    Args:
        kind: The kind of options.
        section: Heading in help.
        prefix: Names before the name of each option.
        defaults: Values that a preset puts in place of the defaults.
    """
    flags: list[Flag] = []
    inner, preset = groups(kind), defaults or {}
    for name, field in kind.model_fields.items():
        path = (*prefix, name)
        if name in inner:
            flags += flags_of(inner[name], section, path, preset.get(name))
            continue
        default = preset.get(name, None if field.default is PydanticUndefined else field.default)
        parts = alternatives(field.annotation)
        values = tuple(str(value) for part in parts if get_origin(part) is Literal for value in get_args(part))
        others = [METAVARS.get(part, "VALUE") for part in parts if get_origin(part) is not Literal]  # type: ignore[call-overload]
        metavar = "|".join([*values, *others])
        flags.append(Flag(path, metavar, field.description or "", default, section, values, bool in parts))
    return flags


def with_values(words: Sequence[str], params: Sequence[click.Parameter]) -> list[str]:
    """Return a command line with `true` behind each switch that has no value, so that `--aligned SOURCE` is one too."""
    switches = {name for param in params if isinstance(param, Flag) and param.switch for name in param.opts}
    found: list[str] = []
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        found.append(f"{word}=true" if word in switches and following.lower() not in BOOLS else word)
    return found


def tree_of(flags: list[Flag], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are set, as a tree of options."""
    tree: dict[str, Any] = {}
    for flag in flags:
        value = values.get(str(flag.name))
        if value is None:
            continue
        place = tree
        for name in flag.path[:-1]:
            place = place.setdefault(name, {})
        place[flag.path[-1]] = value
    return tree


def _shown(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)
