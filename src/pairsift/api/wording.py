"""What a parser's error says, in one line that names the option as it is typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from difflib import get_close_matches

KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}


def plainly(message: str, options: Collection[str], belongs: Callable[[str], str | None]) -> str:
    """The error in plain words.

    Args:
        message: jsonargparse's, of one line or many.
        options: The options that there are, such as `--noise_seed`.
        belongs: Says of a part's name, such as `pcsr`, which choice has its options; None for what is no part.
    """
    line = re.sub(r"<class '(\w+)'>", r"\1", " ".join(message.split()))
    if found := re.match(r"unrecognized arguments: (.+)|Option '(.+?)' is not accepted", line):
        return _unknown(found[1] or f"--{found[2]}", options, belongs)
    if line == "the following arguments are required: source":
        return "give a source: a file or a folder of image-caption pairs"
    found = re.match(r'Parser key "([^"]+)": (.*?)\.? (?:Got value|Given value type: \w+ Given value): (.*)', line)
    if not found:
        return line
    name, takes, value = found.groups()
    kinds = re.findall(r"Expected (?:an? )?([\w.]+(?:\[[^\]]*\])?)", takes)
    words = [_taken(kind) for kind in kinds if kind != "NoneType"]
    return f"{dashed(name)} is {value!r}; {' or '.join(words) or takes}"


def typed(name: str, value: object) -> str:
    """An option with its value as it is typed: `--noise-seed 1`."""
    return f"without {dashed(name)}" if value is None else f"{dashed(name)} {value}"


def dashed(name: str) -> str:
    """An option as it is typed."""
    return "--" + name.lstrip("-").replace("_", "-")


def _unknown(arguments: str, options: Collection[str], belongs: Callable[[str], str | None]) -> str:
    """Of what this choice of parts does not take."""
    if not arguments.startswith("-"):
        return f"one source is taken, and {arguments!r} comes after it"
    name = re.split(r"[ =]", arguments)[0].replace("_", "-")
    part = name.lstrip("-").partition(".")[0]
    if not any(option.startswith(f"--{part}.") for option in options) and (choice := belongs(part)):
        return f"{name} is an option of {choice}, which this run does not have"
    near = get_close_matches(name, [dashed(option) for option in options if option.startswith("--")], 1, 0.75)
    return f"there is no option {name}: " + (f"did you mean {near[0]}?" if near else "see `pairsift fit --help`")


def _taken(kind: str) -> str:
    """What an option takes, in words."""
    names = re.findall(r"'([^']*)'", kind)
    return "choose from " + ", ".join(names) if names else f"it takes {KINDS.get(kind, kind)}"
