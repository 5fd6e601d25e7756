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


def write_table(out: Path, origin: Origin, records: Selection, weight: str | None, formulas: bool) -> None:
    """Write the rows of a source with the records to keep. Where the format has no lists, each caption is a row.

    Args:
        out: The file, a `.csv`, `.tsv`, `.jsonl` or `.parquet`.
        origin: The rows of the source.
        records: What becomes of each record.
        weight: Name of a column for the weights; None for none.
        formulas: Whether text stays as it is that a spreadsheet would run as a formula.

    Raises:
        WriteError: The file cannot be written.
    """
    extra: dict[str, list[object]] = {} if weight is None else {weight: records.weight.tolist()}
    keeps_lists = out.suffix.lower() == ".jsonl" or (out.suffix.lower() == ".parquet" and _has_lists(origin))
    if keeps_lists:
        rows = origin.rewritten(records.keep, records.captions, extra)
    else:
        rows = _single_rows(origin, records, extra)
    safe = str if formulas else harmless
    names = [*origin.all_names, *extra]
    with writing(out), replacing(out) as part:
        if out.suffix.lower() == ".jsonl":
            with part.open("w", encoding="utf-8", errors="replace") as stream:
                stream.writelines(json.dumps(cells, ensure_ascii=False, default=str) + "\n" for cells in rows)
        elif out.suffix.lower() == ".parquet":
            number = pa.list_(pa.float64()) if _has_lists(origin) else pa.float64()
            kinds = dict.fromkeys(names, pa.string()) | dict.fromkeys(extra, number)
            _write_parquet(part, kinds | _kinds_of(origin), rows)
        else:
            with part.open("w", newline="", encoding="utf-8", errors="replace") as stream:
                writer = csv.writer(stream, delimiter="\t" if out.suffix.lower() == ".tsv" else ",")
                writer.writerow(map(safe, names))
                writer.writerows([safe(as_text(cells.get(name))) for name in names] for cells in rows)


def _kinds_of(origin: Origin) -> dict[str, pa.DataType]:
    """Return the types of the columns of a Parquet file, and none of another source, whose cells become text."""
    return {} if origin.schema is None else dict(zip(origin.schema.names, origin.schema.types, strict=True))


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


def _has_lists(origin: Origin) -> bool:
    """Return whether the type of the caption column is a list of captions."""
    kind = None if origin.schema is None else origin.schema.field(origin.caption).type
    return kind is not None and any(
        is_kind(kind) for is_kind in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    )


def _single_rows(origin: Origin, records: Selection, extra: Mapping[str, list[object]]) -> Iterator[Cells]:
    """Yield a row for each record that is kept."""
    for record, cells in origin.records(records.keep, records.captions):
        yield {**cells, **{name: values[record] for name, values in extra.items()}}
