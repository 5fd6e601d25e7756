"""From a file's bytes to text: UTF-8, UTF-16 and UTF-32, and cp1252 line by line where a line is not UTF-8."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pairsift.errors import InputError

MARKS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
SAMPLE = 4096  # bytes looked at for UTF-16 without a mark
FEWEST_FOREIGN = 3  # lines
FOREIGN_SHARE = 0.2  # of the lines that are not UTF-8: from here on the whole file is in yet another encoding
UNREADABLE = "holds characters whose encoding cannot be told (neither UTF-8 nor cp1252); save the file as UTF-8"
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# What the bytes of another encoding look like when they are read as cp1252, and Western text does not: long runs beyond
# ASCII (Cyrillic, Greek, Arabic, Chinese), a capital after a small letter (Mac Roman), a sign within a word (Central
# European, DOS), an opening low quote at the end of a word (DOS).
FOREIGN = re.compile(
    r"[^\x00-\x7f\xa0–—…•·]{4}"
    r"|[a-z][À-ÖØ-ÞŠŒŽŸ]"
    r"|(?<=[A-Za-zÀ-ÖØ-öø-ÿ])[ˆ˜†‡‰‹¢£¤¥¦§¨ª¬¯±²³¶¹¼½¾¿](?=[A-Za-zÀ-ÖØ-öø-ÿ])"
    r"|[A-Za-z][‚„]"
)


@dataclass(frozen=True, slots=True)
class Text:
    """A file's text and how it was read.

    Attributes:
        content: The text; what could not be read is there as lone surrogates, which `undecodable` finds.
        encoding: `utf-8`, `utf-16-le` and the like, of the file as a whole.
        western: Number of lines that are not UTF-8 and were read as cp1252.
    """

    content: str
    encoding: str = "utf-8"
    western: int = 0


def decode(raw: bytes, path: Path) -> Text:
    """Read a file's bytes as text.

    The encoding is UTF-16 or UTF-32 where a byte order mark says so, or UTF-16 where the zero bytes of its ASCII
    characters show it, else UTF-8. In a file that is UTF-8 otherwise, a line that is not is read as cp1252, unless it
    does not look like Western text; nor is any line read so where many do not.

    Args:
        raw: The bytes.
        path: The file, for the error.

    Raises:
        InputError: The file starts as UTF-16 or UTF-32 and is not valid.
    """
    for mark, encoding in MARKS:
        if raw.startswith(mark):
            return Text(_marked(raw.removeprefix(mark), encoding, path), encoding)
    if (wide := _unmarked(raw)) is not None:
        return wide
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return Text(raw.decode("utf-8"))
    except UnicodeDecodeError:
        return _by_line(raw)


def _marked(body: bytes, encoding: str, path: Path) -> str:
    """The text behind a byte order mark; a file cut within a character ends in a lone surrogate."""
    width = 2 if encoding.startswith("utf-16") else 4
    whole = len(body) // width * width
    try:
        if body and not whole:
            raise ValueError("one cut character")
        return body[:whole].decode(encoding, "surrogatepass") + "\udcff" * (whole < len(body))
    except ValueError as error:
        raise InputError(f"{path}: starts as {encoding[:6].upper()} and is not valid; save it as UTF-8") from error


def _unmarked(raw: bytes) -> Text | None:
    """The text of plain UTF-16 without a mark, or None: every other byte of its ASCII characters is zero."""
    sample = raw[:SAMPLE]
    zeros = {"utf-16-be": sample[0::2].count(0), "utf-16-le": sample[1::2].count(0)}
    (fewer, _), (more, encoding) = sorted((count, name) for name, count in zeros.items())
    if 20 * more < len(sample) or 4 * fewer > more or not more:
        return None
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if CONTROLS.search(text) else Text(text, encoding)


def _by_line(raw: bytes) -> Text:
    """Text of which some lines are not UTF-8."""
    lines: list[str] = []
    western: dict[int, str] = {}
    foreign = 0
    for at, line in enumerate(raw.splitlines(keepends=True)):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError:
            lines.append(line.decode("utf-8", "surrogateescape"))
            text = _western(line)
            foreign += text is None
            if text is not None:
                western[at] = text
    if foreign >= FEWEST_FOREIGN and foreign >= FOREIGN_SHARE * (foreign + len(western)):
        western = {}
    for at, text in western.items():
        lines[at] = text
    return Text("".join(lines), western=len(western))


def _western(line: bytes) -> str | None:
    """A line read as cp1252, or None where it does not look like Western text."""
    try:
        text = line.decode("cp1252")
    except UnicodeDecodeError:
        return None
    return None if CONTROLS.search(text) or FOREIGN.search(text) else text


def how_read(texts: Iterable[Text]) -> str:
    """What is unusual about how these files were read, for the line that says what was taken; empty for plain UTF-8."""
    read = list(texts)
    wide = [text.encoding[:6].upper() for text in read if text.encoding != "utf-8"]
    western = sum(text.western for text in read)
    said = []
    if wide:
        said.append(f"{len(wide)} files read as {wide[0]}" if len(read) > 1 else f"read as {wide[0]}")
    if western:
        said.append(f"lines that are not UTF-8 and were read as cp1252 (Western): {western}")
    return "; ".join(said)


def undecodable(text: str) -> bool:
    """Whether the text holds something that is not valid Unicode, left there by `decode` or by a JSON escape."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def printable(text: str) -> str:
    """The text with what is not valid Unicode replaced by U+FFFD, so that it can be written to any file."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if undecodable(text) else text
