"""The `precomp` reader (region features with captions, as in SCAN) and the `now` reader (Noise of Web)."""

from __future__ import annotations

import csv
import glob
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pairsift.errors import InputError
from pairsift.pairs.precomputed import Floats, Precomputed, open_rows
from pairsift.pairs.records import Columns, Listing, Record
from pairsift.pairs.text import Text, how_read, one_line, quoted, read_text

STEMS = {"train": ("train",), "dev": ("dev", "val"), "test": ("testall", "test")}  # the first that exists is used
TOKENS = ("jieba", "bpe", "bert")
REPEATS = 5  # rows per image in files that repeat each image for its five captions
PROBES = 20  # places where a file is checked for repeated images


@dataclass(frozen=True)
class SplitFiles:
    """The two files of one split.

    Attributes:
        split: `train`, `dev` or `test`.
        stem: Beginning of the names of the files; `testall` is also a test split.
        images: File of features.
        captions: File of captions.
    """

    split: str
    stem: str
    images: Path
    captions: Path


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


def is_precomp(path: Path) -> bool:
    """Return whether a folder contains training features in one file."""
    return (path / "train_ims.npy").is_file()


def is_now(path: Path) -> bool:
    """Return whether a folder contains training features and captions as token ids."""
    return is_precomp(path) and any((path / f"train_caps_{tokens}.txt").is_file() for tokens in TOKENS)


def read_precomp(path: Path, _: Columns) -> Listing:
    """Read a folder of features: {train,dev,test}_ims.npy with _caps.txt or .tsv (Flickr30K, COCO, CC152K).

    `_ims.npy` is (images, regions, dim) or (images, dim). `_caps.txt` contains one caption per line, `_caps.tsv` an
    image id and a caption per line. There are as many captions as images, or k consecutive captions for each image. If
    there are as many, and the rows of `_ims.npy` come in groups of five equal rows, each image is read once, with five
    captions. `_ids.txt`, if it exists, names the images. `val` may replace `dev`. `testall` is the test split if it
    exists. Dev and test may be missing; they are then drawn from train.

    The vocabulary is `<folder>_vocab.json` in the folder, in `vocab/` in it or beside it, or beside it; or `vocab.json`
    in the folder.

    Raises:
        InputError: Files are missing, cannot be read, or do not fit each other.
    """
    name = glob.escape(path.resolve().name)
    vocabulary = find_vocabulary(path, (f"{name}_vocab.json",)) or find_vocabulary(path, ("vocab.json",), around=False)
    return listing(path, find_parts(path, ("caps.txt", "caps.tsv")), vocabulary, ids=False)


def read_now(path: Path, columns: Columns) -> Listing:
    """Read Noise of Web: {train,dev,test}_ims.npy with _caps_{jieba,bpe,bert}.txt, a list of token ids a line.

    The ids of a line are separated by commas or spaces; they become the caption, joined by spaces. The caption column
    set by the user selects the ids, `jieba`, `bpe` or `bert`. By default, the first kind that exists is read, or else
    `_caps.txt`. `_ids.txt` names the images, as for `precomp`. The vocabulary is the only file with the name
    `*_vocab_jieba.json` (or `bpe`, `bert`) in the folder, in `vocab/` in it or beside it, or beside it.

    Raises:
        InputError: Files are missing, cannot be read, or do not fit each other, or there are no ids of that name.
    """
    kinds = [tokens for tokens in TOKENS if (path / f"train_caps_{tokens}.txt").is_file()]
    tokens = columns.caption or next(iter(kinds), "")
    if columns.caption is not None and tokens not in kinds:
        raise InputError(f"{path}: has no train_caps_{tokens}.txt; its token ids are {quoted(kinds) or 'none'}")
    ending = f"caps_{tokens}.txt" if tokens else "caps.txt"
    vocabulary = find_vocabulary(path, (f"*_vocab_{tokens}.json",) if tokens else ("*_vocab.json",))
    return listing(path, find_parts(path, (ending,)), vocabulary, ids=True)


def find_parts(path: Path, endings: Sequence[str]) -> list[SplitFiles]:
    """Return the splits that a folder has, train first.

    Raises:
        InputError: Train is missing, or a split has only one of its two files.
    """
    parts = []
    for split, stems in STEMS.items():
        gap = ""
        for stem in stems:
            images = path / f"{stem}_ims.npy"
            captions = next((file for end in endings if (file := path / f"{stem}_{end}").is_file()), None)
            if images.is_file() and captions is not None:
                parts.append(SplitFiles(split, stem, images, captions))
                break
            if images.is_file() or captions is not None:
                gap = gap or f"has only one of {images.name} and {stem}_{endings[0]}"
        else:
            if gap or split == "train":
                raise InputError(f"{path}: {gap or 'has no train_ims.npy'}; put the missing file into the folder")
    return parts


def listing(path: Path, parts: list[SplitFiles], vocabulary: Path | None, ids: bool) -> Listing:
    """Return all records of these splits.

    Raises:
        InputError: A file cannot be read, or the files do not fit each other.
    """
    records: list[Record] = []
    texts: list[Text] = []
    shape, start, notes = None, 0, []
    for part in parts:
        values = open_rows(part.images)
        shape = shape or values.shape[1:]
        if values.shape[1:] != shape:
            raise InputError(f"{part.images}: a row is {values.shape[1:]} where {parts[0].images.name} has {shape}")
        texts.append(text := read_text(part.captions))
        tabbed = part.captions.suffix.lower() == ".tsv"
        lines = read_token_ids(text) if ids else read_lines(text, tabbed, len(values))
        part_records, note = records_of(part, values, lines, start)
        records += part_records
        notes.append(note)
        start += len(values)
    assert shape is not None
    numbers = Precomputed(tuple(part.images for part in parts), shape, np.zeros(0, np.int64), vocabulary, ids)
    captions = ", ".join(part.captions.name for part in parts) + (" (token ids)" if ids else "")
    return Listing(
        records,
        image=f"{'; '.join(notes)}; a row is {' x '.join(map(str, shape))}",
        caption=captions + (f" with {vocabulary.name}" if vocabulary else ""),
        split="the files' names",
        features=numbers,
        reading=how_read(texts),
    )


def records_of(part: SplitFiles, values: Floats, lines: list[Line], start: int) -> tuple[list[Record], str]:
    """Return the records of one split, and a description of its images.

    Args:
        part: Files of the split.
        values: Features of the split.
        lines: Captions of the split.
        start: Number of rows in the previous parts.

    Raises:
        InputError: The number of captions does not fit the number of images.
    """
    rows, total = len(values), len(lines)
    step = REPEATS if rows == total and repeats(values) else 1
    images = rows // step
    if not total or total % images:
        raise InputError(
            f"{part.captions}: holds {total} captions for the {rows} images in {part.images.name}; "
            "there must be as many, or the same number for each image"
        )
    per_image = total // images
    names = names_of(part, lines, images)
    records = [
        Record(
            where=f"{part.captions.name} line {position + 1}",
            image=f"{part.stem}/{names[position // per_image]}",
            path=part.images,
            caption=line.caption,
            split=part.split,
            problem=line.problem,
            row=start + position // per_image * step,
        )
        for position, line in enumerate(lines)
    ]
    fifth = f", every {REPEATS}th row" if step > 1 else ""
    return records, f"{part.images.name} ({images} images{fifth}, {per_image} captions each)"


def names_of(part: SplitFiles, lines: list[Line], images: int) -> list[str]:
    """Return the names of the images: ids of the file of ids, or of the lines, where they fit, else numbers."""
    file = part.images.with_name(f"{part.stem}_ids.txt")
    ids = read_ids(file) if file.is_file() else [line.image for line in lines]
    per_image = len(lines) // images
    if len(ids) == len(lines) and all(ids[place] == ids[place - place % per_image] for place in range(len(ids))):
        ids = ids[::per_image]
    return ids if len(ids) == images and any(ids) else [str(row) for row in range(images)]


def repeats(values: Floats) -> bool:
    """Return whether a file contains every image five times in a row.

    Only the first group, the last group and some groups between them are compared.
    """
    groups, remainder = divmod(len(values), REPEATS)
    if remainder or not groups:
        return False
    probes = np.unique(np.linspace(0, groups - 1, PROBES).astype(np.int64)).tolist()
    blocks = (values[REPEATS * group : REPEATS * (group + 1)] for group in probes)
    return all((block == block[0]).all() for block in blocks)


def find_vocabulary(path: Path, patterns: Sequence[str], around: bool = True) -> Path | None:
    """Return the only file with such a name in a folder, or None.

    With `around`, the folders are searched in this order: the folder, `vocab/` in it, `vocab/` beside it, and the
    folder above. In each folder, a pattern with several matches is ignored.
    """
    base = path.resolve()
    for folder in (base, base / "vocab", base.parent / "vocab", base.parent) if around else (base,):
        for pattern in patterns:
            matches = sorted(folder.glob(pattern))
            if len(matches) == 1:
                return matches[0]
    return None


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
        return [Line(line.strip()) for line in lines]
    try:
        rows = [row for row in csv.reader(io.StringIO(content, newline=""), delimiter="\t") if row]
    except csv.Error:
        rows = []
    if not rows or len(rows) % images:
        rows = [line.split("\t") for line in lines]
    return [
        Line(row[1].strip(), row[0].strip()) if len(row) > 1 else Line("", problem="has no second column")
        for row in rows
    ]


def read_token_ids(text: Text) -> list[Line]:
    """Read one list of token ids per line, separated by commas or spaces, and join the ids of each list by spaces.

    A line that contains anything else gets a problem.
    """
    result = []
    for line in text.content.replace("\r\n", "\n").removesuffix("\n").split("\n"):
        words = line.replace(",", " ").split()
        odd = next((word for word in words if not is_id(word)), None)
        problem = "" if odd is None else one_line(f"{odd!r} is no token id", 100)
        result.append(Line("" if problem else " ".join(str(int(word)) for word in words), problem=problem))
    return result


def is_id(word: str) -> bool:
    """Return whether a word is a number in the range of token ids; no vocabulary is larger."""
    return re.fullmatch("[0-9]{1,7}", word) is not None


def read_ids(file: Path) -> list[str]:
    """Read the lines of a file of ids, without blank lines.

    Raises:
        InputError: The file cannot be read or is empty.
    """
    return [line.strip() for line in read_text(file).content.splitlines() if line.strip()]
