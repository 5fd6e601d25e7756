"""Parquet files for the `table` reader: text cells, lists of captions, and images as bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pairsift.errors import InputError
from pairsift.pairs.embedded import Embedded, Store, holds_image, image_suffix, in_rows
from pairsift.pairs.image_files import any_image
from pairsift.pairs.readers.rows import IMAGE_COLUMNS, Row, SourceTable, find_column, pick_columns, unique
from pairsift.pairs.records import Columns
from pairsift.pairs.text import as_text, one_line
from pairsift.source_path import root_of

IMAGE_ROWS = 16  # rows per batch if the rows contain images
TEXT_ROWS = 4096
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
    """Read the rows of a Parquet file as `read_parquet_files` does."""
    return read_parquet_files(path, [path], columns)[0]


def read_parquet_files(source: Path, files: Sequence[Path], columns: Columns) -> list[SourceTable]:
    """Read the rows of each Parquet file of a source.

    Images that the files contain are written into the cache folder, a few rows at a time.

    Raises:
        InputError: A file is not a readable Parquet file, has no image or caption column, or its images cannot be
            written.
    """
    layouts, stored = [], None
    for path in files:
        with opened(path) as file:
            layouts.append(layout_of(path, file, columns, columns.folder or root_of(source)))
    if any(layout.embedded for layout in layouts):
        store = Store(source, layouts[0].image, columns.cache, files)
        stored = store.images()
    images: list[Embedded | list[Embedded]] = []
    tables = []
    for path, layout in zip(files, layouts, strict=True):
        with opened(path) as file:
            first = len(images)
            if not layout.embedded:
                of_rows = None
            elif stored is not None:
                of_rows = stored[first : first + file.metadata.num_rows]
            else:
                of_rows = images_of(file, layout, store)
            images += of_rows or ()
            rows = list(rows_of(path.name, file, layout, of_rows))
        left_out = tuple(name for name in layout.names if name not in layout.columns)
        tables.append(SourceTable(layout.columns, rows, left_out=left_out))
    if stored is None and any(image.file for image in in_rows(images)):
        store.finish(images)
    return tables


@contextmanager
def opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file for reading in parts.

    Raises:
        InputError: The file is not a readable Parquet file.
    """
    try:
        with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:  # otherwise it keeps all row groups
            yield file
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: is not a readable Parquet file: {one_line(str(error), 200)}") from error


def layout_of(path: Path, file: pq.ParquetFile, columns: Columns, base: Path) -> Layout:
    """Determine the image column and the columns to read; relative names of images start from the base.

    Raises:
        InputError: There is no image or caption column.
    """
    schema = file.schema_arrow
    names = unique(schema.names)
    if columns.image is None and columns.needs_image:
        usual = find_column(names, IMAGE_COLUMNS)
        held = [name for position, name in enumerate(names) if begins_with_images(file, position)]
        if held and usual not in held and (usual is None or not names_files(file, names.index(usual), base)):
            columns = replace(columns, image=held[0])
    roles = pick_columns(path, names, columns)
    image = roles.image
    embedded = bool(image) and holds_images(file, names.index(image))
    if embedded and not columns.needs_image:
        roles, embedded = roles._replace(image=""), False
    column_names = [
        name
        for position, (name, kind) in enumerate(zip(names, schema.types, strict=True))
        if name in roles
        or not (are_images(kind) or (is_binary(kind) and not all(map(is_text, bytes_of(file, position)))))
    ]
    return Layout(names, column_names, roles.image, embedded)


def names_files(file: pq.ParquetFile, position: int, base: Path) -> bool:
    """Return whether any of a column's first cells names a file."""
    for batch in file.iter_batches(IMAGE_ROWS, columns=[file.schema_arrow.names[position]]):
        return any_image(base, map(as_text, cells_of(column_at(file, batch, position))))
    return False


def begins_with_images(file: pq.ParquetFile, position: int) -> bool:
    """Return whether a column contains images, by its type or by its first cells."""
    kind = file.schema_arrow.types[position]
    return are_images(kind) or (
        is_binary(kind) and any(map(image_suffix, islice(bytes_of(file, position), IMAGE_ROWS)))
    )


def holds_images(file: pq.ParquetFile, position: int) -> bool:
    """Return whether a column contains images instead of their names.

    In the first rows, images may be missing, or other bytes such as an error page may be in their place. A column
    without the beginning of an image has images of an unknown format if most of its cells are no text.
    """
    kind = file.schema_arrow.types[position]
    if not is_binary(kind):
        return are_images(kind)
    texts = others = 0
    for cell in bytes_of(file, position):
        if image_suffix(cell):
            return True
        texts, others = texts + is_text(cell), others + (not is_text(cell))
    return others > texts


def bytes_of(file: pq.ParquetFile, position: int) -> Iterator[bytes]:
    """Yield the cells of a column of bytes that are not empty."""
    for batch in file.iter_batches(IMAGE_ROWS, columns=[file.schema_arrow.names[position]]):
        yield from filter(None, column_at(file, batch, position).to_pylist())


def column_at(file: pq.ParquetFile, batch: pa.RecordBatch, position: int) -> pa.Array:
    """Return a column of a file from a batch that was read by the column's name, which others may have too."""
    names = file.schema_arrow.names
    same = [place for place, name in enumerate(batch.schema.names) if name == names[position]]
    return batch.column(same[names[:position].count(names[position])])


def is_binary(kind: pa.DataType) -> bool:
    """Return whether the cells of a column are bytes."""
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def is_list(kind: pa.DataType) -> bool:
    """Return whether the cells of a column are lists."""
    types = pa.types
    is_view = types.is_list_view(kind) or types.is_large_list_view(kind)
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or is_view)


def has_bytes(kind: pa.DataType) -> bool:
    """Return whether the cells of a column are images as the library `datasets` stores them: bytes and a path."""
    return pa.types.is_struct(kind) and any(field.name == "bytes" and is_binary(field.type) for field in kind)


def are_images(kind: pa.DataType) -> bool:
    """Return whether the cells of a column are images as the library `datasets` stores them, or lists of them."""
    return has_bytes(kind) or (is_list(kind) and (has_bytes(kind.value_type) or is_binary(kind.value_type)))


def is_text(cell: bytes) -> bool:
    """Return whether bytes are text in UTF-8 without zero bytes."""
    try:
        return "\0" not in cell.decode("utf-8")
    except UnicodeDecodeError:
        return False


def rows_of(
    name: str, file: pq.ParquetFile, layout: Layout, images: Sequence[Embedded | list[Embedded]] | None
) -> Iterator[Row]:
    """Yield the rows as they are in the file of this name.

    Args:
        name: Name of the file.
        file: The file.
        layout: Its columns.
        images: Image of each row; None where the column has names.
    """
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
            row, problem = dict(zip(cells, values, strict=True)), ""
            if images is not None:
                image = images[number]
                row[layout.image] = list(map(as_cell, image)) if isinstance(image, list) else as_cell(image)
                problem = "" if isinstance(image, list) or image.name else "holds no image"
            number += 1
            yield Row(f"{name} row {number}", row, problem)


def as_cell(image: Embedded) -> object:
    """Return an image within a file, or its name where it has no bytes."""
    return image if image.file else image.name


def images_of(file: pq.ParquetFile, layout: Layout, store: Store) -> list[Embedded | list[Embedded]]:
    """Return the image of each row, or its images, written into the store."""
    images: list[Embedded | list[Embedded]] = []
    position = layout.names.index(layout.image)
    for batch in file.iter_batches(IMAGE_ROWS, columns=[file.schema_arrow.names[position]]):
        for cell in column_at(file, batch, position).to_pylist():
            if isinstance(cell, list):
                images.append([stored_image(store, part) for part in cell])
            else:
                images.append(stored_image(store, cell))
    return images


def stored_image(store: Store, cell: object) -> Embedded:
    """Return the image of a cell, written into the store."""
    data, path = (cell.get("bytes"), cell.get("path")) if isinstance(cell, dict) else (cell, None)
    name = as_text(path)
    if not isinstance(data, bytes) or not data:
        return Embedded(name, None)
    if is_text(data) and not holds_image(data):
        return Embedded("", None)
    return store.add(data, name)


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
    return [as_text(cell) if isinstance(cell, bytes) else cell for cell in plain_cells(column)]


def plain_cells(column: pa.Array) -> list[object]:
    """Return the cells of a column as Python has them; times that Python has no type for become text.

    Nanoseconds would be of pandas' types where that is installed, or lost.
    """
    try:
        exact = microseconds(column.type)
        return list((column if exact == column.type else column.cast(exact)).to_pylist())  # no cast loses nanoseconds
    except (ValueError, OverflowError, pa.ArrowException):
        return [plain_cell(cell) for cell in column]


def microseconds(kind: pa.DataType) -> pa.DataType:
    """Return a type with microseconds in the place of nanoseconds, also within lists and structs."""
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if pa.types.is_list(kind) and (inner := microseconds(kind.value_type)) != kind.value_type:
        return pa.list_(inner)
    if pa.types.is_struct(kind):
        fields = [(field.name, microseconds(field.type)) for field in kind]
        return kind if [inner for _, inner in fields] == [field.type for field in kind] else pa.struct(fields)
    return pa.time64("us") if kind == pa.time64("ns") else kind


def plain_cell(cell: pa.Scalar) -> object:
    """Return a cell as Python has it, with times as text."""
    kind = cell.type
    if not cell.is_valid:
        return None
    if isinstance(cell, pa.StructScalar):
        return {name: plain_cell(value) for name, value in cell.items()}
    if isinstance(cell, pa.ListScalar):
        return [plain_cell(value) for value in cell]
    if pa.types.is_timestamp(kind):
        return str(np.datetime64(cell.value, kind.unit)).replace("T", " ") + "Z" * (kind.tz is not None)
    if pa.types.is_duration(kind):
        return str(np.timedelta64(cell.value, kind.unit))
    return cell.cast(pa.string()).as_py() if pa.types.is_temporal(kind) else cell.as_py()
