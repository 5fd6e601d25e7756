"""Decisions from a table that people or scripts wrote."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from pairsift.errors import InputError
from pairsift.pairs.readers.rows import MissingColumn, Row, SourceTable, find_column
from pairsift.pairs.readers.separated import read_separated
from pairsift.pairs.readers.tables import FORMATS
from pairsift.pairs.records import Columns
from pairsift.pairs.same_pairs import numbered
from pairsift.pairs.text import UNREADABLE, as_text, quoted, undecodable
from pairsift.review.code_pages import code_page, original_text
from pairsift.review.decisions import Decision, Decisions
from pairsift.spreadsheet import harmless, plain
from pairsift.table import read_pairs

CELLS = ["pair", "given_caption", "suggested_from_pair"]
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
    judged = {row["pair"]: row for row in table.select(CELLS).to_pylist()}
    page = code_page(_known_cells(rows, judged))
    return [decision for row in rows.rows if (decision := _decision(row, rows.names, judged, page)) is not None]


def decisions_of_run(folder: Path, table: pa.Table) -> tuple[dict[str, list[Decision]], int]:
    """Return the decisions of another run, as decisions on the pairs of this one.

    A pair is the same if an image of the same name has the same caption; several such pairs are taken in order.

    Args:
        folder: The folder of the other run.
        table: This run's table of judged pairs.

    Returns:
        The decisions by reviewer, and the number of decisions on pairs that this run does not have.

    Raises:
        InputError: The other run has no judged pairs, or its decisions cannot be read.
    """
    theirs = read_pairs(folder)
    ids = theirs["pair"].to_numpy()
    ours = _keys(table)
    pair_of = {pair: ours[key] for key, pair in _keys(theirs).items() if key in ours}
    found: dict[str, list[Decision]] = {}
    rows = Decisions(folder, ids).table().to_pylist()
    for row in rows:
        if (pair := pair_of.get(row["pair"])) is not None:
            source = pair_of.get(row["from_pair"])
            decision = Decision(pair, row["decision"], row["new_caption"], source, row["reason"])
            found.setdefault(row["reviewer"], []).append(decision)
    return found, len(rows) - sum(map(len, found.values()))


def _keys(table: pa.Table) -> dict[Hashable, int]:
    """Return the id of each pair by its image and caption, and how often these come before."""
    rows = table.select(["image", "given_caption", "pair"]).sort_by("pair").to_pydict()
    return dict(zip(numbered(zip(rows["image"], rows["given_caption"], strict=True)), rows["pair"], strict=True))


def _known_cells(table: SourceTable, judged: Mapping[Any, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the captions in a copy of our table as they were read, and as we wrote them."""
    pair, given = (find_column(table.names, (name,)) for name in ("pair", "given_caption"))
    if pair is None or given is None:
        return
    for row in table.rows:
        text = as_text(row.cells.get(pair)).strip()
        if text.isdecimal() and int(text) in judged:
            yield as_text(row.cells.get(given)), harmless(judged[int(text)]["given_caption"])


def _decision(row: Row, names: list[str], judged: Mapping[Any, Mapping[str, Any]], page: str | None) -> Decision | None:
    """Return the decision of a row, or None for a row without one.

    Args:
        row: The row.
        names: Names of all columns.
        judged: Rows of the run's table by the id of the pair.
        page: Code page of text that is not UTF-8, if it is known.

    Raises:
        InputError: The row cannot be used.
    """
    if row.problem:
        raise InputError(f"{row.where}: {row.problem}")

    def cell(*columns: str) -> str:
        name = find_column(names, columns)
        return "" if name is None else original_text(as_text(row.cells.get(name)), page).strip()

    choice, caption, reason = cell("decision").lower(), plain(cell("new_caption")), cell("reason").lower() or None
    if not choice:
        return None
    decision = Decision(_id(row, cell("pair")), choice, reason=reason)  # type: ignore[arg-type]
    if choice != "replace":
        return decision
    if undecodable(caption):
        raise InputError(f"{row.where}: new_caption {UNREADABLE}")
    source = _id(row, cell("from_pair")) if cell("from_pair") else None
    if not caption and source is None:
        source = judged.get(decision.pair, {}).get("suggested_from_pair")
    if not caption:
        caption = judged.get(source, {}).get("given_caption") or ""
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
