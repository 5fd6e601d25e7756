"""CSV and TSV files of which only the rows are written anew that change, in the way in which the file was written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pairsift.export.selection import Selection
from pairsift.export.source_text import LINE_ENDS, SourceText, end_of_row, kept_lines, read_lines
from pairsift.pairs.readers.rows import unique
from pairsift.pairs.source_rows import KeptRow, Origin
from pairsift.pairs.text import as_text


class Style(NamedTuple):
    """How the fields of a row are written.

    Attributes:
        separator: Character between two fields.
        quote: Character around a field; empty if quotes are plain characters.
        escape: Character before a quote that belongs to a field; empty if such quotes are doubled.
        spaced: Whether spaces before a field do not belong to it.
    """

    separator: str
    quote: str = '"'
    escape: str = ""
    spaced: bool = False

    def fields(self, row: str) -> list[str] | None:
        """Return the fields of a row as they are written, with their quotes; None if the row has another style."""
        found, place = [], 0
        pattern = re.compile(self._field(), re.DOTALL)
        while match := pattern.match(row, place):
            found.append(match[0])
            place = match.end() + 1
            if match.end() == len(row):
                return found
            if row[match.end()] != self.separator:
                return None
        return None

    def _field(self) -> str:
        separator, quote, escape = map(re.escape, (self.separator, self.quote, self.escape))
        escaped = f"|{escape}." if escape else ""
        plain = f"(?:[^{separator}{escape}]{escaped})*"
        if not quote:
            return plain
        space = " *" if self.spaced else ""
        return f"{space}{quote}(?:[^{quote}{escape}]|{quote}{quote}{escaped})*{quote}{plain}|{plain}"

    def value(self, field: str) -> str:
        """Return the text that a written field stands for."""
        text = field.lstrip(" ") if self.spaced else field
        if self.quote and text.startswith(self.quote):
            inner, _, rest = text[1:].rpartition(self.quote)
            text = inner.replace(self.quote * 2, self.quote) + rest
        return re.sub(rf"{re.escape(self.escape)}(.)", r"\1", text, flags=re.DOTALL) if self.escape else text

    def written(self, value: str, like: str) -> str:
        """Return a value as a field, in quotes where it needs them or where the field in its place has them."""
        if not self.quote:
            special = f"[\r\n{re.escape(self.escape + self.separator)}]"
            return re.sub(special, lambda match: self.escape + match[0] if self.escape else " ", value)
        is_quoted = like.lstrip(" ").startswith(self.quote)
        space = like[: len(like) - len(like.lstrip(" "))] if self.spaced else ""
        characters = (self.separator, self.quote, self.escape or self.quote, *LINE_ENDS)
        if not is_quoted and not any(character in value for character in characters):
            return space + value
        for character in filter(None, (self.escape, self.quote)):
            value = value.replace(character, (self.escape or character) + character)
        return f"{space}{self.quote}{value}{self.quote}"


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
    style = Style(dialect.separator, dialect.quote, dialect.escape, dialect.spaced)
    for row in kept:
        written[row.row].append(source.encode(rows.edited(row, names, style)) if row.changes else None)
    if names:
        source = rows.with_names(names, style)
    return kept_lines(source, list(origin.starts), written)


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

    def edited(self, row: KeptRow, names: list[str], style: Style) -> str:
        """Return the text of a row with changed cells, and with the cells of new columns behind the others.

        A row of another style, which a person may have typed, is written in the style of the others.
        """
        text, ours = self.text(row.row), self.origin.names
        body = text.rstrip(LINE_ENDS)
        fields = style.fields(body) or []
        if len(fields) != len(ours):
            fields = [style.written(as_text(row.cells.get(name)), "") for name in ours]
        for place, name in enumerate(ours):
            if name in row.changes:
                fields[place] = style.written(as_text(row.changes[name]), fields[place])
        last = fields[-1]
        fields += [style.written(as_text(row.changes.get(name)), last) for name in names]
        return style.separator.join(fields) + text[len(body) :]

    def with_names(self, names: list[str], style: Style) -> SourceText:
        """Return the lines of the file with the names of new columns, where it has names of columns."""
        source, first = self.source, self.origin.starts[0] - 1
        texts, lines = list(source.texts), list(source.lines)
        for start in range(first):
            text = "".join(texts[start:first])
            body = text.rstrip(LINE_ENDS)
            fields = style.fields(body)
            if fields is not None and unique([style.value(field) for field in fields]) == self.origin.names:
                new = [*fields, *(style.written(name, fields[-1]) for name in names)]
                texts[start:first] = [style.separator.join(new) + text[len(body) :]] + [""] * (first - start - 1)
                lines[start:first] = map(source.encode, texts[start:first])
                break
        return SourceText(source.mark, lines, texts, source.encoding)
