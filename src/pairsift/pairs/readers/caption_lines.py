"""Caption files with one caption per line: text, an id and text, or token ids."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from pairsift.pairs.encoding import UNREADABLE, Text, undecodable
from pairsift.pairs.records import one_line, read_text

LARGEST_ID = 9_999_999  # no vocabulary is larger; a matcher has one word vector per id


@dataclass(frozen=True, slots=True)
class Line:
    """A line with one caption.

    Attributes:
        caption: Text of the caption.
        image: Id of its image; empty if the file has no image ids.
        problem: Reason why the caption cannot be used; empty if no problem is known yet.
    """

    caption: str
    image: str = ""
    problem: str = ""


def read_lines(text: Text, tabbed: bool, images: int) -> list[Line]:
    """Read the captions of a `.txt` file, or of a `.tsv` file with an image id before each caption.

    Blank lines at the end are removed until the number of captions is a multiple of the number of images. Quotes in a
    `.tsv` file are read as in CSV. If the number of captions then does not fit the number of images, the lines are
    split at tabs without regard to quotes.

    Args:
        text: Text of the file.
        tabbed: Whether it is a `.tsv` file.
        images: Number of images, at least 1.
    """
    content = text.content.replace("\r\n", "\n")
    lines = content.removesuffix("\n").split("\n")
    while lines and not lines[-1].strip() and len(lines) % images:
        lines.pop()
    if not tabbed:
        return [checked(line.strip()) for line in lines]
    try:
        rows = [row for row in csv.reader(io.StringIO(content, newline=""), delimiter="\t") if row]
    except csv.Error:
        rows = []
    if not rows or len(rows) % images:
        rows = [line.split("\t") for line in lines]
    return [
        checked(row[1].strip(), row[0].strip()) if len(row) > 1 else Line("", problem="has no second column")
        for row in rows
    ]


def checked(caption: str, image: str = "") -> Line:
    """Return a caption as a line, with a problem if its bytes or those of its image id could not be decoded."""
    bad = undecodable(caption) or undecodable(image)
    return Line(caption, image, UNREADABLE if bad else "")


def read_token_ids(text: Text) -> list[Line]:
    """Read one list of token ids per line, and join the ids of each list by spaces.

    A line that contains anything else gets a problem.
    """
    content = text.content.replace("\r\n", "\n")
    return [token_line(line) for line in content.removesuffix("\n").split("\n")]


def token_line(line: str) -> Line:
    """Read one list of ids, separated by commas or spaces."""
    words = line.replace(",", " ").split()
    odd = next((word for word in words if not is_id(word)), None)
    if odd is not None:
        return Line("", problem=one_line(f"{odd!r} is no token id", 100))
    return Line(" ".join(str(int(word)) for word in words))


def is_id(word: str) -> bool:
    """Return whether a word is a number in the range of token ids."""
    return word.isascii() and word.isdigit() and len(word) <= len(str(LARGEST_ID)) and int(word) <= LARGEST_ID


def read_ids(file: Path) -> list[str]:
    """Read the lines of a file of ids, without blank lines.

    Raises:
        InputError: The file cannot be read or is empty.
    """
    return [line.strip() for line in read_text(file).content.splitlines() if line.strip()]
