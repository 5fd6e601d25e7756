"""The `table` reader: CSV, TSV, JSON lines and Parquet with a column of image files and a column of captions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairsift.errors import InputError
from pairsift.pairs.embedded import Embedded
from pairsift.pairs.image_files import walk
from pairsift.pairs.readers.parquet import read_parquet, read_parquet_files
from pairsift.pairs.readers.rows import Roles, Row, SourceTable, one_caption_each, pick_columns, unique
from pairsift.pairs.readers.separated import check_header, read_separated, without_number
from pairsift.pairs.records import Columns, Listing, Record
from pairsift.pairs.splits import SPLIT_WORDS, split_of_place
from pairsift.pairs.text import as_text, how_read, one_line, quoted, read_text
from pairsift.source_path import places_of, root_of

PARQUET = (".parquet", ".pq")
FILE_NAMES = "the files' names"


def read_json_rows(path: Path, _: Columns) -> SourceTable:
    """Read the rows of a file with one JSON object per line, or with one JSON array of objects."""
    decoded = read_text(path)
    text = decoded.content
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
    return SourceTable(names, rows, how_read([decoded]))


def json_row(where: str, value: object) -> Row:
    """Return a JSON value as a row."""
    return Row(where, value) if isinstance(value, dict) else Row(where, {}, "is not a JSON object")


def check_columns(path: Path, columns: Columns) -> None:
    """Refuse a table without an image or a caption column, from the beginning of the file alone.

    Whatever the beginning does not show is left to `read_table`: JSON, UTF-16 and UTF-32, files that cannot be read.

    Raises:
        InputError: A column is missing.
    """
    suffix = path.suffix.lower()
    try:
        if FORMATS.get(suffix) is read_separated:
            check_header(path, columns)
        elif suffix in PARQUET:
            pick_columns(path, unique(pq.read_schema(path).names), columns)
    except (OSError, pa.ArrowException):
        return


FORMATS = {
    ".csv": read_separated,
    ".tsv": read_separated,
    ".txt": read_separated,
    ".jsonl": read_json_rows,
    ".ndjson": read_json_rows,
    ".json": read_json_rows,
    ".parquet": read_parquet,
    ".pq": read_parquet,
}


def read_table(path: Path, columns: Columns, base: Path | None = None) -> Listing:
    """Read a CSV, TSV, JSON lines or Parquet file, or several with the same columns.

    Where the names of all files have words for splits, one of them `train`, and no column has, these are the splits.

    Args:
        path: The file, a pattern of several, or a folder of Parquet files. The extension of a file determines its
            format; a file with any other extension is read as CSV.
        columns: Column names set by the user.
        base: Folder that relative image paths start from if the user sets none; by default the folder of the file.

    Raises:
        InputError: The file cannot be read, is empty, or has no image or caption column.
    """
    table = read_rows(path, columns)
    image, caption, split = roles = pick_columns(path, table.names, columns)
    embedded = any(isinstance(row.cells.get(image), Embedded) for row in table.rows)
    has_lists = any(isinstance(row.cells.get(caption), list) for row in table.rows)
    rows = [caption_row for row in table.rows for caption_row in one_caption_each(row, caption)]
    folder = columns.folder or base or root_of(path)
    records, note = without_numbers([named_record(row, roles, table.names) for row in rows], folder)
    return Listing(
        records,
        image=f"column {image!r}{' (images within the file)' * embedded}",
        caption=f"column {caption!r}{' (lists of captions)' * has_lists}",
        split=f"column {split!r}" if split else FILE_NAMES if any(row.split for row in rows) else "",
        reading="; ".join(filter(None, (table.reading, note))),
        folder=folder,
    )


def without_numbers(records: list[Record], folder: Path) -> tuple[list[Record], str]:
    """Return records with the names of images without the numbers of captions behind them, and a note on them."""
    if not any("#" in record.image for record in records):
        return records, ""
    named = [replace(record, image=without_number(record.image, folder)) for record in records]
    numbered = sum(new.image != old.image for new, old in zip(named, records, strict=True))
    return named, f"image names with a number of the caption behind them (#0): {numbered}" if numbered else ""


def read_rows(path: Path, columns: Columns) -> SourceTable:
    """Read the rows of a table, in the format that its extension determines.

    Raises:
        InputError: The file cannot be read, is empty, has no row, or lacks a column.
    """
    files = files_of(path)
    if all(file.suffix.lower() in PARQUET for file in files):
        tables = read_parquet_files(path, files, columns)
    else:
        tables = [FORMATS.get(file.suffix.lower(), read_separated)(file, columns) for file in files]
    table = tables[0] if files == [path] else joined(path, files, tables)
    if not table.names and table.rows:
        raise InputError(f"{path}: no row can be read; {table.rows[0].where} {table.rows[0].problem}")
    if not table.rows:
        raise InputError(f"{path}: holds no rows under the columns {quoted(table.names)}")
    return table


def files_of(path: Path) -> list[Path]:
    """Return the tables of a source: a file, the files that a pattern names, or the Parquet files below a folder.

    Raises:
        InputError: A folder holds none.
    """
    files: list[Path] = []
    for place in places_of(path):
        below = [file for file in walk(place).files if file.suffix.lower() in PARQUET] if place.is_dir() else [place]
        if not below:
            raise InputError(f"{place}: holds no Parquet file; name the table in it, or leave --reader out")
        files += below
    return files


def joined(path: Path, files: Sequence[Path], tables: Sequence[SourceTable]) -> SourceTable:
    """Return the rows of several tables as one, with the splits that the names of all files have.

    Raises:
        InputError: The tables have different columns.
    """
    places = [file.relative_to(root_of(path)) for file in files]
    rows: list[Row] = []
    words = [split_of_place(place) for place in places]
    by_name = all(words) and "train" in {SPLIT_WORDS[word.lower()] for word in words}
    free = all(FORMATS.get(file.suffix.lower()) is read_json_rows for file in files)  # a row may leave names out
    for file, place, word, table in zip(files, places, words, tables, strict=True):
        extra = {*table.names, *table.left_out} ^ {*tables[0].names, *tables[0].left_out}
        if extra and not free:
            raise InputError(
                f"{file}: has not the columns of {files[0]} ({quoted(sorted(extra), 4)} in only one of them); give "
                "files of one table"
            )
        split = word if by_name else ""
        for row in table.rows:
            rows.append(replace(row, where=f"{place.as_posix()}{row.where.removeprefix(file.name)}", split=split))
    names = dict.fromkeys(name for table in tables for name in table.names)
    kept = [name for name in names if free or all(name in table.names for table in tables)]
    notes = dict.fromkeys(table.reading for table in tables)
    return SourceTable(kept, rows, "; ".join(filter(None, (f"{len(files)} file{'s' * (len(files) != 1)}", *notes))))


def named_record(row: Row, roles: Roles, names: list[str]) -> Record:
    """Convert a row to a record with the name of an image, and with its file if it lies within the table.

    Args:
        row: The row.
        roles: The columns of the image, the caption and the split.
        names: Names of all columns.
    """
    cells = {name: row.cells.get(name) for name in roles if name is not None}
    image = cells[roles.image]
    if isinstance(image, dict) and image.get("bytes") is None and isinstance(image.get("path"), str):
        image = cells[roles.image] = image["path"]  # as the library `datasets` stores an image with a path and no bytes
    nested = [name for name, cell in cells.items() if isinstance(cell, (dict, list))]
    problem = row.problem
    if not problem and nested:
        problem = f"column {nested[0]!r} holds a list or an object where text is needed"
    return Record(
        where=row.where,
        image=image.name if isinstance(image, Embedded) else as_text(image).strip(),
        path=image.file if isinstance(image, Embedded) else None,
        caption=as_text(cells[roles.caption]),
        split=row.split if roles.split is None else as_text(cells[roles.split]).strip(),
        extra={name: as_text(row.cells.get(name)) for name in names if name not in roles},
        problem=problem,
    )
