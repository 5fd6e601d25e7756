"""The records of a source, as a reader returns them before any checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pairsift.errors import InputError
from pairsift.pairs.encoding import Text, decode
from pairsift.pairs.precomputed import Precomputed


@dataclass(frozen=True, slots=True)
class Record:
    """An image-caption record of a source, not yet checked.

    Attributes:
        where: The record as the user knows it, such as `captions.csv line 17`.
        image: Name of the image in the source; empty if the record names no image.
        path: File of the image, which need not exist, or the file of features if the source has features instead of
            images. None if the record names no local file.
        caption: Caption as it is in the source.
        split: Word for the split in the source; empty if the source has no split for this record.
        extra: Other columns of the source.
        problem: Reason why the record cannot be used, in one line without a full stop; empty if no problem is known
            yet.
        row: Row of the image in the concatenated features of the listing; -1 if the images are files.
    """

    where: str
    image: str
    path: Path | None
    caption: str
    split: str = ""
    extra: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    row: int = -1


@dataclass(frozen=True)
class Listing:
    """The records of a source in its order; the position of a record becomes the id of its pair.

    Attributes:
        records: The records.
        image: Place of the images in the source, for `Pairs.description`.
        caption: Place of the captions in the source, for `Pairs.description`.
        split: Place of the splits in the source, for `Pairs.description`; empty if the source has no splits.
        features: Features that replace the images, or None if the images are files.
        reading: Unusual facts about the decoding of the source's text; empty for plain UTF-8.
    """

    records: list[Record]
    image: str
    caption: str
    split: str = ""
    features: Precomputed | None = None
    reading: str = ""


@dataclass(frozen=True)
class Columns:
    """The options that the user sets for a source.

    Attributes:
        image: Name of the image column, or None to look for the usual names.
        caption: Name of the caption column, or None to look for the usual names.
        folder: Folder that relative image paths start from, or None for the default of the reader.
        cache: Folder for the images that the source contains as bytes, or None for the default cache.
        needs_image: Whether a table must have an image column. Without one, its name is an empty string.
    """

    image: str | None = None
    caption: str | None = None
    folder: Path | None = None
    cache: Path | None = None
    needs_image: bool = True


Reader = Callable[[Path, Columns], Listing]


def one_line(text: str, limit: int = 400) -> str:
    """Replace each run of white space by a single space, and cut the text to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def quoted(names: Iterable[str], limit: int = 12) -> str:
    """Return the first `limit` names of a list in a readable form, such as `'a', 'b' and 3 more`."""
    lines = [one_line(repr(name), 60) for name in names]
    surplus = len(lines) - limit
    return ", ".join(lines[:limit]) + (f" and {surplus} more" if surplus > 0 else "")


def read_bytes(path: Path) -> bytes:
    """Read the bytes of a file.

    Raises:
        InputError: The file cannot be read, or it is empty.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not content.strip():
        raise InputError(f"{path}: the file is empty")
    return content


def read_text(path: Path) -> Text:
    """Read the text of a file.

    Raises:
        InputError: The file cannot be read, is empty, or starts as UTF-16 or UTF-32 and is not valid.
    """
    return decode(read_bytes(path), path)


def as_text(value: object) -> str:
    """Convert a cell to text.

    A string stays as it is, None becomes an empty string, bytes are decoded as UTF-8, and any other value becomes JSON.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(value)


def other_columns(cells: Mapping[str, object], *used: str) -> dict[str, str]:
    """Return the cells that are neither used nor nested, as text."""
    return {
        str(name): as_text(value)
        for name, value in cells.items()
        if name not in used and not isinstance(value, (list, dict))
    }


def parse_json(path: Path) -> tuple[object, Text]:
    """Read a JSON file and return its value and its text.

    Raises:
        InputError: The file cannot be read, is empty, or is not JSON.
    """
    text = read_text(path)
    try:
        return json.loads(text.content), text
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}: is not valid JSON: {one_line(str(error))}") from error
