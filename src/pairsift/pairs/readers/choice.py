"""The choice of a table's columns by their names and their values, and of what its cells hold."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pairsift.errors import InputError
from pairsift.pairs.embedded import Embedded
from pairsift.pairs.image_files import SCHEME, find_images
from pairsift.pairs.readers.cells import (
    IMAGE_NAME,
    Reading,
    answers_of,
    caption_of,
    common_separator,
    image_list,
    separator_of,
    spread,
    words_in,
    written_list,
)
from pairsift.pairs.readers.rows import (
    CAPTION_COLUMNS,
    IMAGE_COLUMNS,
    SPLIT_COLUMNS,
    MissingColumn,
    Row,
    SourceTable,
    find_column,
    pick_columns,
)
from pairsift.pairs.records import Columns
from pairsift.pairs.splits import is_split
from pairsift.pairs.text import as_text, quoted

SAMPLE = 1000  # rows whose cells are evidence
PROBE = 50  # image names that are looked for
MORE_IMAGES = ("images", "image_paths", "image_file", "img_path", "photo")  # taken where no usual name is there
MORE_CAPTIONS = ("texts", "sentence", "sentences", "alt_text", "alt", "raw", "conversations", "messages")
CAPTION_WORDS = frozenset({"caption", "captions", "title", "text", "description", "comment", "alt", "sentence", "raw"})
SUFFIX = re.compile(r"(?P<base>.*[^\W\d_])(?:[\s_.-]*\d{1,2}|[\s_.-]+[a-e])")  # of caption_2, caption2 and caption_b
RICHER = 4  # times as many different texts, which make a column the caption in place of a title
SHOWN = 3  # columns or words that a note names


@dataclass
class Evidence:
    """The values of a table's columns in a sample of its rows.

    Args:
        table: The table.
        folder: Folder that the names of images start from.
    """

    table: SourceTable
    folder: Path

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of the sample."""
        usable = [row for row in self.table.rows if not row.problem]
        return [usable[number] for number in spread(len(usable), SAMPLE)]

    def cells(self, name: str) -> list[object]:
        """Return the cells of a column that are not empty."""
        return [cell for row in self.rows if (cell := row.cells.get(name)) not in (None, "", [])]

    def texts(self, name: str) -> list[str]:
        """Return the texts of a column that are not blank, those in lists among them."""
        texts = [text for cell in self.cells(name) for text in _texts_of(cell)]
        return [text.strip() for text in texts if text.strip()]

    def holds_images(self, name: str) -> bool:
        """Return whether a column holds images themselves."""
        cells = (cell if isinstance(cell, list) else [cell] for cell in self.cells(name))
        return any(isinstance(image, Embedded) for images in cells for image in images)

    def share_of_files(self, name: str) -> float:
        """Return the share of a column's values that are image files, a third of it for addresses."""
        listed = (text for cell in self.texts(name) for text in (image_list(cell) or [cell]))
        names = list(dict.fromkeys(listed))
        sample = [names[number] for number in spread(len(names), PROBE)]
        if not any(map(IMAGE_NAME.search, sample)):
            return 0.0
        places = find_images(self.folder, sample).places
        found = sum(path is not None and os.path.isfile(path) for path, _ in places.values()) / len(places)
        return found / 3 if self.is_address(name) else found

    def mostly(self, name: str, fits: Callable[[str], object]) -> bool:
        """Return whether most values of a column fit."""
        texts = self.texts(name)
        return 2 * sum(bool(fits(text)) for text in texts) > len(texts)

    def is_address(self, name: str) -> bool:
        """Return whether most values of a column are web addresses."""
        return self.mostly(name, lambda text: re.match("https?://", text, re.IGNORECASE))

    def is_name(self, name: str) -> bool:
        """Return whether most values of a column look like the name of an image file."""
        return self.mostly(name, lambda text: IMAGE_NAME.search(text) and not SCHEME.match(text))

    def is_text(self, name: str, words: int = 1) -> bool:
        """Return whether most values of a column are texts of at least so many words."""
        return not (self.is_address(name) or self.is_name(name)) and self.mostly(
            name, lambda text: words_in(text) >= words and any(map(str.isalpha, text)) and "/" not in text.split()[0]
        )

    def different(self, name: str) -> int:
        """Return the number of different texts in a column."""
        return len(set(self.texts(name)))


def _texts_of(cell: object) -> list[str]:
    """Return the texts in a cell."""
    if isinstance(cell, list):
        answers = answers_of(cell)
        return [text for part in cell for text in _texts_of(part)] if answers is None else answers
    if isinstance(cell, dict):
        found = caption_of(cell)
        return [as_text(cell.get("path"))] if found is cell else _texts_of(found)
    return [] if isinstance(cell, Embedded) else [as_text(cell)]


def read_columns(path: Path, table: SourceTable, columns: Columns, folder: Path) -> tuple[Reading, str]:
    """Decide what the columns and the cells of a table hold, by its names and its values.

    Args:
        path: The table's file, for error messages.
        table: The table.
        columns: Options of the user.
        folder: Folder that the names of images start from.

    Returns:
        What they hold, and a note for `Listing.reading`: what was passed over and why.

    Raises:
        InputError: There is no image or no caption column, or several columns could be it.
    """
    relaxed = replace(columns, needs_image=False, needs_caption=False)
    named = pick_columns(path, table.names, relaxed)
    seen = Evidence(table, folder)
    split, notes = split_column(table) if columns.split is None else (named.split, [])
    image = _image(path, seen, columns, named.image, notes)
    others = [name for name in table.names if name not in (image, split)]
    caption = named.caption if columns.caption is not None else _caption(path, seen, others, notes)
    if not image or not caption:
        _refuse(path, seen, replace(columns, image=image or None, caption=caption or None))
    further = [] if columns.caption is not None else _further(seen, caption, others)
    notes += _passed_over(seen, others, [caption, *further], named=columns.caption is not None)
    roles = named._replace(image=image, caption=caption, split=split, further=tuple(further))
    return _cells(seen, Reading(roles), columns.lists, notes), "; ".join(notes)


def _refuse(path: Path, seen: Evidence, columns: Columns) -> None:
    """Raise an error for a table without an image or a caption column."""
    try:
        pick_columns(path, seen.table.names, columns)
    except MissingColumn as error:
        addresses = [name for name in seen.table.names if columns.image is None and seen.is_address(name)]
        hint = f"; column {addresses[0]!r} holds web addresses: download the images first" if addresses else ""
        raise MissingColumn(f"{error}{hint}", error.names) from None


def split_column(table: SourceTable) -> tuple[str | None, list[str]]:
    """Return the column whose values are mostly words for splits, and notes on columns that only are called so."""
    notes: list[str] = []
    for candidate in SPLIT_COLUMNS:
        name = find_column(table.names, (candidate,))
        if name is None:
            continue
        words = [as_text(row.cells.get(name)).strip() for row in table.rows if not row.problem]
        if is_split(words):
            return name, notes
        if any(words):
            notes.append(f"column {name!r} holds no splits ({_some(list(dict.fromkeys(filter(None, words))))})")
    return None, notes


def _image(path: Path, seen: Evidence, columns: Columns, first: str, notes: list[str]) -> str:
    """Return the image column; an empty string if there is none."""
    names = seen.table.names
    held = next(filter(seen.holds_images, filter(None, (first, *names))), "")
    if held or columns.image is not None:
        return first if columns.image is not None else held
    usual = [name for word in (*IMAGE_COLUMNS, *MORE_IMAGES) if (name := find_column(names, (word,))) is not None]
    shares = {name: seen.share_of_files(name) for name in usual}
    best = max(shares.values(), default=0.0)
    if not best:
        usual = [name for name in usual if not seen.is_address(name)] or usual
        others = {name: seen.share_of_files(name) for name in names if name not in shares and seen.is_name(name)}
        files = [name for name, share in others.items() if 2 * share >= max(others.values()) > 0]
        candidates = files or usual[:1] or list(others)
        if len(candidates) > 1:
            raise InputError(f"{path}: columns {quoted(candidates)} all name images: say which by --image-column")
        chosen = candidates[0] if candidates else ""
    else:
        chosen = next(name for name, share in shares.items() if 2 * share >= best)
    if first and chosen != first:
        what = "web addresses" if seen.is_address(first) else "no names of image files"
        notes.append(f"column {first!r} holds {what}")
    return chosen


def _caption(path: Path, seen: Evidence, names: list[str], notes: list[str]) -> str:
    """Return the caption column; an empty string if there is none."""
    usual = [find_column(names, (word,)) for word in CAPTION_COLUMNS]
    more = [find_column(names, (word,)) for word in MORE_CAPTIONS]
    likely = list(dict.fromkeys(filter(None, (*usual, *_called_captions(seen, names), *more))))
    if not likely:
        likely = [name for name in names if seen.is_text(name, words=2)]
        if len(likely) > 1:
            raise InputError(f"{path}: columns {quoted(likely)} all hold texts: say which by --caption-column")
        return likely[0] if likely else ""
    first = likely[0]
    if first.strip().lower().rstrip("s") == "caption":
        return first
    different = seen.different(first)
    richer = (name for name in likely[1:] if seen.is_text(name) and seen.different(name) >= max(1, RICHER * different))
    chosen = next(richer, first)
    if chosen != first:
        notes.append(f"column {first!r} holds only {different} different texts")
    return chosen


def _called_captions(seen: Evidence, names: list[str]) -> list[str]:
    """Return the columns that are called captions, among other words, and hold texts; those with `caption` first."""
    words_of = {name: set(re.findall("[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())) for name in names}
    called = [name for name in names if words_of[name] & CAPTION_WORDS and seen.is_text(name)]
    return sorted(called, key=lambda name: words_of[name].isdisjoint(("caption", "captions")))


def _further(seen: Evidence, caption: str, names: list[str]) -> list[str]:
    """Return the columns numbered like the caption column, such as `caption_2`, which hold further captions."""

    def base(name: str) -> str:
        word = name.strip().lower()
        match = SUFFIX.fullmatch(word)
        return match["base"].rstrip(" _.-") if match else word

    words = 2 if seen.is_text(caption, 2) else 1
    return [name for name in names if name != caption and base(name) == base(caption) and seen.is_text(name, words)]


def _passed_over(seen: Evidence, names: list[str], taken: list[str], named: bool) -> list[str]:
    """Return a note on columns that could be captions and are not read as such."""
    left = [] if named else [name for name in _called_captions(seen, names) if name not in taken]
    few = max(1, RICHER * seen.different(taken[0]))
    if not named:
        left += [
            name
            for name in names
            if name not in (*taken, *left) and seen.is_text(name, 2) and seen.different(name) >= few
        ]
    return [f"not read as captions: {_some(left)} (--caption-column)"] if left else []


def _cells(seen: Evidence, reading: Reading, lists: str | None, notes: list[str]) -> Reading:
    """Return what the cells of the image and the caption column hold."""
    roles = reading.roles
    texts = [cell for cell in seen.cells(roles.caption) if isinstance(cell, str) and cell.strip()]
    names = [cell for cell in seen.cells(roles.image) if isinstance(cell, str)]
    if lists != "keep":
        written = sum(any(map(str.strip, written_list(text) or [])) for text in texts)
        is_list = written > 0 and (lists == "split" or 2 * written >= len(texts))
        by = ""
        if not is_list:
            by = common_separator(texts) if lists == "split" else separator_of(texts, list(map(as_text, names)))
        several = sum(len(image_list(name) or []) > 1 for name in names)
        has_files = bool(several) and not any(
            os.path.isfile(seen.folder / name) for name in names[:PROBE] if image_list(name)
        )
        reading = replace(reading, written=is_list, separator=by, images=has_files)
        if written and not is_list:
            notes.append(f"captions written like lists, which stay whole: {written} (--lists split)")
    counts = [(len(reading.images_of(row.cells)), len(reading.captions_of(row.cells))) for row in seen.rows]
    both = [images == captions for images, captions in counts if images > 1 and captions > 1]
    turns = any(isinstance(cell, list) and answers_of(cell) is not None for cell in seen.cells(roles.caption))
    return replace(reading, paired=bool(both) and all(both) and not turns)


def _some(names: Sequence[str]) -> str:
    """Return the first of these names."""
    return quoted(names, SHOWN)
