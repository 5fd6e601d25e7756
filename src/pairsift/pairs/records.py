"""The records of a source as a reader returns them, and the pairs that are made of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from pairsift.errors import InputError
from pairsift.pairs.empty import NUMBER, says_nothing
from pairsift.pairs.image_files import any_file, find_below, find_images, folder_hint, image_root, subfolders
from pairsift.pairs.pairs import ADDED, SKIPPED, UNUSED, Pairs, Skip
from pairsift.pairs.precomputed import Precomputed
from pairsift.pairs.splits import MIN_IMAGES, SPLIT_WORDS, Draw, evaluation_splits, split_images
from pairsift.pairs.text import UNREADABLE, one_line, printable, undecodable

NO_FILE = "no image file at"


@dataclass(slots=True)  # not frozen, since a large source makes millions of them
class Record:
    """An image-caption record of a source, not yet checked.

    Attributes:
        where: The record as the user knows it, such as `captions.csv line 17`.
        image: Name of the image in the source; empty if the record names no image.
        path: File of the image, which need not exist, or the file of features if the source has features instead of
            images. None if it follows from the name and the listing's folder, or if the record names no local file.
        caption: Caption as it is in the source.
        split: Word for the split in the source; empty if the source has no split for this record.
        extra: Other columns of the source.
        problem: Reason why the record cannot be used, in one line without a full stop; empty if no problem is known
            yet.
        row: Row of the image in the concatenated features of the listing; -1 if the images are files.
    """

    where: str
    image: str
    path: Path | None
    caption: str
    split: str = ""
    extra: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    row: int = -1

    def with_file(self, path: Path | None, problem: str) -> Record:
        """Return the record with the file of its image, and the problem of the file where it has none of its own."""
        problem = self.problem or problem
        return Record(self.where, self.image, path, self.caption, self.split, self.extra, problem, self.row)


@dataclass(frozen=True)
class Listing:
    """The records of a source in its order; the position of a record becomes the id of its pair.

    Attributes:
        records: The records.
        image: Place of the images in the source, for `Pairs.description`.
        caption: Place of the captions in the source, for `Pairs.description`.
        split: Place of the splits in the source, for `Pairs.description`; empty if the source has no splits.
        features: Features that replace the images, or None if the images are files.
        reading: Unusual facts about the decoding of the source's text; empty for plain UTF-8.
        folder: Folder that the images' names start from, where records have no file; None where all have one.
    """

    records: list[Record]
    image: str
    caption: str
    split: str = ""
    features: Precomputed | None = None
    reading: str = ""
    folder: Path | None = None

    def with_files(self) -> Listing:
        """Return the listing with the file of each image that only has a name.

        If none is found in the listing's folder, the folders within it are tried, and then all folders below it.
        """
        if self.folder is None:
            return self
        names = list(dict.fromkeys(record.image for record in self.records if record.path is None))
        found = find_images(self.folder, names)
        has_any = any_file(found.places.values())
        root = None if has_any else image_root(subfolders(self.folder), [*filter(None, names)])
        if root is not None:
            found = find_images(root, names)
            found = found._replace(note="; ".join(filter(None, (f"images found in {root}", found.note))))
        places, note, _ = find_below(self.folder, found)
        records = []
        for record in self.records:
            if record.path is None:
                records.append(record.with_file(*places[record.image]))
            else:
                records.append(record)
        return replace(self, records=records, reading="; ".join(filter(None, (self.reading, note))))


@dataclass(frozen=True)
class Columns:
    """The options that the user sets for a source.

    Attributes:
        image: Name of the image column, or None to look for the usual names.
        caption: Name of the caption column, or None to look for the usual names.
        folder: Folder that relative image paths start from, or None for the default of the reader.
        cache: Folder for the images that the source contains as bytes, or None for the default cache.
        text_file: Whether the `lines` of a text file beside an image are captions, or the `whole`; None to tell by the
            files.
        quotes: How quotes are marked in separated text: `csv`, `backslash` or `none`; None if the file shows it.
        split: Name of the split column, `none` for no splits of the source, or None to look for the usual names.
        lists: Whether text that is a list is several captions or images (`split`) or one (`keep`); None decides by what
            all cells show.
        needs_image: Whether a table must have an image column. Without one, its name is an empty string.
        needs_caption: Whether a table must have a caption column, likewise.
    """

    image: str | None = None
    caption: str | None = None
    folder: Path | None = None
    cache: Path | None = None
    text_file: str | None = None
    quotes: str | None = None
    split: str | None = None
    lists: str | None = None
    needs_image: bool = True
    needs_caption: bool = True


Reader = Callable[[Path, Columns], Listing]


class Checks:
    """The images that the records name, each stored once, and the checks that decide whether a record can be used.

    Attributes:
        firsts: The first record of each image.
        split_of: The source's split of each image with a usable record.
    """

    def __init__(self, has_splits: bool, may_repeat: bool, evaluation: Mapping[str, str]) -> None:
        self.firsts: list[Record] = []
        self.split_of: dict[int, str] = {}
        self._evaluation = evaluation  # splits that words for an evaluation stand for
        self._has_splits = has_splits
        self._may_repeat = may_repeat  # published features and their noise indices count repeated captions
        self._exists: list[bool] = []
        self._row_of: dict[tuple[str, int], int] = {}
        self._row_of_path: dict[tuple[Path, int], int] = {}  # of paths as they are written, which are sought fast
        self._first_with: dict[tuple[int, str], str] = {}  # the first record with each caption of an image

    def row(self, record: Record) -> int:
        """Return the row of the record's image, adding it if it is new; return -1 for a record without a path."""
        if record.path is None:
            return -1
        written = record.path, record.row
        if (known := self._row_of_path.get(written)) is not None:
            return known
        key = os.path.normpath(record.path), record.row
        row = self._row_of_path[written] = self._row_of.setdefault(key, len(self.firsts))
        if row == len(self.firsts):
            self.firsts.append(record)
            self._exists.append(record.row >= 0 or os.path.isfile(key[0]))
        return row

    def problem(self, record: Record, row: int, empty: str) -> str:
        """Return the reason why the record cannot be used, in one line, or an empty string if it can be used.

        `empty` is the reason why its caption says nothing, or an empty string.
        """
        basic = self._basic(record, row, empty)
        if basic:
            return basic
        key = (row, record.caption)
        if key in self._first_with and not self._may_repeat:
            return f"repeats {self._first_with[key]}"
        word = record.split.lower()
        split = SPLIT_WORDS.get(self._evaluation.get(word, word)) if self._has_splits else UNUSED
        if split is None:
            return one_line(f"split {record.split!r} is none of train, dev, val, test, restval")
        earlier = self.split_of.setdefault(row, split)
        if earlier != split:
            return f"its image is in {earlier} already"
        self._first_with[key] = record.where
        return ""

    def _basic(self, record: Record, row: int, empty: str) -> str:
        if record.problem:
            return one_line(record.problem)
        texts = (record.caption, *record.extra.values())
        if not "".join(texts).isascii() and any(map(undecodable, texts)):
            return UNREADABLE
        if row < 0:
            return "names no image"
        if not self._exists[row]:
            return one_line(f"{NO_FILE} {self.firsts[row].path}")
        if not record.caption.strip():
            return "the caption is empty"
        return one_line(f"the caption is {empty}: {record.caption!r}", 120) if empty else ""


def _empty_reasons(listing: Listing) -> list[str]:
    """Return why the caption of each record says nothing, an empty string where it may say something.

    Where most captions are numbers, these are what the pictures show, such as digits.
    """
    reasons = [says_nothing(record.caption) if record.caption.strip() else "" for record in listing.records]
    most = 2 * reasons.count(NUMBER) > sum(bool(record.caption.strip()) for record in listing.records)
    return ["" if most and reason == NUMBER else reason for reason in reasons]


def assemble(
    source: str, reader: str, listing: Listing, draw: Draw | None, keep_empty: bool = False, least: int | None = None
) -> Pairs:
    """Check a reader's records and assign each one to a split.

    Args:
        source: Path of the data that was read.
        reader: Name of the reader.
        listing: Records of the reader.
        draw: Seed and shares for the splits that the source does not have; None puts all pairs into `added`.
        keep_empty: Whether captions that say nothing about a picture are used too.
        least: Least number of images that can be used; by default three, and one without splits.

    Raises:
        InputError: Fewer than three images can be used (without splits, none), or the source's splits leave too few
            images to train on.
    """
    listing = listing.with_files()
    has_splits = draw is not None and bool(listing.split) and any(record.split for record in listing.records)
    features = listing.features
    empty = [""] * len(listing.records) if keep_empty or features is not None else _empty_reasons(listing)
    evaluation = evaluation_splits(record.split for record in listing.records) if has_splits else {}
    checks = Checks(has_splits, features is not None and features.captions is None, evaluation)
    rows: list[int] = []
    skipped: list[Skip] = []
    for pair, record in enumerate(listing.records):
        rows.append(checks.row(record))
        reason = checks.problem(record, rows[-1], empty[pair])
        if reason:
            skipped.append(Skip(printable(record.where), printable(reason), pair))
    image_names = [printable(record.image) for record in checks.firsts]
    least = (1 if draw is None else MIN_IMAGES) if least is None else least
    _refuse_too_few(source, len(checks.split_of), skipped, least, listing)
    if draw is None:
        split_of, split = dict.fromkeys(checks.split_of, ADDED), ""
    else:
        split_of, note = split_images(source, checks.split_of, image_names, draw, has_splits)
        split = f", split {f'from {listing.split}' if has_splits else ''}{note}"
    splits = np.array([split_of.get(row, SKIPPED) for row in rows], dtype="<U7")  # room for `skipped`
    splits[[skip.pair for skip in skipped]] = SKIPPED
    names = dict.fromkeys(name for record in listing.records for name in record.extra)
    placed = list(zip(listing.records, rows, strict=True))
    own_names = None
    if any(row >= 0 and record.image != checks.firsts[row].image for record, row in placed):
        own_names = [printable(record.image) if row >= 0 else "" for record, row in placed]
    if features is not None:
        features = replace(features, rows=np.array([record.row for record in checks.firsts], dtype=np.int64))
    description = (
        f"{reader}: image from {listing.image}, caption from {listing.caption}{split}"
        f"{'; ' * bool(listing.reading)}{listing.reading}"
    )
    return Pairs(
        source=source,
        names=image_names,
        paths=[record.path for record in checks.firsts if record.path is not None],
        captions=_printable(record.caption for record in listing.records),
        image_of=np.array(rows, dtype=np.int64),
        split=splits,
        columns={
            printable(name): _printable(record.extra.get(name, "") for record in listing.records) for name in names
        },
        description=one_line(printable(description), 1000),
        skipped=tuple(skipped),
        features=features,
        own_names=own_names,
    )


def _printable(texts: Iterable[str]) -> list[str]:
    """Return texts as `printable` does, without a call for each that is plain ASCII."""
    return [text if text.isascii() else printable(text) for text in texts]


def _refuse_too_few(source: str, usable: int, skipped: list[Skip], least: int, listing: Listing) -> None:
    """Raise InputError if too few images can be used."""
    if usable >= least:
        return
    image, is_needed = f"image{'s' * (usable != 1)}", "is needed" if least == 1 else "are needed"
    line = f"{source}: {usable} {image} can be used and at least {least} {is_needed}"
    if skipped:
        skip = skipped[0]
        count = "1 pair was skipped" if len(skipped) == 1 else f"{len(skipped)} pairs were skipped, the first"
        line += f"; {count}: {skip.where}: {skip.reason}"
        if not usable and skip.reason.startswith(NO_FILE) and listing.folder is not None:
            line += f"; {folder_hint(listing.folder, listing.records[skip.pair].image)}"
    raise InputError(line)
