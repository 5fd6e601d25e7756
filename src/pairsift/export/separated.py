"""CSV and TSV files of which only the rows are written anew that change, in the way in which the file was written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pairsift.export.selection import Selection
from pairsift.export.source_text import LINE_ENDS, OtherLayout, SourceText, end_of_row, kept_lines, read_lines
from pairsift.pairs.readers.dialects import Dialect
from pairsift.pairs.readers.rows import unique
from pairsift.pairs.source_rows import KeptRow, Origin
from pairsift.pairs.text import as_text


def same_rows(origin: Origin, records: Selection, extra: Mapping[str, list[object]]) -> Iterator[bytes] | None:
    """Return the bytes of a CSV or TSV file with the records to keep; None where its lines cannot be told apart.

    The line ends, the separator, the quotes, the encoding and the names of the columns are those of the source, and
    rows in which nothing changes are copied.

    Args:
        origin: The rows of the file.
        records: What becomes of each record.
        extra: New columns, by their names, with a value for each record.
    """
    assert origin.file is not None and origin.dialect is not None
    source = read_lines(origin.file)
    if not origin.starts or len(source.lines) != len(source.texts):
        return None
    rows = _Rows(origin, source)
    kept = list(origin.kept_rows(records.keep, records.captions, extra, lists=True))
    written: dict[int, list[bytes | None]] = {row.row: [] for row in kept}
    names = [name for name in (*origin.all_names, *extra) if name not in origin.names]
    dialect = origin.dialect
    for row in kept:
        written[row.row].append(source.encode(rows.edited(row, names, dialect)) if row.changes else None)
    if names:
        source = rows.with_names(names, dialect)
    return kept_lines(source, list(origin.starts), written)


def _field(dialect: Dialect, value: str, like: str) -> str:
    """Return a value as a field, in the notation of the field in its place.

    Raises:
        OtherLayout: The dialect has no notation for the value.
    """
    field = dialect.written(value, like)
    if dialect.value(field) != value:
        raise OtherLayout
    return field


class _Rows:
    """The rows of a CSV or TSV file as text."""

    def __init__(self, origin: Origin, source: SourceText) -> None:
        self.origin, self.source = origin, source
        starts = origin.starts
        ends = [*starts[1:], len(source.lines) + 1]
        self._places = [(start, end_of_row(source, start, end)) for start, end in zip(starts, ends, strict=True)]

    def text(self, row: int) -> str:
        start, end = self._places[row]
        return "".join(self.source.texts[start - 1 : end])

    def edited(self, row: KeptRow, names: list[str], dialect: Dialect) -> str:
        """Return the text of a row with changed cells, and with the cells of new columns behind the others.

        A row of another dialect, which a person may have typed, is written in that of the others.
        """
        text, ours = self.text(row.row), self.origin.names
        body = text.rstrip(LINE_ENDS)
        fields = dialect.fields(body) or []
        if len(fields) != len(ours):
            fields = [_field(dialect, as_text(row.cells.get(name)), "") for name in ours]
        for place, name in enumerate(ours):
            if name in row.changes:
                fields[place] = _field(dialect, as_text(row.changes[name]), fields[place])
        last = fields[-1]
        fields += [_field(dialect, as_text(row.changes.get(name)), last) for name in names]
        return dialect.separator.join(fields) + text[len(body) :]

    def with_names(self, names: list[str], dialect: Dialect) -> SourceText:
        """Return the lines of the file with the names of new columns, where it has names of columns."""
        source, first = self.source, self.origin.starts[0] - 1
        texts, lines = list(source.texts), list(source.lines)
        for start in range(first):
            text = "".join(texts[start:first])
            body = text.rstrip(LINE_ENDS)
            fields = dialect.fields(body)
            if fields is not None and unique([dialect.value(field) for field in fields]) == self.origin.names:
                new = [*fields, *(_field(dialect, name, fields[-1]) for name in names)]
                texts[start:first] = [dialect.separator.join(new) + text[len(body) :]] + [""] * (first - start - 1)
                lines[start:first] = map(source.encode, texts[start:first])
                break
        return SourceText(source.mark, lines, texts, source.encoding)
