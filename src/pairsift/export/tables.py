"""Cleaned pairs as a table with the columns of their source."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairsift.errors import writing
from pairsift.export.selection import Selection
from pairsift.files import replacing
from pairsift.pairs.source_rows import Cells, Origin
from pairsift.pairs.text import as_text
from pairsift.spreadsheet import harmless

ROWS = 10_000  # written to Parquet at once


def write_table(
    out: Path, origin: Origin, records: Selection, extra: Mapping[str, list[object]], formulas: bool
) -> None:
    """Write the rows of a source with the records to keep. Where the format has no lists, each caption is a row.

    Args:
        out: The file, a `.csv`, `.tsv`, `.jsonl` or `.parquet`.
        origin: The rows of the source.
        records: What becomes of each record.
        extra: New columns, by their names, with a value for each record.
        formulas: Whether text stays as it is that a spreadsheet would run as a formula.

    Raises:
        WriteError: The file cannot be written.
    """
    suffix, schema = out.suffix.lower(), origin.schema
    has_lists = schema is not None and pa.types.is_nested(schema.field(origin.caption).type)
    keeps_lists = suffix == ".jsonl" or (suffix == ".parquet" and has_lists)
    rows = (cells for _, cells in origin.kept_rows(records.keep, records.captions, extra, keeps_lists))
    safe = str if formulas else harmless
    names = [*origin.all_names, *extra]
    with writing(out), replacing(out) as part:
        if suffix == ".jsonl":
            with part.open("w", encoding="utf-8", errors="replace") as stream:
                stream.writelines(json.dumps(cells, ensure_ascii=False, default=str) + "\n" for cells in rows)
        elif suffix == ".parquet":
            number = pa.list_(pa.float64()) if has_lists else pa.float64()
            kinds = dict.fromkeys(names, pa.string()) | dict.fromkeys(extra, number)
            if schema is not None:
                kinds |= dict(zip(schema.names, schema.types, strict=True))
            _write_parquet(part, kinds, rows)
        else:
            with part.open("w", newline="", encoding="utf-8", errors="replace") as stream:
                writer = csv.writer(stream, delimiter="\t" if suffix == ".tsv" else ",")
                writer.writerow(map(safe, names))
                writer.writerows([safe(as_text(cells.get(name))) for name in names] for cells in rows)


def _write_parquet(part: Path, kinds: Mapping[str, pa.DataType], rows: Iterator[Cells]) -> None:
    """Write rows with these types of their columns."""
    full = pa.schema(list(kinds.items()))
    with pq.ParquetWriter(part, full) as writer:
        for batch in iter(lambda: list(islice(rows, ROWS)), []):
            columns = [_cells(batch, name, kind) for name, kind in kinds.items()]
            writer.write_table(pa.table(columns, full))


def _cells(batch: list[Cells], name: str, kind: pa.DataType) -> pa.Array:
    """Return a column of a batch of rows; cells that are not text become text where the column is text."""
    cells = [row.get(name) for row in batch]
    if pa.types.is_string(kind):
        cells = [None if cell is None else as_text(cell) for cell in cells]
    return pa.array(cells, kind)
