"""Parquet files for the `table` reader: text cells, lists of captions, and images as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairsift.errors import InputError
from pairsift.pairs.embedded import Embedded, Store, image_suffix
from pairsift.pairs.readers.rows import Row, SourceTable, pick_columns, unique
from pairsift.pairs.records import Columns
from pairsift.pairs.text import as_text, one_line

IMAGE_ROWS = 16  # rows per batch if the rows contain images
TEXT_ROWS = 4096
PEEK = 8  # rows that are checked to decide whether bytes are images or text
BUFFER = 1 << 20  # bytes; a column is streamed in parts of this size instead of being read as a whole


@dataclass(frozen=True)
class Layout:
    """The columns of a file, and which of them are read.

    Attributes:
        names: Names of all columns, made unique.
        columns: Columns that are read. Columns of bytes that are neither images nor text are left out.
        image: The image column; an empty string if there is none.
        embedded: Whether the image column contains images instead of their names.
    """

    names: list[str]
    columns: list[str]
    image: str
    embedded: bool


def read_parquet(path: Path, columns: Columns) -> SourceTable:
    """Read the rows of a Parquet file.

    Images that the file contains are written into the cache folder, a few rows at a time.

    Raises:
        InputError: The file is not a readable Parquet file, has no image or caption column, or its images cannot be
            written.
    """
    try:
        with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:  # otherwise it keeps all row groups
            layout = layout_of(path, file, columns)
            rows = list(rows_of(path, file, layout, columns.cache))
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: is not a readable Parquet file: {one_line(str(error), 200)}") from error
    return SourceTable(layout.columns, rows)


def layout_of(path: Path, file: pq.ParquetFile, columns: Columns) -> Layout:
    """Determine the image column and the columns to read.

    Raises:
        InputError: There is no image or caption column.
    """
    schema = file.schema_arrow
    names = unique(schema.names)
    roles = pick_columns(path, names, columns)
    image = roles.image
    cells_at = first_bytes(file, [position for position, kind in enumerate(schema.types) if is_binary(kind)])
    embedded = bool(image) and (
        has_bytes(schema.types[names.index(image)]) or any(map(image_suffix, cells_at.get(names.index(image), [])))
    )
    if embedded and not columns.needs_image:
        roles, embedded = roles._replace(image=""), False
    column_names = [
        name
        for position, (name, kind) in enumerate(zip(names, schema.types, strict=True))
        if name in roles or not (has_bytes(kind) or not all(map(is_text, cells_at.get(position, []))))
    ]
    return Layout(names, column_names, roles.image, embedded)


def first_bytes(file: pq.ParquetFile, places: list[int]) -> dict[int, list[bytes]]:
    """Return the first cells of the columns of bytes at these positions, by position."""
    cells_at: dict[int, list[bytes]] = {}
    for position in places:
        batch = next(file.iter_batches(PEEK, columns=[file.schema_arrow.names[position]]), None)
        cells_at[position] = [] if batch is None else [cell for cell in batch.column(0).to_pylist() if cell is not None]
    return cells_at


def is_binary(kind: pa.DataType) -> bool:
    """Return whether the cells of a column are bytes."""
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def has_bytes(kind: pa.DataType) -> bool:
    """Return whether the cells of a column are images as the library `datasets` stores them: bytes and a path."""
    return pa.types.is_struct(kind) and any(field.name == "bytes" and is_binary(field.type) for field in kind)


def is_text(cell: bytes) -> bool:
    """Return whether bytes are text in UTF-8 without zero bytes."""
    try:
        return "\0" not in cell.decode("utf-8")
    except UnicodeDecodeError:
        return False


def rows_of(path: Path, file: pq.ParquetFile, layout: Layout, cache: Path | None) -> Iterator[Row]:
    """Yield the rows as they are in the file, with images as files of the cache folder."""
    images = images_of(file, layout, Store(path, layout.image, cache)) if layout.embedded else []
    stored = dict(zip(layout.names, file.schema_arrow.names, strict=True))
    columns = [stored[name] for name in layout.columns if name != layout.image or not layout.embedded]
    # names that are equal or contain a dot may mean several columns, which are then all read
    is_told = len(set(stored.values())) == len(stored) and not any("." in name for name in stored.values())
    batches = file.iter_batches(TEXT_ROWS, columns=columns) if is_told else file.iter_batches(IMAGE_ROWS)
    number = 0
    for batch in batches:
        names = [name for name in layout.names if stored[name] in batch.schema.names]
        cells = {
            name: cells_of(column) for name, column in zip(names, batch.columns, strict=True) if name in layout.columns
        }
        for values in zip(*cells.values(), strict=True):
            row = dict(zip(cells, values, strict=True))
            if layout.embedded:
                image = images[number]
                row[layout.image] = image if image.file else image.name
            number += 1
            yield Row(f"{path.name} row {number}", row)


def images_of(file: pq.ParquetFile, layout: Layout, store: Store) -> list[Embedded]:
    """Return the image of each row, written into the store or present there from an earlier call."""
    images = store.images()
    if images is not None:
        return images
    images = []
    column = file.schema_arrow.names[layout.names.index(layout.image)]
    for batch in file.iter_batches(IMAGE_ROWS, columns=[column]):
        for cell in batch.column(0).to_pylist():
            data, path = (cell.get("bytes"), cell.get("path")) if isinstance(cell, dict) else (cell, None)
            name = as_text(path)
            if isinstance(data, bytes) and data:
                images.append(store.add(data, name or f"row {len(images) + 1}"))
            else:
                images.append(Embedded(name, None))
    if any(image.file for image in images):
        store.finish(images)
    return images


def cells_of(column: pa.Array) -> list[object]:
    """Return the cells of a column.

    Text is read as bytes, because otherwise a single invalid cell makes the whole column unreadable.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return [as_text(cell) if isinstance(cell, bytes) else cell for cell in column.to_pylist()]
