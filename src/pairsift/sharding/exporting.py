"""The export of a run on vectors in files: the rows of its tables, some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

from pairsift.arrays import Bools, Reals
from pairsift.errors import InputError, writing
from pairsift.files import make_folder, replacing
from pairsift.pairs.text import one_line
from pairsift.sharding.tables import write_blocks, write_csv_blocks
from pairsift.sharding.vectors import VectorFiles, cells_as_text
from pairsift.spreadsheet import flat_table

FORMATS = (".parquet", ".csv", ".txt")
ROWS = 65_536  # rows that are in memory at once


def export_rows(
    files: VectorFiles, keep: Bools, captions: Mapping[int, str], weight: Reals | None, out: Path, column: str
) -> None:
    """Write the rows to keep, with their columns, as Parquet or CSV, or their ids as text.

    Args:
        files: The source.
        keep: Whether to keep each row, (n,).
        captions: New captions by row.
        weight: Weight of each row, (n,); None for no column of weights.
        out: The file, which must not exist.
        column: Name of the column of weights.

    Raises:
        InputError: The file exists already, has another ending, or its format cannot hold a column.
        WriteError: It cannot be written.
    """
    suffix = out.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"{out}: a run that was made shard by shard is exported as {', '.join(FORMATS)}")
    if out.exists():
        raise InputError(f"{out} exists already: name another file, or move it away")
    make_folder(out.parent)
    if suffix == ".txt":
        with writing(out), replacing(out) as part, part.open("w", encoding="utf-8") as stream:
            for row in np.flatnonzero(keep).tolist():
                stream.write(f"{row}\n" if weight is None else f"{row} {weight[row]}\n")
        return
    blocks = _kept(files, keep, captions, weight, column)
    try:
        if suffix == ".parquet":
            write_blocks(out, blocks)
        else:
            write_csv_blocks(out, blocks, form=flat_table)
    except pa.ArrowException as error:
        raise InputError(f"{out}: a column cannot be written as {suffix}: {one_line(str(error), 200)}") from error


def schema_of(files: VectorFiles) -> pa.Schema:
    """Return the columns of the tables of all parts.

    Raises:
        InputError: Two columns of one name do not fit each other.
    """
    try:
        return pa.unify_schemas([pq.read_schema(part.table) for part in files.parts], promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(f"{files.path}: the columns of its tables do not fit: {one_line(str(error), 200)}") from error


def _kept(
    files: VectorFiles, keep: Bools, captions: Mapping[int, str], weight: Reals | None, column: str
) -> Iterator[pa.Table]:
    """Yield the rows to keep, some at a time; the first table may be empty."""
    start, changed = 0, np.array(sorted(captions), np.int64)
    tables = [part.table for part in files.parts]
    source = pyarrow.dataset.dataset(tables, schema=schema_of(files))
    for batch in source.to_batches(batch_size=ROWS, batch_readahead=1, fragment_readahead=1):
        rows = np.arange(start, start + len(batch))
        start += len(batch)
        table = pa.Table.from_batches([batch])
        if len(changed):
            place = table.column_names.index(files.roles.caption)
            kind, texts = table.field(place).type, cells_as_text(table.column(place))
            if len(np.intersect1d(rows, changed)):
                cells = zip(rows.tolist(), texts.to_pylist(), strict=True)
                texts = pa.array([captions.get(row, cell) for row, cell in cells], texts.type)
            texts = texts.cast(kind) if pa.types.is_string(kind) else texts
            table = table.set_column(place, table.column_names[place], texts)
        if weight is not None:
            table = table.append_column(column, pa.array(weight[rows]))
        yield table.filter(pa.array(keep[rows]))
