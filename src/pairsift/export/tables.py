"""Cleaned pairs as a table with the columns of their source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairsift.errors import writing
from pairsift.export.documents import same_document, same_lines
from pairsift.export.json_text import json_line
from pairsift.export.parquet import write_same_parquet
from pairsift.export.selection import Selection
from pairsift.export.separated import same_rows
from pairsift.export.source_text import OtherLayout
from pairsift.files import replacing
from pairsift.pairs.readers.json_rows import read_json_rows
from pairsift.pairs.readers.parquet import read_parquet
from pairsift.pairs.readers.separated import read_separated
from pairsift.pairs.readers.tables import FORMATS
from pairsift.pairs.source_rows import Cells, Origin
from pairsift.pairs.text import as_text, printable

Extra = Mapping[str, list[object]]


def is_format_of_source(out: Path, origin: Origin) -> bool:
    """Return whether a file has the format of the source, so that what did not change can be copied."""
    kind = out.suffix.lower()
    if origin.file is None:
        return kind == ".parquet" and _have_one_schema(origin.files)
    own = origin.file.suffix.lower()
    if origin.reader in ("coco", "karpathy"):
        return kind == ".json"
    read = FORMATS.get(own, read_separated)
    if read is read_separated:
        return kind == (own if own in (".csv", ".tsv") else _ending(origin.file))
    if read is read_json_rows:
        return kind == ".jsonl" if origin.starts and kind != own else kind == own
    return kind == ".parquet"


def _have_one_schema(files: Sequence[Path]) -> bool:
    """Return whether several files are Parquet files of one schema."""
    are_parquet = bool(files) and all(FORMATS.get(file.suffix.lower()) is read_parquet for file in files)
    return are_parquet and all(pq.read_schema(file).equals(pq.read_schema(files[0])) for file in files[1:])


def _ending(file: Path) -> str:
    """Return the ending for a table whose own ending says nothing, by whether its first line has tabs."""
    with file.open("rb") as stream:
        return ".tsv" if b"\t" in stream.readline() else ".csv"


def write_again(out: Path, origin: Origin, records: Selection, extra: Extra) -> bool:
    """Write a file in the format of its source, in which only that differs from the source which was decided.

    Args:
        out: The file.
        origin: The rows of the source.
        records: What becomes of each record.
        extra: New columns, by their names, with a value for each record.

    Returns:
        Whether the file was written; it was not where the rows of the source cannot be told apart in it.

    Raises:
        InputError: The source cannot be read.
        WriteError: The file cannot be written.
    """
    try:
        if out.suffix.lower() == ".parquet":
            with writing(out), replacing(out) as part:
                write_same_parquet(part, origin, records, extra)
            return True
        parts = _parts(origin, records, extra)
        if parts is None:
            return False
        with writing(out), replacing(out) as part, part.open("wb") as stream:
            stream.writelines(parts)
    except OtherLayout:
        return False
    return True


def _parts(origin: Origin, records: Selection, extra: Extra) -> Iterator[bytes] | None:
    if origin.reader in ("coco", "karpathy"):
        return same_document(origin, records, extra)
    if origin.dialect is not None:
        return same_rows(origin, records, extra)
    return same_lines(origin, records, extra) if origin.starts else same_document(origin, records, extra)


def write_table(out: Path, origin: Origin, records: Selection, extra: Extra) -> None:
    """Write the rows of a source with the records to keep. Where the format has no lists, each caption is a row.

    Args:
        out: The file, a `.csv`, `.tsv`, `.jsonl` or `.parquet`.
        origin: The rows of the source.
        records: What becomes of each record.
        extra: New columns, by their names, with a value for each record.

    Raises:
        WriteError: The file cannot be written.
    """
    suffix = out.suffix.lower()
    kept = origin.kept_rows(records.keep, records.captions, extra, lists=suffix == ".jsonl")
    rows = (row.cells if suffix == ".parquet" else _without_images(row.cells) for row in kept)
    names = [*origin.all_names, *extra]
    with writing(out), replacing(out) as part:
        if suffix == ".parquet":
            cells = list(rows)
            pq.write_table(pa.table({name: _column([row.get(name) for row in cells]) for name in names}), part)
            return
        with part.open("w", newline="\n", encoding="utf-8", errors="replace") as stream:
            if suffix == ".jsonl":
                stream.writelines(json_line(cells) + "\n" for cells in rows)
            else:
                texts = ([as_text(cells.get(name)) for name in names] for cells in rows)
                stream.writelines(_separated(chain([names], texts), "\t" if suffix == ".tsv" else ","))


def _without_images(cells: Cells) -> Cells:
    return {name: without_bytes(cell) for name, cell in cells.items()}


def _separated(rows: Iterable[list[str]], separator: str) -> Iterator[str]:
    """Yield the lines of rows, with a quote around cells that have the separator, a quote or a line end."""
    special = re.compile(f'[\r\n"{separator}]')
    for row in rows:
        cells = ('"' + cell.replace('"', '""') + '"' if special.search(cell) else cell for cell in row)
        yield separator.join(cells) + "\n"


def _column(cells: list[object]) -> pa.Array:
    """Return the cells of a column with the type that they have in common, or as text where they have none."""
    try:
        array = pa.array(cells)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        array = pa.nulls(0)
    if not pa.types.is_null(array.type):
        return array
    return pa.array([None if cell is None else printable(as_text(cell)) for cell in cells], pa.string())


def without_bytes(cell: object) -> object:
    """Return a cell with names in the place of images, None in the place of other bytes, and text of bytes of text."""
    if isinstance(cell, dict):
        is_image = "bytes" in cell and isinstance(cell["bytes"], bytes | None)
        return cell.get("path") if is_image else {name: without_bytes(value) for name, value in cell.items()}
    if isinstance(cell, list):
        return [without_bytes(value) for value in cell]
    if isinstance(cell, bytes):
        try:
            return cell.decode("utf-8")
        except UnicodeDecodeError:
            return None
    return cell
