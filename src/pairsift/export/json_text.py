"""JSON texts in which single values change, and all other characters stay."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

SPACE = re.compile(r"[ \t\r\n]*")
DECODER = json.JSONDecoder()


def json_line(cells: object) -> str:
    """Return cells as JSON in one line, with null for numbers that JSON does not have: NaN and infinity."""
    try:
        return json.dumps(cells, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(cells), ensure_ascii=False, default=str)


def _finite(cell: object) -> object:
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else None
    if isinstance(cell, dict):
        return {name: _finite(value) for name, value in cell.items()}
    return [_finite(value) for value in cell] if isinstance(cell, (list, tuple)) else cell


class Member(NamedTuple):
    """A member of an object or of an array: where it is in the text.

    Attributes:
        name: Its name in an object; an empty string in an array.
        start: Where it starts, with its name.
        value: Where its value starts.
        end: Where its value ends.
    """

    name: str
    start: int
    value: int
    end: int


Edit = tuple[int, int, str]  # where a part of the text starts and ends, and the text in its place


def members(text: str, start: int) -> list[Member]:
    """Return the members of the object or array that starts at a place of a valid JSON text."""
    is_object = text[start] == "{"
    found: list[Member] = []
    place = _next(text, start + 1)
    while text[place] not in "]}":
        first, name = place, ""
        if is_object:
            name, place = DECODER.raw_decode(text, place)
            place = _next(text, _next(text, place) + 1)
        _, end = DECODER.raw_decode(text, place)
        found.append(Member(name, first, place, end))
        place = _next(text, end)
        if text[place] == ",":
            place = _next(text, place + 1)
    return found


def _next(text: str, place: int) -> int:
    """Return the first place from here on that is no white space."""
    match = SPACE.match(text, place)
    return match.end() if match else place


def start_of(text: str) -> int:
    """Return where the value of a JSON text starts."""
    return _next(text, 0)


def removals(found: Sequence[Member], keep: Sequence[bool]) -> Iterator[Edit]:
    """Yield the edits that take members out of their object or array, each with one comma."""
    has_kept = False
    for place, (member, stays) in enumerate(zip(found, keep, strict=True)):
        if not stays and has_kept:
            yield found[place - 1].end, member.end, ""
        elif not stays:
            yield member.start, found[place + 1].start if place + 1 < len(found) else member.end, ""
        has_kept = has_kept or stays


def replacements(text: str, found: Sequence[Member], start: int, cells: Mapping[str, object]) -> Iterator[Edit]:
    """Yield the edits that give an object these values by name; new names come behind the others.

    Args:
        text: The text.
        found: The members of the object.
        start: Where the object starts.
        cells: The new values.
    """
    place_of = {member.name: member for member in found}
    new = {name: cell for name, cell in cells.items() if name not in place_of}
    yield from (
        (place_of[name].value, place_of[name].end, dumped(cell, text))
        for name, cell in cells.items()
        if name in place_of
    )
    if new:
        comma = text[found[-2].end : found[-1].start] if len(found) > 1 else ", "
        parts = [f"{dumped(name, text)}: {dumped(cell, text)}" for name, cell in new.items()]
        end = found[-1].end if found else start + 1
        yield end, end, (comma if found else "") + comma.join(parts)


def dumped(cell: object, text: str) -> str:
    """Return a value as JSON, with other letters than those of ASCII only where the text has some."""
    return json.dumps(cell, ensure_ascii=text.isascii())


def edited(text: str, edits: list[Edit]) -> str:
    """Return a text with edits that do not overlap."""
    parts, place = [], 0
    for start, end, new in sorted(edits):
        parts += [text[place:start], new]
        place = end
    return "".join([*parts, text[place:]])
