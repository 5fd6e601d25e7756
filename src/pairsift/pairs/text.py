"""Text of files and cells: its decoding (UTF-8, UTF-16, UTF-32, single lines of cp1252), and its forms in messages."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pairsift.errors import InputError

MARKS = (  # UTF-32 first: its little-endian mark begins with the mark of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
PROBE_BYTES = 4096  # bytes that are checked for UTF-16 without a byte order mark
MIN_FOREIGN_LINES = 3  # lines that are neither UTF-8 nor Western text
FOREIGN_SHARE = 0.2  # of the lines that are not UTF-8; from this share on, the file has yet another encoding
UNREADABLE = "holds characters whose encoding cannot be told (neither UTF-8 nor cp1252); save the file as UTF-8"
TERMINAL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# Patterns that appear when the bytes of another encoding are read as cp1252, and that Western text does not contain:
# long runs of non-ASCII characters (Cyrillic, Greek, Arabic, Chinese), a capital after a small letter (Mac Roman), a
# symbol within a word (Central European, DOS), a low opening quote at the end of a word (DOS).
FOREIGN = re.compile(
    r"[^\x00-\x7f\xa0–—…•·]{4}"
    r"|[a-z][À-ÖØ-ÞŠŒŽŸ]"
    r"|(?<=[A-Za-zÀ-ÖØ-öø-ÿ])[ˆ˜†‡‰‹¢£¤¥¦§¨ª¬¯±²³¶¹¼½¾¿](?=[A-Za-zÀ-ÖØ-öø-ÿ])"
    r"|[A-Za-z][‚„]"
)


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a file, and how it was decoded.

    Attributes:
        content: The text. Bytes that could not be decoded are lone surrogates, which `undecodable` detects.
        encoding: Encoding of the file as a whole, such as `utf-8` or `utf-16-le`.
        western: Number of lines that are not UTF-8 and were read as cp1252.
    """

    content: str
    encoding: str = "utf-8"
    western: int = 0


def decode(raw: bytes, path: Path) -> Text:
    """Decode the bytes of a text file.

    The encoding is UTF-16 or UTF-32 if a byte order mark says so. It is also UTF-16 if the zero bytes of the ASCII
    characters show it. Otherwise it is UTF-8. If some lines of a UTF-8 file are not valid UTF-8, each of these lines is
    read as cp1252, unless it does not look like Western text. If many of them do not look like Western text, no line is
    read as cp1252.

    Args:
        raw: The bytes.
        path: The file, for the error message.

    Raises:
        InputError: The file starts as UTF-16 or UTF-32 and is not valid.
    """
    for mark, encoding in MARKS:
        if raw.startswith(mark):
            try:
                return Text(raw.removeprefix(mark).decode(encoding, "surrogatepass"), encoding)
            except UnicodeDecodeError as error:
                kind = encoding[:6].upper()
                raise InputError(f"{path}: starts as {kind} and is not valid or cut off; save it as UTF-8") from error
    if (wide := _unmarked(raw)) is not None:
        return wide
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return Text(raw.decode("utf-8"))
    except UnicodeDecodeError:
        return _by_line(raw)


def _unmarked(raw: bytes) -> Text | None:
    """Return the text if it is plain UTF-16 without a byte order mark, else None.

    In such a text, every second byte of the ASCII characters is zero.
    """
    sample = raw[:PROBE_BYTES]
    zeros = {"utf-16-be": sample[0::2].count(0), "utf-16-le": sample[1::2].count(0)}
    (minor, _), (major, encoding) = sorted((count, name) for name, count in zeros.items())
    if 20 * major < len(sample) or 4 * minor > major or not major:
        return None
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if CONTROLS.search(text) else Text(text, encoding)


def _by_line(raw: bytes) -> Text:
    """Decode a text with lines that are not UTF-8."""
    lines: list[str] = []
    western: dict[int, str] = {}
    foreign = 0
    for number, line in enumerate(raw.splitlines(keepends=True)):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError:
            lines.append(line.decode("utf-8", "surrogateescape"))
            text = _western(line)
            foreign += text is None
            if text is not None:
                western[number] = text
    if foreign >= MIN_FOREIGN_LINES and foreign >= FOREIGN_SHARE * (foreign + len(western)):
        western = {}
    for number, text in western.items():
        lines[number] = text
    return Text("".join(lines), western=len(western))


def _western(line: bytes) -> str | None:
    """Return a line decoded as cp1252, or None if it does not look like Western text."""
    try:
        text = line.decode("cp1252")
    except UnicodeDecodeError:
        return None
    return None if CONTROLS.search(text) or FOREIGN.search(text) else text


def how_read(texts: Iterable[Text]) -> str:
    """Describe what is unusual in the decoding of these files; return an empty string for plain UTF-8.

    The description becomes a part of `Pairs.description`.
    """
    files = list(texts)
    wide = [text.encoding[:6].upper() for text in files if text.encoding != "utf-8"]
    western = sum(text.western for text in files)
    notes = [f"files read as {wide[0]}: {len(wide)}"] if wide else []
    notes += [f"lines that are not UTF-8 and were read as cp1252 (Western): {western}"] if western else []
    return "; ".join(notes)


def undecodable(text: str) -> bool:
    """Return whether the text contains characters that are not valid Unicode.

    Such characters come from `decode` or from an escape in JSON.
    """
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def printable(text: str) -> str:
    """Replace all characters that are not valid Unicode by U+FFFD, so that any file can contain the text."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if undecodable(text) else text


def one_line(text: str, limit: int = 400) -> str:
    """Replace each run of white space by a single space and control characters, which steer a terminal, by U+FFFD; cut
    the text to `limit` characters.
    """
    line = TERMINAL.sub("\ufffd", " ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def quoted(names: Iterable[str], limit: int = 12) -> str:
    """Return the first `limit` names of a list in a readable form, such as `'a', 'b' and 3 more`."""
    lines = [one_line(repr(name), 60) for name in names]
    surplus = len(lines) - limit
    return ", ".join(lines[:limit]) + (f" and {surplus} more" if surplus > 0 else "")


def read_bytes(path: Path) -> bytes:
    """Read the bytes of a file.

    Raises:
        InputError: The file cannot be read, or it is empty.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not content.strip():
        raise InputError(f"{path}: the file is empty")
    return content


def read_text(path: Path) -> Text:
    """Read the text of a file.

    Raises:
        InputError: The file cannot be read, is empty, or starts as UTF-16 or UTF-32 and is not valid.
    """
    return decode(read_bytes(path), path)


def as_text(value: object) -> str:
    """Convert a cell to text.

    A string stays as it is, None becomes an empty string, bytes are decoded as UTF-8, lists, objects and numbers become
    JSON, and any other value becomes what Python writes for it.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, (list, tuple, dict, int, float)):
        return json.dumps(value, ensure_ascii=False, default=as_text)
    return str(value)


def other_columns(cells: Mapping[str, object], *used: str) -> dict[str, str]:
    """Return the cells that are neither used nor nested, as text."""
    return {
        str(name): printable(as_text(value))
        for name, value in cells.items()
        if name not in used and not isinstance(value, (list, dict))
    }


def parse_json(path: Path) -> tuple[object, Text]:
    """Read a JSON file and return its value and its text.

    Raises:
        InputError: The file cannot be read, is empty, or is not JSON.
    """
    text = read_text(path)
    try:
        return json.loads(text.content), text
    except (ValueError, RecursionError) as error:  # not only JSONDecodeError: a number may have too many digits
        raise InputError(f"{path}: is not valid JSON: {one_line(str(error))}") from error
