"""The rows of a table before they become records, and the columns for image, caption and split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from pairsift.errors import InputError
from pairsift.pairs.readers.dialects import Dialect
from pairsift.pairs.records import Columns
from pairsift.pairs.text import quoted

IMAGE_COLUMNS = (
    *("image", "image_path", "filepath", "file_path", "file", "path", "filename", "file_name"),
    *("image_name", "img", "local", "local_path", "local_file"),
)
CAPTION_COLUMNS = ("caption", "title", "text", "description", "captions", "comment")
SPLIT_COLUMNS = ("split", "subset", "partition")


class Roles(NamedTuple):
    """The columns of a table by what they hold: an image, a caption, and the split if there is such a column.

    The image column is an empty string if a table that needs none has none.
    """

    image: str
    caption: str
    split: str | None


class MissingColumn(InputError):
    """A table lacks a column.

    Attributes:
        names: Names of the columns that the table has.
    """

    def __init__(self, message: str, names: list[str]) -> None:
        super().__init__(message)
        self.names = names


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: its place, its cells by column, its problem, if any, and the split in its file's name."""

    where: str
    cells: dict[str, object]
    problem: str = ""
    split: str = ""


@dataclass(frozen=True)
class SourceTable:
    """The rows of a table.

    Attributes:
        names: Names of the columns that are read, in the file's order.
        rows: The rows.
        reading: Note on what is unusual in the reading of the file's text.
        left_out: Names of the other columns.
        dialect: How a file of separated text is written; None for other formats.
    """

    names: list[str]
    rows: list[Row]
    reading: str = ""
    left_out: tuple[str, ...] = ()
    dialect: Dialect | None = None


def find_column(names: list[str], candidates: tuple[str, ...]) -> str | None:
    """Return the column whose name is the first of these names that exists, regardless of its case."""
    name_of = {name.strip().lower(): name for name in reversed(names)}
    return next((name_of[name] for name in candidates if name in name_of), None)


def pick_columns(path: Path, names: list[str], columns: Columns) -> Roles:
    """Return the names of the image column, the caption column and the split column.

    Raises:
        MissingColumn: The image or the caption column is missing.
        InputError: Both are the same column.
    """
    picked, problems, advice = [], [], []
    for role, column, candidates in (
        ("image", columns.image, IMAGE_COLUMNS),
        ("caption", columns.caption, CAPTION_COLUMNS),
    ):
        name = find_column(names, candidates if column is None else (column.strip().lower(),))
        if name is None and (role == "caption" or column is not None or columns.needs_image):
            problems.append(f"no {role} column" if column is None else f"no column '{column}'")
            advice.append(f"name it with --{role}-column, or call it one of {', '.join(candidates[:4])}")
        picked.append(name or "")
    if problems:
        images = [place for place in (path.with_suffix(""), path.with_suffix(".tar")) if place.exists()]
        if not picked[0] and images and images[0] != path:
            advice.insert(0, f"its images may be in {images[0].name} beside it: read {path.absolute().parent} instead")
        line = f"{path}: {' and '.join(problems)} among the columns {quoted(names)}"
        raise MissingColumn("; ".join([line, *advice]), names)
    if picked[0] == picked[1]:
        raise InputError(f"{path}: column {picked[0]!r} cannot be both image and caption")
    return Roles(picked[0], picked[1], find_column(names, SPLIT_COLUMNS))


def unique(names: list[str]) -> list[str]:
    """Make the names of columns unique: number the empty names and the repeated names."""
    seen: dict[str, int] = {}
    result = []
    for position, name in enumerate(names, 1):
        name = name.strip() or f"column {position}"
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    return result


def one_caption_each(row: Row, caption: str) -> Iterator[Row]:
    """Yield one row per caption if the caption cell is a list; yield any other row unchanged."""
    captions = row.cells.get(caption)
    if not isinstance(captions, list) or row.problem:
        yield row
        return
    for number, text in enumerate(captions or [""], 1):
        where = f"{row.where} caption {number}" if len(captions) > 1 else row.where
        yield replace(row, where=where, cells={**row.cells, caption: text})
