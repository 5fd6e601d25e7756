"""Captions in files of one a line: text, an id and text, or token ids."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from pairsift.pairs.encoding import UNREADABLE, Text, undecodable
from pairsift.pairs.records import one_line, read_text

LARGEST_ID = 9_999_999  # no vocabulary is larger, and every id costs a matcher a word vector


@dataclass(frozen=True, slots=True)
class Line:
    """One caption.

    Attributes:
        caption: Its text.
        image: Its image's id, where the file has one.
        problem: Why it cannot be used; empty where nothing is wrong yet.
    """

    caption: str
    image: str = ""
    problem: str = ""


def read_lines(text: Text, tabbed: bool, images: int) -> list[Line]:
    """The captions of a `.txt` file, or of a `.tsv` file with an image id before each caption.

    Blank lines at the end are left out until the number of captions is a multiple of the number of images. Quotes in a
    `.tsv` file are read as in CSV, unless that does not fit the number of images and plain lines do.

    Args:
        text: The file's text.
        tabbed: Whether it is a `.tsv` file.
        images: Number of images, at least 1.
    """
    plain = text.content.replace("\r\n", "\n")
    lines = plain.removesuffix("\n").split("\n")
    while lines and not lines[-1].strip() and len(lines) % images:
        lines.pop()
    if not tabbed:
        return [checked(line.strip()) for line in lines]
    try:
        rows = [row for row in csv.reader(io.StringIO(plain, newline=""), delimiter="\t") if row]
    except csv.Error:
        rows = []
    if not rows or len(rows) % images:
        rows = [line.split("\t") for line in lines]
    return [
        checked(row[1].strip(), row[0].strip()) if len(row) > 1 else Line("", problem="has no second column")
        for row in rows
    ]


def checked(caption: str, image: str = "") -> Line:
    """A caption with what is wrong with its bytes."""
    bad = undecodable(caption) or undecodable(image)
    return Line(caption, image, UNREADABLE if bad else "")


def read_token_ids(text: Text) -> list[Line]:
    """Lists of token ids, one a line, their ids joined by blanks; a line that holds anything else has its problem."""
    plain = text.content.replace("\r\n", "\n")
    return [token_line(line) for line in plain.removesuffix("\n").split("\n")]


def token_line(line: str) -> Line:
    """One list of ids, set apart by commas or blanks."""
    words = line.replace(",", " ").split()
    odd = next((word for word in words if not is_id(word)), None)
    if odd is not None:
        return Line("", problem=one_line(f"{odd!r} is no token id", 100))
    return Line(" ".join(str(int(word)) for word in words))


def is_id(word: str) -> bool:
    """Whether a word is a number that token ids may have."""
    return word.isascii() and word.isdigit() and len(word) <= len(str(LARGEST_ID)) and int(word) <= LARGEST_ID


def read_ids(file: Path) -> list[str]:
    """The lines of a file of ids, without blank ones.

    Raises:
        InputError: The file cannot be read or is empty.
    """
    return [line.strip() for line in read_text(file).content.splitlines() if line.strip()]
