"""The rows of a table before they become records, and the columns for image, caption and split."""

from __future__ import annotations

from dataclasses import dataclass
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
NO_COLUMN = "none"  # of `--split-column`: the source has no splits


class Roles(NamedTuple):
    """The columns of a table by what they hold.

    Attributes:
        image: The image column; an empty string if a table that needs none has none.
        caption: The caption column; likewise.
        split: The split column, if there is one.
        further: Columns with further captions of the same image.
    """

    image: str
    caption: str
    split: str | None = None
    further: tuple[str, ...] = ()


class MissingColumn(InputError):
    """A table lacks a column.

    Attributes:
        names: Names of the columns that the table has.
    """

    def __init__(self, message: str, names: list[str]) -> None:
        super().__init__(message)
        self.names = names


@dataclass(slots=True)  # not frozen, as records are not
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
    """Return the names of the image column, the caption column and the split column, by their names alone.

    Raises:
        MissingColumn: A column that is needed or named by the user is missing.
        InputError: Image and caption are the same column.
    """
    picked, problems, advice = [], [], []
    for role, column, candidates, needed in (
        ("image", columns.image, IMAGE_COLUMNS, columns.needs_image),
        ("caption", columns.caption, CAPTION_COLUMNS, columns.needs_caption),
        ("split", None if columns.split == NO_COLUMN else columns.split, SPLIT_COLUMNS, False),
    ):
        name = find_column(names, candidates if column is None else (column.strip().lower(),))
        if name is None and (column is not None or needed):
            problems.append(f"no {role} column" if column is None else f"no column '{column}'")
            advice.append(f"name it with --{role}-column, or call it one of {', '.join(candidates[:4])}")
        picked.append(name)
    if problems:
        images = [place for place in (path.with_suffix(""), path.with_suffix(".tar")) if place.exists()]
        if not picked[0] and images and images[0] != path:
            advice.insert(0, f"its images may be in {images[0].name} beside it: read {path.absolute().parent} instead")
        line = f"{path}: {' and '.join(problems)} among the columns {quoted(names)}"
        raise MissingColumn("; ".join([line, *advice]), names)
    image, caption, split = picked
    if image is not None and image == caption:
        raise InputError(f"{path}: column {image!r} cannot be both image and caption")
    return Roles(image or "", caption or "", None if columns.split == NO_COLUMN else split)


def free_split_column(names: list[str]) -> str:
    """Return a name for a column of splits that a table does not have yet."""
    return next((name for name in SPLIT_COLUMNS if find_column(names, (name,)) is None), unique([*names, "split"])[-1])


def unique(names: list[str]) -> list[str]:
    """Make the names of columns unique: number the empty names and the repeated names."""
    seen: dict[str, int] = {}
    result = []
    for position, name in enumerate(names, 1):
        name = name.strip() or f"column {position}"
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    return result
