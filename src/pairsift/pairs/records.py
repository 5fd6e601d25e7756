"""What a reader hands on: records as the source has them, before anything is checked."""

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
    """One image-caption record of a source, unchecked.

    Attributes:
        where: The record as the user knows it, such as `captions.csv line 17`.
        image: The image as the source names it; empty where it names none.
        path: The image's file, which need not exist; None where the source names no image. Where the source has
            features instead of images, the file of features.
        caption: The caption as the source has it.
        split: The source's own word for the split; empty where it has none for this record.
        extra: The source's other columns.
        problem: Why the record cannot be used, one line without a final stop; empty where nothing is wrong yet.
        row: Row of the image in the listing's features laid end to end; -1 where images are files.
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
    """All records of a source in its own order; a record's position becomes the pair's id.

    Attributes:
        records: The records.
        image: Where the images were found, for the line that says what was taken.
        caption: Where the captions were found.
        split: Where the splits were found; empty where the source has none.
        features: Features that take the place of images, or None where images are files.
        reading: What is unusual about how the source's text was read; empty for plain UTF-8.
    """

    records: list[Record]
    image: str
    caption: str
    split: str = ""
    features: Precomputed | None = None
    reading: str = ""


@dataclass(frozen=True)
class Columns:
    """What the user said of a source.

    Attributes:
        image: Name of the image column, or None to have it found by the usual names.
        caption: The same of the caption column.
        folder: Folder that relative image paths start from, or None for the reader's own.
        cache: Folder that images within a source are written into, or None for the default cache.
    """

    image: str | None = None
    caption: str | None = None
    folder: Path | None = None
    cache: Path | None = None


Reader = Callable[[Path, Columns], Listing]


def one_line(text: str, limit: int = 400) -> str:
    """The text with runs of white space made single blanks, cut to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def quoted(names: Iterable[str], limit: int = 12) -> str:
    """The first names of a list as a person reads them: `'a', 'b' and 3 more`."""
    shown = [one_line(repr(name), 60) for name in names]
    rest = len(shown) - limit
    return ", ".join(shown[:limit]) + (f" and {rest} more" if rest > 0 else "")


def read_bytes(path: Path) -> bytes:
    """The file's bytes.

    Raises:
        InputError: It cannot be read, or it is empty.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not raw.strip():
        raise InputError(f"{path}: the file is empty")
    return raw


def read_text(path: Path) -> Text:
    """The file's text.

    Raises:
        InputError: It cannot be read, or it is empty.
    """
    return decode(read_bytes(path), path)


def as_text(value: object) -> str:
    """A cell as text: a string as it is, nothing as an empty string, anything else as JSON."""
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


def others(cells: Mapping[str, object], *used: str) -> dict[str, str]:
    """The cells that are neither used nor nested, as text."""
    return {
        str(name): as_text(value)
        for name, value in cells.items()
        if name not in used and not isinstance(value, (list, dict))
    }


def parse_json(path: Path) -> tuple[object, Text]:
    """The value of a JSON file, and its text.

    Raises:
        InputError: The file cannot be read, is empty, or is not JSON.
    """
    text = read_text(path)
    try:
        return json.loads(text.content), text
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}: is not valid JSON: {one_line(str(error))}") from error
