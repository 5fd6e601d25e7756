"""Separated text: CSV, TSV and their relatives, with a line of names or without one.

A `.txt` file is such a table: spreadsheets write "Unicode text" into it, as UTF-16 with tabs.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

from pairsift.errors import InputError
from pairsift.pairs.base64_images import is_base64_image
from pairsift.pairs.image_files import find_images
from pairsift.pairs.readers.dialects import (
    PROBE,
    WAYS,
    Dialect,
    Form,
    is_image_file,
    read_records,
    records,
    split_lines,
)
from pairsift.pairs.readers.rows import Row, SourceTable, pick_columns, unique
from pairsift.pairs.records import Columns
from pairsift.pairs.text import decode, how_read, read_text

SEPARATORS = (",", "\t", ";", "|")
BEGINNING = 2**20  # bytes that contain the whole first line of a table
BEFORE_HEADER = re.compile(r"[\r\n]*(?:\"?sep=[^\w\r\n]\"?[\r\n]+)?", re.IGNORECASE)  # `sep=;` is for Excel
NUMBERED = re.compile(r"(.+\.\w+)#\d+")  # Flickr8k numbers the captions of an image behind its name
AGREEING = 0.5  # share of the rows without a header that show what a field holds


class Header(NamedTuple):
    """What the beginning of a file says of its columns.

    Attributes:
        names: Names of the columns.
        dialect: How the fields are marked, so far as the beginning shows it.
        start: Position of the line of the first row.
        note: How the columns were told if their names are not in the file, else empty.
    """

    names: list[str]
    dialect: Dialect
    start: int
    note: str = ""


def read_separated(path: Path, columns: Columns) -> SourceTable:
    """Read the rows of a CSV or TSV file.

    The separator is the one with which the line of the names has the columns that are needed, and the most. All rows
    together decide whether quotes are marked as in CSV, by backslashes, or not at all.
    """
    text = read_text(path)
    lines = split_lines(text.content)
    names, dialect, start, note = read_header(path, lines, columns)
    image = pick_columns(path, names, columns).image
    form = Form(start, len(names), names.index(image) if image else -1)
    dialect, found, choice = read_records(lines, form, dialect, columns.quotes)
    rows = [
        Row(f"{path.name} line {record.first + 1}", dict(zip(names, record.cells, strict=False)), record.problem)
        for record in found
    ]
    irregular = sum(record.irregular for record in found)
    taken = f"rows with quotes that do not follow the dialect, read as they are: {irregular}" if irregular else ""
    notes = note, choice, taken, how_read([text])
    return SourceTable(names, rows, "; ".join(filter(None, notes)), dialect=dialect)


def read_header(path: Path, lines: list[str], columns: Columns) -> Header:
    """Return what the beginning of a file says of its columns.

    Blank lines above the names are passed over, and the line `sep=;` that Excel reads. If the first line is data, the
    first rows show which field is the image and which the caption.

    Raises:
        InputError: The line names no such columns with any separator, or there is none.
    """
    above = BEFORE_HEADER.match("".join(lines[:PROBE]))
    start = len(split_lines(above[0])) if above else 0
    if start == len(lines):
        raise InputError(f"{path}: the file is empty")
    headers = [_names(lines, start, Dialect(separator)) for separator in SEPARATORS]
    fitting = []
    for header in headers:
        with suppress(InputError):
            pick_columns(path, header.names, columns)
            fitting.append(header)
    if fitting:
        return max(fitting, key=lambda header: len(header.names))
    named = columns.image is not None or columns.caption is not None
    told = None if named else without_header(path, lines, start, columns)
    if told is not None:
        return told
    header = max(headers, key=lambda header: len(header.names))
    if any(map(is_image_file, header.names)):
        raise InputError(
            f"{path}: its first line looks like data and not like names of columns, and its rows do not show which "
            "field is the image and which the caption; write a line above it, such as image,caption"
        )
    pick_columns(path, header.names, columns)
    return header


def _names(lines: list[str], start: int, dialect: Dialect) -> Header:
    """Return the names that a line has with a separator."""
    record = next(records(lines, start, dialect))
    if len(record.cells) > 1 and all(name.startswith(" ") for name in record.cells[1:]) and not dialect.spaced:
        return _names(lines, start, replace(dialect, spaced=True))
    return Header(unique(record.cells), dialect, record.end)


def without_header(path: Path, lines: list[str], start: int, columns: Columns) -> Header | None:
    """Return the columns of a file whose first line is data; return None if the rows do not show them.

    The dialect is the one in which the most rows have the same number of fields, and one of them holds images.
    """
    base = columns.folder or path.parent
    best: tuple[int, Header | None] = (0, None)
    for separator, (_, way) in product(SEPARATORS, WAYS):
        dialect = replace(way, separator=separator)
        rows = [record.cells for record in islice(records(lines, start, dialect), PROBE) if not record.problem]
        width, count = Counter(map(len, rows)).most_common(1)[0] if rows else (0, 0)
        if width < 2 or len(rows[0]) != width or count <= best[0]:
            continue
        image, caption = _roles([row for row in rows if len(row) == width], base)
        if image >= 0 and caption >= 0:
            names = [f"column {position}" for position in range(1, width + 1)]
            names[image], names[caption] = "image", "caption"
            note = f"no header: image from field {image + 1}, caption from field {caption + 1}"
            best = count, Header(names, Dialect(separator), start, note)
    return best[1]


def _roles(rows: list[list[str]], base: Path) -> tuple[int, int]:
    """Return which field holds the images and which the captions, each -1 if none does.

    The image is the field with the most files that exist, or else with the most names that end like files of images or
    images as base64, if half of the fields are, and that of the first row. The caption is the field with the most
    words.
    """
    fields = [[cell.strip() for cell in field] for field in zip(*rows, strict=True)]
    names = [[is_image_file(cell) or is_base64_image(cell) for cell in field] for field in fields]
    shares = [(_existing(field, base), sum(are) / len(are)) for field, are in zip(fields, names, strict=True)]
    image = max(range(len(fields)), key=lambda field: shares[field])
    if max(shares[image]) < AGREEING or not (names[image][0] or _existing(fields[image][:1], base)):
        return -1, -1
    n_words = [_words(field) if position != image else 0 for position, field in enumerate(fields)]
    caption = max(range(len(fields)), key=n_words.__getitem__)
    return image, caption if n_words[caption] else -1


def _existing(names: list[str], base: Path) -> float:
    """Return the share of the names that are files."""
    places = find_images(base, (without_number(name, base) for name in names)).places
    files = [path is not None and os.path.isfile(path) for path, _ in places.values()]
    return sum(files) / len(files)


def _words(cells: list[str]) -> int:
    """Return the number of words in some cells; addresses, numbers and names of image files are no words."""
    words = (word for cell in cells if not is_image_file(cell) for word in cell.split())
    return sum(re.search(r"[^\W\d_]", word) is not None and "://" not in word for word in words)


def without_number(name: str, base: Path) -> str:
    """Return the name of an image without a caption's number behind it (`a.jpg#0`), unless it is a file's name."""
    numbered = NUMBERED.fullmatch(name) if "#" in name else None
    return name if numbered is None or os.path.lexists(base / name) else numbered[1]


def is_separated(path: Path, columns: Columns) -> bool:
    """Return whether a file is separated text with an image and a caption column, whatever its extension."""
    try:
        return check_header(path, columns)
    except (OSError, InputError):
        return False


def check_header(path: Path, columns: Columns) -> bool:
    """Return whether the beginning of a file shows an image and a caption column.

    It may not show it for an empty file, and for a long one in UTF-16 or UTF-32.

    Raises:
        InputError: A column is missing.
    """
    with path.open("rb") as stream:
        beginning = stream.read(BEGINNING)
    if not beginning.strip() or (b"\0" in beginning and len(beginning) == BEGINNING):
        return False
    read_header(path, split_lines(decode(beginning, path).content), columns)
    return True
