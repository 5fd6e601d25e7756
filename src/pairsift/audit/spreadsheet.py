"""Text for CSV files that people open in a spreadsheet."""

from __future__ import annotations

import re

import pyarrow as pa

FORMULA = re.compile(r"[=+\-@\t\r]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def harmless(text: str) -> str:
    """Return text that a spreadsheet takes for text: an apostrophe goes before what it would run as a formula.

    As OWASP recommends against CSV injection, that is text which starts with =, +, -, @, a tab or a carriage return.
    Plain numbers, such as -3.5, stay as they are.
    """
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text


def harmless_table(table: pa.Table) -> pa.Table:
    """Return a table with every text and every column's name made harmless; other columns stay as they are."""
    columns = [
        pa.array([None if one is None else harmless(one) for one in column.to_pylist()], pa.string())
        if pa.types.is_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=[harmless(name) for name in table.column_names])
