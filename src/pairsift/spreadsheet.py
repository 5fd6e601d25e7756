"""CSV files that are opened in a spreadsheet: text that is safe there, and decisions that a person wrote into them."""

from __future__ import annotations

import csv
import json
import re
import sys
from itertools import count
from pathlib import Path

import pyarrow as pa

from pairsift.errors import writing

FORMULA = re.compile(r"[=+\-@\t\r]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def harmless(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would run as a formula.

    Following the OWASP recommendation against CSV injection, this is text that starts with =, +, -, @, a tab or a
    carriage return. Plain numbers, such as -3.5, stay unchanged.
    """
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text


def plain(text: str) -> str:
    """Take off the apostrophe that `harmless` puts before a text."""
    return text[1:] if text.startswith("'") and harmless(text[1:]) == text else text


def harmless_table(table: pa.Table) -> pa.Table:
    """Apply `harmless` to all texts and column names of a table, and write lists and objects as JSON.

    Other values stay unchanged.
    """
    columns = [_harmless_column(column) for column in flat_table(table).columns]
    return pa.table(columns, names=[harmless(name) for name in table.column_names])


def flat_table(table: pa.Table) -> pa.Table:
    """Write the lists and objects of a table as JSON; other values stay unchanged."""
    for place, column in enumerate(table.columns):
        if pa.types.is_nested(_kind(column)):
            texts = [
                None if value is None else json.dumps(value, ensure_ascii=False, default=str)
                for value in column.to_pylist()
            ]
            table = table.set_column(place, table.column_names[place], pa.array(texts, pa.string()))
    return table


def _kind(column: pa.ChunkedArray) -> pa.DataType:
    """Return the type of a column's values."""
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def _harmless_column(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    kind, types = _kind(column), pa.types
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        return column
    return pa.array([None if text is None else harmless(text) for text in column.to_pylist()], pa.string())


def is_filled_in(path: Path) -> bool:
    """Return whether a person has written decisions into a CSV file; True for what cannot be read as one."""
    if not path.exists():
        return False
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            head = stream.readline()
            stream.seek(0)
            rows = csv.DictReader(stream, delimiter=max(",;\t", key=head.count))
            names = [name for name in rows.fieldnames or () if name.strip().lower() == "decision"]
            return any((row[name] or "").strip() for row in rows for name in names)
    except (OSError, ValueError, csv.Error):
        return True


def keep_filled_in(path: Path) -> None:
    """Rename a table that a person has written decisions into, before it is written anew, and say so."""
    if not is_filled_in(path):
        return
    names = (path.with_name(f"{path.stem}.{number}{path.suffix}") for number in count(1))
    place = next(name for name in names if not name.exists())
    with writing(path):
        path.rename(place)
    print(
        f"{path} has decisions of yours: it is kept as {place}; record them with: "
        f"pairsift decide {path.parent} --from {place}",
        file=sys.stderr,
        flush=True,
    )
