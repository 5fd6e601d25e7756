"""CSV files that are opened in a spreadsheet: text that is safe there, and decisions that a person wrote into them."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable
from itertools import count
from pathlib import Path

import pyarrow as pa

from pairsift.errors import writing
from pairsift.pairs.text import undecodable

FORMULA = re.compile(r"[=+\-@\t\r]")
CODE_PAGES = (  # of Windows, in which Excel saves CSV files: Western, East Asian, Central European, Cyrillic, and so on
    *("cp1252", "cp932", "cp936", "cp949", "cp950"),
    *("cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874"),
)
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
    """Apply `harmless` to all texts and column names of a table; other values stay unchanged."""
    columns = [
        pa.array([None if value is None else harmless(value) for value in column.to_pylist()], pa.string())
        if pa.types.is_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=[harmless(name) for name in table.column_names])


def original_text(text: str, page: str | None) -> str:
    """Return the text of a cell of a file in a code page, which was read without knowing it."""
    raw = None if page is None else _bytes(text)
    return text if page is None or raw is None else raw.decode(page, "replace")


def code_page(cells: Iterable[tuple[str, str]]) -> str | None:
    """Return the code page in which a spreadsheet wrote cells whose text is known; None where none fits most of them.

    Args:
        cells: The texts of cells as they were read and as they were. A question mark stands for what the code page does
            not have.
    """
    changed = [(raw, known) for text, known in cells if text != known and (raw := _bytes(text)) is not None]
    for page in CODE_PAGES:
        if 2 * sum(raw == known.encode(page, "replace") for raw, known in changed) > len(changed):
            return page
    return None


def _bytes(text: str) -> bytes | None:
    """Return the bytes of a cell that is not UTF-8 and was read by `pairsift.pairs.text.decode`; None for others."""
    try:
        return text.encode("utf-8", "surrogateescape") if undecodable(text) else text.encode("cp1252")
    except UnicodeEncodeError:
        return None


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
