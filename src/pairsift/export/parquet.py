"""Parquet files with fewer rows and other captions: all other columns, their types and the file's metadata stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairsift.export.selection import Selection
from pairsift.export.source_text import OtherLayout
from pairsift.pairs.readers.parquet import BUFFER, IMAGE_ROWS, TEXT_ROWS, are_images, cells_of, is_binary, is_list
from pairsift.pairs.source_rows import Cells, KeptRow, Origin

GROUP_BYTES = 64 << 20  # of a row group in memory; row groups of the source that are smaller stay as they are


def write_same_parquet(part: Path, origin: Origin, records: Selection, extra: Mapping[str, list[object]]) -> None:
    """Write the rows of Parquet files of one schema with the records to keep, a row group at a time.

    Args:
        part: The file to write.
        origin: The rows of the source.
        records: What becomes of each record.
        extra: New columns, by their names, with a value for each record.

    Raises:
        OtherLayout: A column cannot hold what is left of a row.
    """
    with pq.ParquetFile(origin.files[0]) as file:
        schema, compression = _schema(file.schema_arrow, origin, extra), _compression(file)
    n_rows = IMAGE_ROWS if any(are_images(kind) or is_binary(kind) for kind in schema.types) else TEXT_ROWS
    rows = _Rows(origin, records, extra, schema)
    with pq.ParquetWriter(part, schema, compression=compression, write_batch_size=n_rows) as writer:
        for path in origin.files:
            with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
                for group in _groups(file, rows, n_rows):
                    writer.write_table(group)


def _schema(schema: pa.Schema, origin: Origin, extra: Mapping[str, list[object]]) -> pa.Schema:
    """Return the schema of the source, with new columns: numbers, lists of them beside lists of captions, or text."""
    has_lists = is_list(schema.types[origin.names.index(origin.caption)])
    for name in origin.all_names[len(origin.names) :]:
        schema = schema.append(pa.field(name, pa.string()))
    for name in extra:
        schema = schema.append(pa.field(name, pa.list_(pa.float64()) if has_lists else pa.float64()))
    return schema


def _compression(file: pq.ParquetFile) -> str:
    """Return the compression of the first column of a file."""
    if not file.metadata.num_row_groups or not file.metadata.num_columns:
        return "snappy"
    name = file.metadata.row_group(0).column(0).compression.lower()
    return "none" if name == "uncompressed" else name


def _groups(file: pq.ParquetFile, rows: _Rows, n_rows: int) -> Iterator[pa.Table]:
    """Yield the row groups to write: those of the source, cut where they would be large in memory.

    Args:
        file: The source.
        rows: What becomes of its rows.
        n_rows: Rows that are read at once.
    """
    for group in range(file.num_row_groups):
        batches: list[pa.RecordBatch] = []
        size = 0
        for batch in file.iter_batches(n_rows, row_groups=[group]):
            batches.append(rows.kept(batch))
            size += batches[-1].nbytes
            if size >= GROUP_BYTES:
                yield pa.Table.from_batches(batches)
                batches, size = [], 0
        if any(part.num_rows for part in batches):
            yield pa.Table.from_batches(batches)


class _Rows:
    """What becomes of the rows of a Parquet file, a batch after the other."""

    def __init__(
        self, origin: Origin, records: Selection, extra: Mapping[str, list[object]], schema: pa.Schema
    ) -> None:
        self._origin, self._records, self._extra, self._schema = origin, records, extra, schema
        self._row = self._record = 0  # of the next batch

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of the next batch with records to keep, with their changes and new columns."""
        names, first = self._origin.names, self._row
        kept = [row for cells in self._cells(batch) for row in self._kept_of(cells)]
        columns = [
            _changed(column, [row.row - first for row in kept], [row.changes for row in kept], name)
            for name, column in zip(names, batch.columns, strict=True)
        ]
        new = self._schema.names[len(names) :]
        columns += [pa.array([row.changes[name] for row in kept], self._schema.field(name).type) for name in new]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _cells(self, batch: pa.RecordBatch) -> Iterator[Cells]:
        """Yield the cells of each row that may change: the captions, the split, and images where there are several."""
        names, roles = self._origin.names, self._origin.reading.roles
        has_several = is_list(self._schema.field(names.index(roles.image)).type) or self._origin.reading.images
        changing = (roles.caption, *roles.further, self._origin.split_column, *[roles.image] * has_several)
        few = [name for name in names if name in changing]
        columns = [cells_of(batch.column(names.index(name))) for name in few]
        return (dict(zip(few, cells, strict=True)) for cells in zip(*columns, strict=True))

    def _kept_of(self, cells: Cells) -> list[KeptRow]:
        keep, captions = self._records.keep, self._records.captions
        kept = list(self._origin.kept_of(self._row, self._record, cells, keep, captions, self._extra, lists=True))
        self._row += 1
        self._record += self._origin.n_records(cells)
        return kept


def _changed(column: pa.Array, rows: list[int], changes: list[Cells], name: str) -> pa.Array:
    """Return these rows of a column, with the changed cells."""
    new = [change[name] for change in changes if name in change]
    if not new:
        return column.take(pa.array(rows, pa.int64()))
    places = iter(range(len(column), len(column) + len(new)))
    chosen = [next(places) if name in change else row for row, change in zip(rows, changes, strict=True)]
    try:
        cells = pa.array(new, column.type)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise OtherLayout from error
    return pa.concat_arrays([column, cells]).take(pa.array(chosen, pa.int64()))
