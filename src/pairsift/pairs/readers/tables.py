"""The `table` reader: CSV, TSV, JSON lines and Parquet with a column of image files and one of captions."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairsift.errors import InputError
from pairsift.pairs.encoding import UNREADABLE, how_read, undecodable
from pairsift.pairs.places import find_image
from pairsift.pairs.records import Columns, Listing, Record, as_text, one_line, quoted, read_text

SEPARATORS = (",", "\t", ";", "|")
IMAGE_COLUMNS = (
    *("image", "image_path", "filepath", "file_path", "file", "path", "filename", "file_name"),
    *("image_name", "img", "local", "local_path", "local_file"),
)
CAPTION_COLUMNS = ("caption", "title", "text", "description", "captions", "comment")
BEGINNING = 2**20  # bytes in which a table's first line ends
SPLIT_COLUMNS = ("split", "subset", "partition")


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its place in the file, its cells by column, and what is wrong with it."""

    where: str
    cells: dict[str, object]
    problem: str = ""


@dataclass(frozen=True)
class Table:
    """Rows with the names of their columns, in the file's order, and what is unusual about how the text was read."""

    names: list[str]
    rows: list[Row]
    reading: str = ""


class Lines:
    """A text's lines, read one record at a time and from any line again."""

    def __init__(self, text: str) -> None:
        self.lines = list(io.StringIO(text, newline=""))
        self.at = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.at == len(self.lines):
            raise StopIteration
        self.at += 1
        return self.lines[self.at - 1]

    def record(self, separator: str, width: int | None = None) -> tuple[list[str], str]:
        """Fields of the next record and what is wrong with it.

        A stray quote would swallow the lines that follow it. So a record over several lines that comes out wrong is
        given up after its first line, and reading goes on at the second.
        """
        start = self.at
        try:
            fields = next(csv.reader(self, delimiter=separator, strict=True))
        except csv.Error:
            self.at = start + 1
            line = self.lines[start].rstrip("\r\n") + "\n"
            try:
                fields = next(csv.reader([line], delimiter=separator))
            except csv.Error as error:
                return [], one_line(f"cannot be read as a row: {error}")
            if fields[-1].endswith("\n"):
                return [], "a quote is opened and not closed"
        if fields and width is not None and len(fields) != width:
            self.at = start + 1
            return [], f"has {len(fields)} fields where the header has {width}"
        return fields, ""


def find_column(names: list[str], usual: tuple[str, ...]) -> str | None:
    """The column that goes by the first of these names that is there, whatever its case."""
    plain = {name.strip().lower(): name for name in reversed(names)}
    return next((plain[name] for name in usual if name in plain), None)


def pick(path: Path, names: list[str], columns: Columns) -> tuple[str, str]:
    """Names of the image and the caption column.

    Raises:
        InputError: One of them is not there.
    """
    picked = []
    for role, given, usual in (
        ("image", columns.image, IMAGE_COLUMNS),
        ("caption", columns.caption, CAPTION_COLUMNS),
    ):
        name = find_column(names, usual) if given is None else find_column(names, (given.strip().lower(),))
        if name is None:
            wanted = f"no column '{given}'" if given is not None else f"no {role} column"
            raise InputError(
                f"{path}: {wanted} among the columns {quoted(names)}; "
                f"name it with --{role}-column, or call it one of {', '.join(usual[:4])}"
            )
        picked.append(name)
    if picked[0] == picked[1]:
        raise InputError(f"{path}: column {picked[0]!r} cannot be both image and caption")
    return picked[0], picked[1]


def header(path: Path, text: str, columns: Columns) -> tuple[str, list[str]]:
    """The separator under which the first line names an image and a caption column, and the columns' names."""
    found: list[tuple[bool, int, str, list[str]]] = []
    for separator in SEPARATORS:
        names, _ = Lines(text).record(separator)
        try:
            pick(path, names, columns)
            fits = True
        except InputError:
            fits = False
        found.append((fits, len(names), separator, names))
    fits, _, separator, names = max(found, key=lambda each: each[:2])
    if not fits and any("\0" in name for name in names):
        raise InputError(f"{path}: is no table of text: the first line, for the columns' names, holds zero bytes")
    pick(path, names, columns)
    return separator, unique(names)


def unique(names: list[str]) -> list[str]:
    """Column names made different from each other: nameless ones are numbered, repeated ones too."""
    seen: dict[str, int] = {}
    result = []
    for position, name in enumerate(names, 1):
        name = name.strip() or f"column {position}"
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    return result


def read_separated(path: Path, columns: Columns) -> Table:
    """The rows of a CSV or TSV file; the separator is the one that makes sense of its first line."""
    read = read_text(path)
    text = read.content.lstrip("\r\n")
    if not text:
        raise InputError(f"{path}: the file is empty")
    separator, names = header(path, text, columns)
    lines = Lines(text)
    lines.record(separator)
    rows = []
    while lines.at < len(lines.lines):
        where = f"{path.name} line {lines.at + 1}"
        fields, problem = lines.record(separator, len(names))
        if problem:
            rows.append(Row(where, {}, problem))
        elif fields:
            rows.append(Row(where, dict(zip(names, fields, strict=True))))
    return Table(names, rows, how_read([read]))


def read_json_rows(path: Path, _: Columns) -> Table:
    """The rows of a file with one JSON object a line, or of one JSON array of objects."""
    read = read_text(path)
    text = read.content
    if text.lstrip()[:1] == "[":
        try:
            values = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InputError(f"{path}: is not valid JSON: {one_line(str(error))}") from error
        rows = [json_row(f"{path.name} record {number}", value) for number, value in enumerate(values, 1)]
    else:
        rows = []
        for number, line in enumerate(text.split("\n"), 1):
            where = f"{path.name} line {number}"
            if line.strip():
                try:
                    rows.append(json_row(where, json.loads(line)))
                except (json.JSONDecodeError, RecursionError) as error:
                    rows.append(Row(where, {}, one_line(f"is not valid JSON: {error}")))
    names = list(dict.fromkeys(name for row in rows for name in row.cells))
    return Table(names, rows, how_read([read]))


def json_row(where: str, value: object) -> Row:
    """One JSON value as a row."""
    return Row(where, value) if isinstance(value, dict) else Row(where, {}, "is not a JSON object")


def read_parquet(path: Path, _: Columns) -> Table:
    """The rows of a Parquet file."""
    try:
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: is not a readable Parquet file: {one_line(str(error), 200)}") from error
    names = unique(table.column_names)
    cells = [cells_of(column) for column in table.columns]
    rows = [
        Row(f"{path.name} row {number}", dict(zip(names, values, strict=True)))
        for number, values in enumerate(zip(*cells, strict=True), 1)
    ]
    return Table(names, rows)


def cells_of(column: pa.ChunkedArray) -> list[object]:
    """A Parquet column's cells; text goes through bytes, so that one bad cell does not cost the column."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return [as_text(cell) if isinstance(cell, bytes) else cell for cell in column.to_pylist()]


def check_columns(path: Path, columns: Columns) -> None:
    """Refuse a table without an image or a caption column, by its beginning alone.

    What the beginning does not tell is left to `read_table`: JSON, UTF-16, files that cannot be read.

    Raises:
        InputError: A column is not there.
    """
    suffix = path.suffix.lower()
    try:
        if suffix in (".csv", ".tsv"):
            with path.open("rb") as stream:
                raw = stream.read(BEGINNING)
            if raw.strip() and raw[:2] not in (b"\xff\xfe", b"\xfe\xff"):
                header(path, decode(raw, path).lstrip("\r\n"), columns)
        elif suffix in (".parquet", ".pq"):
            pick(path, unique(pq.read_schema(path).names), columns)
    except (OSError, pa.ArrowException):
        return


FORMATS = {
    ".csv": read_separated,
    ".tsv": read_separated,
    ".jsonl": read_json_rows,
    ".ndjson": read_json_rows,
    ".json": read_json_rows,
    ".parquet": read_parquet,
    ".pq": read_parquet,
}


def read_table(path: Path, columns: Columns, base: Path | None = None) -> Listing:
    """Reads a CSV, TSV, JSON lines or Parquet file.

    Args:
        path: The file; its extension says the format, and any other extension is read as CSV.
        columns: Column names given by the user.
        base: Folder that relative image paths start from where the user names none; by default the file's own.

    Raises:
        InputError: The file cannot be read, is empty, or has no image or caption column.
    """
    if path.is_dir():
        raise InputError(f"{path}: is a folder; the reader 'table' needs a CSV, TSV, JSON lines or Parquet file")
    table = FORMATS.get(path.suffix.lower(), read_separated)(path, columns)
    if not table.names and table.rows:
        raise InputError(f"{path}: no row can be read; {table.rows[0].where} {table.rows[0].problem}")
    if not table.rows:
        raise InputError(f"{path}: holds no rows under the columns {quoted(table.names)}")
    image, caption = pick(path, table.names, columns)
    split = find_column(table.names, SPLIT_COLUMNS)
    used = (image, caption) if split is None else (image, caption, split)
    extra = [name for name in table.names if name not in used]
    base = columns.folder or base or path.parent
    return Listing(
        [to_record(row, base, used, extra) for row in table.rows],
        image=f"column {image!r}",
        caption=f"column {caption!r}",
        split="" if split is None else f"column {split!r}",
        reading=table.reading,
    )


def to_record(row: Row, base: Path, used: tuple[str, ...], extra: list[str]) -> Record:
    """A row as a record; `used` names the image, the caption and perhaps the split column."""
    image, caption, *split = (as_text(row.cells.get(name)) for name in used)
    others = {name: as_text(row.cells.get(name)) for name in extra}
    problem = row.problem
    if not problem:
        nested = [name for name in used if isinstance(row.cells.get(name), (dict, list))]
        if any(undecodable(cell) for cell in (image, caption, *others.values())):
            problem = UNREADABLE
        elif nested:
            problem = f"column {nested[0]!r} holds a list or an object where text is needed"
    name = image.strip()
    place, trouble = find_image(base, name)
    return Record(
        where=row.where,
        image=name,
        path=place,
        caption=caption,
        split=split[0].strip() if split else "",
        extra=others,
        problem=problem or trouble,
    )
