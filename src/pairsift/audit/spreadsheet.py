"""Safe text for CSV files that are opened in a spreadsheet."""

from __future__ import annotations

import re

import pyarrow as pa

FORMULA = re.compile(r"[=+\-@\t\r]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def harmless(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would run as a formula.

    Following the OWASP recommendation against CSV injection, this is text that starts with =, +, -, @, a tab or a
    carriage return. Plain numbers, such as -3.5, stay unchanged.
    """
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text


def harmless_table(table: pa.Table) -> pa.Table:
    """Apply `harmless` to all texts and column names of a table; other values stay unchanged."""
    columns = [
        pa.array([None if value is None else harmless(value) for value in column.to_pylist()], pa.string())
        if pa.types.is_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=[harmless(name) for name in table.column_names])
