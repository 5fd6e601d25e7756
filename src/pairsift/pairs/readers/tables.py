"""The `table` reader: CSV, TSV, JSON lines and Parquet with a column of image files and a column of captions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairsift.errors import InputError
from pairsift.pairs.base64_images import from_base64, is_base64_image
from pairsift.pairs.embedded import Embedded, Store, in_rows
from pairsift.pairs.image_files import any_image, walk
from pairsift.pairs.readers.cells import Reading, answers_of
from pairsift.pairs.readers.choice import read_columns
from pairsift.pairs.readers.json_rows import read_json_rows
from pairsift.pairs.readers.parquet import read_parquet, read_parquet_files
from pairsift.pairs.readers.rows import (
    IMAGE_COLUMNS,
    MissingColumn,
    Roles,
    Row,
    SourceTable,
    find_column,
    pick_columns,
    unique,
)
from pairsift.pairs.readers.separated import check_header, read_separated, without_number
from pairsift.pairs.records import Columns, Listing, Record
from pairsift.pairs.splits import SPLIT_WORDS, evaluation_splits, split_of_place
from pairsift.pairs.text import as_text, quoted
from pairsift.source_path import places_of, root_of

PARQUET = (".parquet", ".pq")
FILE_NAMES = "the files' names"
SMALL = 2**20  # bytes of a file that is read twice
SHOWN = 20  # rows that show whether a column holds images as base64


def check_columns(path: Path, columns: Columns) -> None:
    """Refuse a table that lacks a column, from the beginning of the file.

    Columns of unusual names are found by their values where the file is small. Whatever else the beginning does not
    show is left to `read_table`: JSON, UTF-16 and UTF-32, and files that cannot be read.

    Raises:
        InputError: A column is missing.
    """
    suffix = path.suffix.lower()
    try:
        if FORMATS.get(suffix) is read_separated:
            check_header(path, columns)
        elif suffix in PARQUET:
            pick_columns(path, unique(pq.read_schema(path).names), columns)
    except MissingColumn as error:
        named = [name for name in (columns.image, columns.caption) if name is not None]
        if any(find_column(error.names, (name.strip().lower(),)) is None for name in named):
            raise
        if path.stat().st_size <= SMALL:
            read_columns(path, read_rows(path, columns), columns, columns.folder or path.parent)
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


def read_table(path: Path, columns: Columns, base: Path | None = None, reading: Reading | None = None) -> Listing:
    """Read a CSV, TSV, JSON lines or Parquet file, or several with the same columns.

    Where the names of all files have words for splits, one of them `train`, and no column has, these are the splits.

    Args:
        path: The file, a pattern of several, or a folder of Parquet files. The extension of a file determines its
            format; a file with any other extension is read as CSV.
        columns: Options of the user.
        base: Folder that relative image paths start from if the user sets none; by default the folder of the file.
        reading: What the columns hold, where other rows have shown it; by default these rows show it.

    Raises:
        InputError: The file cannot be read, is empty, or has no image or caption column.
    """
    if reading is not None:
        columns = replace(columns, image=reading.roles.image, caption=reading.roles.caption)
    table = read_rows(path, columns)
    folder = columns.folder or base or root_of(path)
    reading, choice = read_columns(path, table, columns, folder) if reading is None else (reading, "")
    image, _, split, _ = reading.roles
    records = [record for row in table.rows for record in records_of(row, reading, table.names)]
    records, numbers = without_numbers(records, folder)
    images = [row.cells.get(image) for row in table.rows]
    embedded = any(
        isinstance(part, Embedded) for cell in images for part in (cell if isinstance(cell, list) else [cell])
    )
    has_lists = reading.images or any(isinstance(cell, list) for cell in images)
    notes = table.reading, counted(reading, table, len(records)), choice, split_note(table, split), numbers
    return Listing(
        records,
        image=f"column {image!r}{' (lists of images)' * has_lists}{' (images within the file)' * embedded}",
        caption=captions_from(reading, table),
        split=f"column {split!r}" if split else FILE_NAMES if any(row.split for row in table.rows) else "",
        reading="; ".join(filter(None, notes)),
        folder=folder,
    )


def captions_from(reading: Reading, table: SourceTable) -> str:
    """Return the place of the captions for `Pairs.description`."""
    roles = reading.roles
    cells = [row.cells.get(roles.caption) for row in table.rows]
    names = ", ".join(map(repr, (roles.caption, *roles.further)))
    place = f"columns {names}" if roles.further else f"column {names}"
    if reading.separator:
        return f"{place} (several captions in a cell, between {reading.separator!r}; --lists keep takes them as one)"
    if reading.written:
        return f"{place} (lists of captions in text; --lists keep takes each as one caption)"
    if any(isinstance(cell, list) and answers_of(cell) is not None for cell in cells):
        return f"{place} (answers of conversations)"
    return f"{place}{' (lists of captions)' * any(isinstance(cell, list) for cell in cells)}"


def counted(reading: Reading, table: SourceTable, records: int) -> str:
    """Describe how rows with several images or captions become pairs; return an empty string where none has several."""
    if records == len(table.rows):
        return ""
    rule = ", the first caption for the first image and so on" * reading.paired
    return f"{len(table.rows):,} rows hold {records:,} pairs{rule}"


def split_note(table: SourceTable, split: str | None) -> str:
    """Return what is unusual in the words of a split column."""
    if split is None:
        return ""
    words = Counter(as_text(row.cells.get(split)).strip() for row in table.rows if not row.problem)
    evaluation = evaluation_splits(words)
    notes = [f"split {word!r} read as {meaning}" for word, meaning in evaluation.items()]
    unknown = [word for word in words if word.lower() not in SPLIT_WORDS and word.lower() not in evaluation]
    if unknown:
        count = sum(words[word] for word in unknown)
        notes.append(f"rows left out because {quoted(unknown, 3)} is no word for a split: {count:,}")
    return "; ".join(notes)


def without_numbers(records: list[Record], folder: Path) -> tuple[list[Record], str]:
    """Return records with the names of images without the numbers of captions behind them, and a note on them."""
    if not any("#" in record.image for record in records):
        return records, ""
    named = [replace(record, image=without_number(record.image, folder)) for record in records]
    numbered = sum(new.image != old.image for new, old in zip(named, records, strict=True))
    return named, f"image names with a number of the caption behind them (#0): {numbered}" if numbered else ""


def read_rows(path: Path, columns: Columns) -> SourceTable:
    """Read the rows of a table, in the format that its extension determines.

    Where a column that the user did not name has no usual name, the rows are read without it, and their values show it.

    Raises:
        InputError: The file cannot be read, is empty, has no row, or lacks a column that the user named.
    """
    files = files_of(path)
    try:
        tables = _tables(path, files, columns)
    except MissingColumn as error:
        try:
            tables = _tables(path, files, replace(columns, needs_caption=False))
        except MissingColumn:
            try:
                tables = _tables(path, files, replace(columns, needs_caption=False, needs_image=False))
            except MissingColumn:
                raise error from None
    table = tables[0] if files == [path] else joined(path, files, tables)
    if not table.names and table.rows:
        raise InputError(f"{path}: no row can be read; {table.rows[0].where} {table.rows[0].problem}")
    if not table.rows:
        raise InputError(f"{path}: holds no rows under the columns {quoted(table.names)}")
    return with_base64_images(path, files, table, columns)


def with_base64_images(path: Path, files: Sequence[Path], table: SourceTable, columns: Columns) -> SourceTable:
    """Return a table with the images that a column holds as base64, written into the cache folder.

    Raises:
        WriteError: An image cannot be written.
    """
    name = _base64_column(table, columns, columns.folder or root_of(path))
    if name is None or not columns.needs_image:
        return table
    store = Store(path, name, columns.cache, files)
    stored = store.images()
    if stored is None:
        contents = (from_base64(as_text(row.cells.get(name))) for row in table.rows)
        stored = [Embedded("", None) if data is None else store.add(data, "") for data in contents]
        store.finish(stored)
    rows = [
        replace(row, cells={**row.cells, name: image})
        if image.file is not None
        else replace(row, problem=row.problem or "its image is no base64")
        for row, image in zip(table.rows, in_rows(stored), strict=True)
    ]
    return replace(table, rows=rows)


def _base64_column(table: SourceTable, columns: Columns, base: Path) -> str | None:
    """Return the column that holds images as base64: the one of the images, or any other where this names no file."""
    asked = IMAGE_COLUMNS if columns.image is None else (columns.image.strip().lower(),)
    usual = find_column(table.names, asked)
    names = [usual, *(table.names if columns.image is None else ())]
    held = next((name for name in names if name is not None and _holds_base64(table, name)), None)
    if held is None or usual in (None, held):
        return held
    return None if any_image(base, (as_text(row.cells.get(usual)) for row in table.rows[:SHOWN])) else held


def _holds_base64(table: SourceTable, name: str) -> bool:
    """Return whether the first cells of a column are images as base64."""
    cells = [cell for row in table.rows[:SHOWN] if isinstance(cell := row.cells.get(name), str) and cell.strip()]
    return 2 * sum(map(is_base64_image, cells)) > len(cells)


def _tables(path: Path, files: Sequence[Path], columns: Columns) -> list[SourceTable]:
    if all(file.suffix.lower() in PARQUET for file in files):
        return read_parquet_files(path, files, columns)
    return [FORMATS.get(file.suffix.lower(), read_separated)(file, columns) for file in files]


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
    root = root_of(path)
    places = [file.relative_to(root) for file in files]
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


def records_of(row: Row, reading: Reading, names: list[str]) -> Iterator[Record]:
    """Yield the records of a row: one for each of its captions and images.

    Args:
        row: The row.
        reading: What the cells hold.
        names: Names of all columns.
    """
    roles = reading.roles
    for item in reading.items(row.cells):
        cells = row.cells
        if item.image is not cells.get(roles.image) or item.caption is not cells.get(roles.caption):
            cells = {**cells, roles.image: item.image, roles.caption: item.caption}
        yield named_record(Row(row.where + item.place, cells, row.problem, row.split), roles, names)


def named_record(row: Row, roles: Roles, names: list[str]) -> Record:
    """Convert a row to a record with the name of an image, and with its file if it lies within the table.

    Args:
        row: The row.
        roles: The columns of the image, the caption and the split.
        names: Names of all columns.
    """
    cells, problem = row.cells, row.problem
    image, caption, split = cells.get(roles.image), cells.get(roles.caption), cells.get(roles.split or "")
    if isinstance(image, dict) and image.get("bytes") is None and isinstance(image.get("path"), str):
        image = image["path"]  # as the library `datasets` stores an image with a path and no bytes
    for name, cell in ((roles.image, image), (roles.caption, caption), (roles.split, split)):
        if isinstance(cell, (dict, list)) and not problem:
            problem = f"column {name!r} holds a list or an object where text is needed"
    return Record(
        where=row.where,
        image=image.name if isinstance(image, Embedded) else as_text(image).strip(),
        path=image.file if isinstance(image, Embedded) else None,
        caption=as_text(caption),
        split=row.split if roles.split is None else as_text(split).strip(),
        extra={name: as_text(cells.get(name)) for name in names if name not in roles and name not in roles.further},
        problem=problem,
    )
