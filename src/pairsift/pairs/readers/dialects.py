"""The dialects of separated text: how a file marks its fields and records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file of separated text is written, so that rows can be written in the same way.

    Attributes:
        separator: Character between two fields.
        quote: Character around a field that contains separators or line ends; empty if quotes are plain characters.
        escape: Character before a quote, separator, line end or escape that belongs to a field; empty if there is none.
        doubled: Whether a quote within quotes is doubled. Otherwise it is escaped.
        quoted: Whether every field is in quotes. Otherwise only those are that need them.
        spaced: Whether a space follows each separator, which belongs to no field.
        terminator: Line end.
        encoding: Encoding, such as `utf-8` or `utf-16-le`.
        marked: Whether the file begins with a byte order mark.
        header: Whether the columns have names in the file.
        head: Text above the first row, as it is in the file: the names, and what stands before them.
    """

    separator: str = ","
    quote: str = '"'
    escape: str = ""
    doubled: bool = True
    quoted: bool = False
    spaced: bool = False
    terminator: str = "\n"
    encoding: str = "utf-8"
    marked: bool = False
    header: bool = True
    head: str = ""
