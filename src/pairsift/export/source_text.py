"""The text of a source, kept as bytes, so that what nobody decided on is written as it was."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pairsift.pairs.text import MARKS, decode, read_bytes

LINE_ENDS = "\r\n"


class OtherLayout(Exception):
    """An error for rows that the layout of their source cannot hold."""


@dataclass(frozen=True)
class SourceText:
    """The lines of a text file.

    Attributes:
        mark: Its byte order mark, or no bytes.
        lines: The bytes of each line, with its line end.
        texts: The decoded text of each line, with its line end.
        encoding: The encoding of new text.
    """

    mark: bytes
    lines: list[bytes]
    texts: list[str]
    encoding: str

    @property
    def content(self) -> str:
        """The text as a whole."""
        return "".join(self.texts)

    def encode(self, text: str) -> bytes:
        """Return text in the encoding of the file, or as UTF-8 where that encoding lacks one of its characters."""
        errors = "surrogatepass" if self.encoding.startswith("utf-16") else "surrogateescape"
        try:
            return text.encode(self.encoding, errors)
        except UnicodeEncodeError:
            return text.encode("utf-8", "surrogateescape" if _is_escaped(text) else "surrogatepass")


def _is_escaped(text: str) -> bool:
    """Return whether all characters that are not valid Unicode stand for bytes that could not be decoded."""
    return all("\udc80" <= character <= "\udcff" for character in text if "\ud800" <= character <= "\udfff")


def read_lines(path: Path, newline: str = "") -> SourceText:
    """Read the lines of a text file, as bytes and as the readers decode them.

    Args:
        path: The file.
        newline: The line end; an empty string for all three, as in tables.

    Raises:
        InputError: The file cannot be read.
    """
    raw = read_bytes(path)
    decoded = decode(raw, path)
    mark = next((mark for mark, _ in (*MARKS, (codecs.BOM_UTF8, "")) if raw.startswith(mark)), b"")
    texts = list(io.StringIO(decoded.content, newline=newline))
    if decoded.encoding.startswith(("utf-16", "utf-32")):
        return SourceText(
            mark, [text.encode(decoded.encoding, "surrogatepass") for text in texts], texts, decoded.encoding
        )
    body = raw[len(mark) :]
    lines = list(io.BytesIO(body)) if newline else body.splitlines(keepends=True)
    foreign = sum(not text.isascii() for text in texts)
    return SourceText(mark, lines, texts, "cp1252" if foreign and foreign == decoded.western else decoded.encoding)


def kept_lines(source: SourceText, starts: list[int], written: Mapping[int, list[bytes | None]]) -> Iterator[bytes]:
    """Yield the bytes of a file with fewer rows.

    What stands above the rows and blank lines stay.

    Args:
        source: The lines of the file.
        starts: First line of each row, from 1, rising.
        written: New bytes of what each row that is kept becomes, by its position; None for a row that stays as it is.
    """
    lines = source.lines
    yield source.mark
    yield from lines[: starts[0] - 1]
    for row, (start, following) in enumerate(zip(starts, [*starts[1:], len(lines) + 1], strict=True)):
        end = end_of_row(source, start, following)
        for number, new in enumerate(written.get(row, [])):
            if number and not lines[end - 1].endswith(source.encode("\n")):
                yield source.encode("\n")
            yield from lines[start - 1 : end] if new is None else [new]
        yield from lines[end : following - 1]


def end_of_row(source: SourceText, start: int, following: int) -> int:
    """Return the last line of a row that begins at a line, without the blank lines below it."""
    end = following - 1
    while end > start and not source.texts[end - 1].strip(LINE_ENDS):
        end -= 1
    return end
