"""Decisions from a table that people or scripts wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from pairsift.audit.decisions import Decision
from pairsift.audit.table import PairRows
from pairsift.errors import InputError
from pairsift.pairs.readers.rows import MissingColumn, Row, find_column
from pairsift.pairs.readers.tables import FORMATS, read_separated
from pairsift.pairs.records import Columns, as_text, quoted

NEEDED = "decisions need the columns pair and decision, and may have new_caption, from_pair and reason"


def read_decisions(path: Path, table: pa.Table) -> list[Decision]:
    """Read decisions from a CSV, TSV, JSON lines or Parquet file.

    The file has the columns `pair` and `decision` (`keep`, `drop`, `replace` or `clear`; a row without one is left
    out), and may have `new_caption`, `from_pair` and `reason`. A copy of `suspects.csv` with a column `decision` is one
    of these. Where `replace` has no new caption, it is the caption of `from_pair`, or else the caption that the run
    suggests.

    Args:
        path: The file.
        table: The run's table of judged pairs.

    Raises:
        InputError: The file cannot be read, lacks a column, or has a row that cannot be used; the message names it.
    """
    if not path.is_file():
        raise InputError(f"there is no file {path}: give a table with the columns pair and decision")
    try:
        rows = FORMATS.get(path.suffix.lower(), read_separated)(path, Columns("pair", "decision"))
    except MissingColumn as error:
        raise InputError(f"{path}: has the columns {quoted(error.names)}; {NEEDED}") from None
    if missing := {"pair", "decision"} - {name.strip().lower() for name in rows.names}:
        raise InputError(f"{path}: has no column {min(missing)}; {NEEDED}")
    captions = _Captions(table)
    return [decision for row in rows.rows if (decision := _decision(row, rows.names, captions)) is not None]


class _Captions:
    """The given captions and the suggestions of a table of judged pairs, by pair."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._rows = PairRows(table["pair"].to_numpy())

    def cell(self, pair: int, column: str) -> Any:
        """Return a cell of a pair's row; None where the run has no such pair."""
        row = int(self._rows.find([pair])[0])
        return None if row < 0 else self._table[column][row].as_py()


def _decision(row: Row, names: list[str], captions: _Captions) -> Decision | None:
    """Return the decision of a row, or None for a row without one.

    Raises:
        InputError: The row cannot be used.
    """
    if row.problem:
        raise InputError(f"{row.where}: {row.problem}")

    def cell(*columns: str) -> str:
        name = find_column(names, columns)
        return "" if name is None else as_text(row.cells.get(name)).strip()

    choice, caption, reason = cell("decision").lower(), cell("new_caption"), cell("reason").lower() or None
    if not choice:
        return None
    decision = Decision(_id(row, cell("pair")), choice, reason=reason)  # type: ignore[arg-type]
    if choice != "replace":
        return decision
    source = _id(row, cell("from_pair")) if cell("from_pair") else None
    if not caption and source is None:
        source = captions.cell(decision.pair, "suggested_from_pair")
    if not caption and source is not None:
        caption = captions.cell(source, "given_caption") or ""
    if not caption:
        raise InputError(f"{row.where}: replace has no new_caption, and the run suggests none for pair {decision.pair}")
    return replace(decision, caption=caption, from_pair=source)


def _id(row: Row, text: str) -> int:
    """Return the id of a pair.

    Raises:
        InputError: The text is no whole number.
    """
    try:
        return int(text.removesuffix(".0"))
    except ValueError:
        raise InputError(f"{row.where}: {text!r} is not the id of a pair: ids are whole numbers") from None
