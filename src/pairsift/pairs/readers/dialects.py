"""The dialects of separated text: how a file marks its fields and records, and how such a file is read.

The module `csv` of the standard library takes the characters behind a stray quote for one field, up to the end of the
file, and drops every backslash where backslashes escape. Here a stray quote costs one row, and paths keep theirs.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from pairsift.pairs.image_files import IMAGE_SUFFIXES

IMAGE_ENDING = "|".join(map(re.escape, sorted(IMAGE_SUFFIXES)))
OPEN = "a quote is opened and not closed"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file of separated text marks its fields.

    Attributes:
        separator: Character between two fields.
        quote: Character around a field that contains separators or line ends; empty if quotes are plain characters.
        escape: Character before a quote, separator, line end or escape that belongs to a field; empty if there is none,
            and a quote within quotes is doubled.
        spaced: Whether a space follows each separator, which belongs to no field.
    """

    separator: str = ","
    quote: str = '"'
    escape: str = ""
    spaced: bool = False

    def fields(self, row: str) -> list[str] | None:
        """Return the fields of a row as they are written, with their quotes; None if the row has another dialect."""
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
        """Return a value as a field, in quotes where it needs them or where the field in its place has them.

        Without quotes and escapes, separators and line ends become spaces.
        """
        if not self.quote:
            special = f"[\r\n{re.escape(self.escape + self.separator)}]"
            return re.sub(special, lambda match: self.escape + match[0] if self.escape else " ", value)
        is_quoted = like.lstrip(" ").startswith(self.quote)
        space = like[: len(like) - len(like.lstrip(" "))] if self.spaced else ""
        characters = (self.separator, self.quote, self.escape or self.quote, "\r", "\n")
        if not is_quoted and not any(character in value for character in characters):
            return space + value
        for character in filter(None, (self.escape, self.quote)):
            value = value.replace(character, (self.escape or character) + character)
        return f"{space}{self.quote}{value}{self.quote}"


class TextRecord(NamedTuple):
    """The fields of a record, and the lines that they are read from.

    Attributes:
        first: Position of the first line.
        end: Position behind the last line.
        cells: The fields; none if there is a problem.
        problem: Reason why the record cannot be used, or an empty string.
        irregular: Whether its quotes are not as the dialect has them, so that they are read as they are.
    """

    first: int
    end: int
    cells: list[str]
    problem: str = ""
    irregular: bool = False


def split_lines(text: str) -> list[str]:
    """Return the lines of a text with their line ends: a line feed, a carriage return, or both."""
    return list(io.StringIO(text, newline=""))


def records(lines: list[str], start: int, dialect: Dialect, width: int | None = None) -> Iterator[TextRecord]:
    """Yield the records from a line on, without blank lines.

    A stray quote would include the following lines in the record. A record of several lines that is wrong therefore
    ends after its first line, and the next record starts at the second line.

    Args:
        lines: The lines of the file.
        start: Position of the line to start from.
        dialect: How the fields are marked.
        width: Number of fields that a record must have; None for any number.
    """
    separator, quote, escape = dialect.separator, dialect.quote, dialect.escape
    parser = _Parser(lines, dialect, width)
    simple = _SimpleLine(separator, quote) if quote and not escape and not dialect.spaced else None
    position, n_lines = start, len(lines)
    while position < n_lines:
        line = lines[position]
        if (quote and quote in line) or (escape and escape in line):
            cells = None if simple is None else simple.fields(line)
            record = parser.record(position) if cells is None else TextRecord(position, position + 1, cells)
        else:
            text = line.rstrip("\r\n")
            if not text:
                position += 1
                continue
            cells = text.split(separator)
            if dialect.spaced:
                cells = [cell.lstrip(" ") for cell in cells]
            record = TextRecord(position, position + 1, cells)
        if width is not None and len(record.cells) != width and not record.problem:
            record = _wrong_width(position, len(record.cells), width)
        position = record.end
        yield record


def _wrong_width(first: int, found: int, width: int) -> TextRecord:
    return TextRecord(first, first + 1, [], f"has {found} fields where the header has {width}")


class _SimpleLine:
    """The reading of lines whose quotes stand around whole fields alone, as in nearly all lines of most files."""

    def __init__(self, separator: str, quote: str) -> None:
        plain, quoted = f"[^{re.escape(quote + separator)}]*+", f"{quote}[^{re.escape(quote)}]*+{quote}"
        self._separator = separator
        self._line = re.compile(f"(?:(?:{quoted}|{plain}){re.escape(separator)})*+")
        self._field = re.compile(f"(?:{quote}([^{re.escape(quote)}]*){quote}|({plain})){re.escape(separator)}")

    def fields(self, line: str) -> list[str] | None:
        """Return the fields of a line, or None for a line of another kind."""
        text = line.rstrip("\r\n") + self._separator
        return [one or other for one, other in self._field.findall(text)] if self._line.fullmatch(text) else None


class _Parser:
    """The reading of records with quotes or escapes.

    Its time grows with the length of the file alone: a quoted field contains no line in which another one is opened,
    and a record with too many fields ends within its line.
    """

    def __init__(self, lines: list[str], dialect: Dialect, width: int | None) -> None:
        self._lines, self._dialect, self._width = lines, dialect, width
        separator, quote, escape = map(re.escape, (dialect.separator, dialect.quote, dialect.escape))
        escaped = rf"|{escape}(?:\r\n|.)" if escape else ""
        self._plain = re.compile(rf"(?:[^{separator}{escape}\r\n]++{escaped})*+", re.DOTALL)
        self._quoted = self._plain
        if quote:
            self._quoted = re.compile(rf"(?:[^{quote}{escape}]++|{quote}{quote}{escaped})*+", re.DOTALL)
        self._escape = re.compile(rf"{escape}(\r\n|[\"{escape}{separator}\r\n])")
        self._escape_or_double = re.compile(rf"{self._escape.pattern}|{quote}({quote})")
        self._line, self._at, self._end = "", 0, 0

    def record(self, first: int) -> TextRecord:
        """Return the record that starts at a line."""
        dialect = self._dialect
        cells: list[str] = []
        irregular = False
        self._line, self._at, self._end = self._lines[first], 0, first + 1
        while True:
            while dialect.spaced and self._line.startswith(" ", self._at):
                self._at += 1
            quoted = bool(dialect.quote) and self._line.startswith(dialect.quote, self._at)
            self._at += quoted
            text = self._field(self._quoted if quoted else self._plain, self._width is None or len(cells) < self._width)
            if text is None:
                return _wrong_width(first, len(cells) + 1, self._width or 0)
            if quoted and not self._line.startswith(dialect.quote, self._at):
                return TextRecord(first, first + 1, [], OPEN)
            self._at += quoted
            irregular |= not quoted and not dialect.escape and '\\"' in text
            cells.append(self._content(text, quoted))
            follows = self._line[self._at : self._at + 1]
            if follows in ("", "\r", "\n"):
                return TextRecord(first, self._end, cells, "", irregular)
            if follows != dialect.separator:
                return self._as_it_is(first) if self._end == first + 1 else TextRecord(first, first + 1, [], OPEN)
            self._at += 1

    def _field(self, pattern: re.Pattern[str], may_go_on: bool) -> str | None:
        """Return the text of a field up to its end, or None if it goes on in the next line and may not."""
        parts = []
        while True:
            match = pattern.match(self._line, self._at)
            if match is not None:
                parts.append(match[0])
                self._at = match.end()
            if self._at < len(self._line) or self._end == len(self._lines):
                return "".join(parts)
            if not may_go_on:
                return None
            self._line, self._at, self._end = self._lines[self._end], 0, self._end + 1

    def _content(self, text: str, quoted: bool) -> str:
        """Return the text of a field without the characters that mark others."""
        if self._dialect.escape:
            return (self._escape_or_double if quoted else self._escape).sub(
                lambda match: match[match.lastindex or 0], text
            )
        return text.replace(self._dialect.quote * 2, self._dialect.quote) if quoted else text

    def _as_it_is(self, first: int) -> TextRecord:
        """Return the fields of a line with a quote that is closed within a field, if their number is right.

        Only the quotes around all fields are taken away.
        """
        quote, separator = self._dialect.quote, self._dialect.separator
        text = self._lines[first].rstrip("\r\n")
        cells = text.split(separator)
        if len(text) > 1 and text[0] == text[-1] == quote:
            within = text[1:-1].split(quote + separator + quote)
            cells = within if len(within) in (self._width, len(cells)) else cells
        if self._width is not None and len(cells) != self._width:
            return TextRecord(first, first + 1, [], "a quote is closed within a field")
        return TextRecord(first, first + 1, cells, "", irregular=True)


class Weight(NamedTuple):
    """The evidence for one way to read a file.

    Attributes:
        rows: Number of rows.
        irregular: Number of rows that a writer of this dialect would not have written.
        joined: Number of them that were read from several lines which look like rows.
    """

    rows: int
    irregular: int
    joined: int


WAYS = (  # how quotes are marked, by the word for it; where the evidence is equal, the first is taken
    ("csv", Dialect()),
    ("backslash", Dialect(escape="\\")),
    ("none", Dialect(quote="")),
    ("backslash", Dialect(quote="", escape="\\")),
)
PROBE = 1000  # rows that show how the names of images look
IMAGE_FILE = re.compile(rf"[^\t\r\n|\"]+(?:{IMAGE_ENDING})(?:#\d+)?", re.IGNORECASE)
ENCLOSED = re.compile(r'"(?:[^"]|"")*+"')


class Form(NamedTuple):
    """The form of the rows of a file.

    Attributes:
        start: Position of the line of the first row.
        width: Number of fields.
        image: Position of the image among the fields; -1 if there is none.
    """

    start: int
    width: int
    image: int


class TextTable(NamedTuple):
    """The records of a file in the dialect that was chosen, and a note if the choice is not beyond doubt."""

    dialect: Dialect
    records: list[TextRecord]
    note: str = ""


def read_records(lines: list[str], form: Form, dialect: Dialect, quotes: str | None) -> TextTable:
    """Read the records of a file, in the way in which the fewest rows are irregular; if several are equal, as in CSV.

    Args:
        lines: The lines of the file.
        form: The form of its rows.
        dialect: Its separator.
        quotes: Word of `WAYS` that the user chose; None if the evidence decides.
    """
    ways = [
        (name, replace(dialect, quote=way.quote, escape=way.escape)) for name, way in WAYS if quotes in (name, None)
    ]
    first = list(records(lines, form.start, ways[0][1], form.width))
    if len(ways) == 1 or not weigh(lines, form, ways[0][1], first, lambda _: True).irregular:
        return TextTable(ways[0][1], first)
    looks = image_look(first, form.image)
    weights = [weigh(lines, form, ways[0][1], first, looks)]
    weights += [weigh(lines, form, way, records(lines, form.start, way, form.width), looks) for _, way in ways[1:]]
    best = min(range(len(ways)), key=lambda way: weights[way].irregular)
    name, way = ways[best]
    note = "" if quotes else _note(name, weights[best], weights[0], weights[2])
    return TextTable(way, list(records(lines, form.start, way, form.width)) if best else first, note)


def _note(name: str, chosen: Weight, csv: Weight, plain: Weight) -> str:
    """Describe a choice of quotes; return an empty string for CSV that nothing speaks against."""
    if name != "csv":
        kind = {"none": "plain characters", "backslash": "escaped by a backslash"}[name]
        return (
            f"quotes are {kind} ({chosen.rows} rows, {chosen.irregular} irregular; as in CSV {csv.rows} rows, "
            f"{csv.irregular} irregular: --quotes csv)"
        )
    if not csv.joined:
        return ""
    return (
        f"quotes are as in CSV ({csv.rows} rows, {csv.joined} of them over lines that look like rows; as plain "
        f"characters {plain.rows} rows: --quotes none)"
    )


def weigh(
    lines: list[str], form: Form, dialect: Dialect, rows: Iterable[TextRecord], looks: Callable[[str], bool]
) -> Weight:
    """Count the rows of a file in one dialect, and those that a writer of this dialect would not have written.

    Args:
        lines: The lines of the file.
        form: The form of its rows.
        dialect: The dialect.
        rows: The records in this dialect.
        looks: Function that returns whether a cell looks like the name of an image.
    """

    def is_row(cells: list[str]) -> bool:
        return len(cells) == form.width and (form.image < 0 or looks(cells[form.image]))

    n_rows = irregular = joined = 0
    for row in rows:
        n_rows += 1
        is_joined = row.end > row.first + 1 and not row.problem
        if is_joined:
            parts = (line.rstrip("\r\n").split(dialect.separator) for line in lines[row.first : row.end])
            is_joined = sum(map(is_row, parts)) > 1
        joined += is_joined
        has_marks = not dialect.quote and _has_marks(row, dialect)
        irregular += is_joined or row.irregular or has_marks or not is_row(row.cells)
    return Weight(n_rows, irregular, joined)


def _has_marks(record: TextRecord, dialect: Dialect) -> bool:
    """Return whether a record that is read without quotes has fields within quotes, or escaped quotes."""
    return any(
        '"' in cell and (ENCLOSED.fullmatch(cell) is not None or (not dialect.escape and '\\"' in cell))
        for cell in record.cells
    )


def image_look(rows: list[TextRecord], image: int) -> Callable[[str], bool]:
    """Return a function that tells whether a cell looks like the names of images in the file.

    If most of them end like files of images, such an end is the look. Otherwise it is the succession of letters, digits
    and other characters.
    """
    names = [row.cells[image] for row in rows[:PROBE] if row.cells and image >= 0]
    if 2 * sum(map(is_image_file, names)) >= len(names):
        return is_image_file
    shapes = {shape for shape, count in Counter(map(_shape, names)).items() if count > 1}
    return lambda cell: _shape(cell) in shapes


def is_image_file(cell: str) -> bool:
    """Return whether a cell ends like a file of an image."""
    return IMAGE_FILE.fullmatch(cell.strip()) is not None


def _shape(name: str) -> str:
    """Return a name with each run of digits and each run of letters as a single character."""
    return re.sub(r"\d+", "9", re.sub(r"[^\W\d_]+", "a", name.strip()))
