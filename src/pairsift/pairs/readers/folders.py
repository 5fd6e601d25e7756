"""The `folder` reader (x.jpg beside x.txt) and the `flickr8k` reader (images/, captions.csv, splits/)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pairsift.errors import InputError
from pairsift.pairs.readers.tables import FORMATS, read_table
from pairsift.pairs.records import Columns, Listing, Record
from pairsift.pairs.splits import SPLIT_WORDS
from pairsift.pairs.text import Text, decode, how_read, quoted
from pairsift.source_path import walk

TABLES = FORMATS.keys() - {".txt"}  # here, a text file holds the captions of an image
CAPTIONS = "the .txt file beside each image"
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})


def read_folder(path: Path, _: Columns) -> Listing:
    """Read images with a text file of the same name beside them, in this folder and all folders below it.

    Every line of the text file that is not blank is a caption. If every image lies below a folder with the name of a
    split (`train`, `val`, ...), these folders define the splits.

    Raises:
        InputError: No image in the folder has a text file beside it.
    """
    files = walk(path)
    texts = {key(file): file for file in files if file.suffix.lower() == ".txt"}
    images = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
    if not any(key(image) in texts for image in images):
        tables = [file.name for file in files if file.suffix.lower() in TABLES and file.parent == path]
        hint = f"; read one of its tables instead: {quoted(tables, 4)}" if tables else ""
        raise InputError(
            f"{path}: found {len(images)} images and {len(texts)} .txt files, and no image x.jpg with its "
            f"captions in x.txt beside it{hint}"
        )
    owner: dict[str, Path] = {}
    records = []
    decoded: list[Text] = []
    for image in images:
        records += captions_of(path, image, texts.get(key(image)), owner.setdefault(key(image), image), decoded)
    problem = f"has no image of the same name beside it ({', '.join(sorted(IMAGE_SUFFIXES))})"
    records += [
        Record(str(text.relative_to(path)), "", None, "", problem=problem)
        for name, text in texts.items()
        if name not in owner
    ]
    folders = [record.image.split("/")[0].lower() for record in records if record.image]
    if all(folder in SPLIT_WORDS for folder in folders):
        records = [replace(record, split=record.image.split("/")[0]) for record in records]
        return Listing(records, "image files", CAPTIONS, "the folders' names", reading=how_read(decoded))
    return Listing(records, "image files", CAPTIONS, reading=how_read(decoded))


def key(file: Path) -> str:
    """Return the path without its extension, which is the same for an image and its text file."""
    return str(file.with_suffix(""))


def captions_of(root: Path, image: Path, text: Path | None, owner: Path, decoded: list[Text]) -> list[Record]:
    """Return the records of one image: one for each line of its text file, or a single one with the problem.

    The decoded text file is appended to `decoded`.
    """
    name = image.relative_to(root).as_posix()

    def unusable(problem: str) -> list[Record]:
        return [Record(name, name, image, "", problem=problem)]

    if text is None:
        return unusable("has no .txt file of the same name beside it")
    if owner != image:
        return unusable(f"{text.name} belongs to {owner.name} already")
    try:
        decoded.append(decode(text.read_bytes(), text))
    except (OSError, InputError) as error:
        return unusable(f"{text.name} cannot be read: {error}")
    lines = decoded[-1].content.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    place = text.relative_to(root).as_posix()
    records = [
        Record(f"{place} line {number}", name, image, line.strip())
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    return records or unusable(f"{text.name} is empty")


def is_flickr8k(path: Path) -> bool:
    """Return whether a folder contains captions.csv and images/."""
    return (path / "captions.csv").is_file() and (path / "images").is_dir()


def read_flickr8k(path: Path, columns: Columns) -> Listing:
    """Read a folder that contains images/, captions.csv (image, caption) and splits/train.txt, dev.txt, test.txt.

    The lists in splits/ contain one image name per line. An image that is in no list is unused. Without splits/, the
    split column of captions.csv is used. If there is no such column, the splits are drawn.

    Raises:
        InputError: A part of the layout is missing, the lists name no image of captions.csv, or two lists name the same
            image.
    """
    if not is_flickr8k(path):
        raise InputError(f"{path}: the reader 'flickr8k' needs captions.csv and images/ in this folder")
    listing = read_table(path / "captions.csv", columns, base=path / "images")
    if not (path / "splits").is_dir():
        return listing
    split_of = read_split_lists(path / "splits")
    records = [replace(record, split=split_of.get(record.image, "")) for record in listing.records]
    if not any(record.split for record in records):
        raise InputError(f"{path / 'splits'}: the lists name none of the images in {path / 'captions.csv'}")
    return replace(listing, records=records, split="the lists in splits/")


def read_split_lists(folder: Path) -> dict[str, str]:
    """Return the split of each image that the lists in a folder name.

    Raises:
        InputError: Two lists name the same image.
    """
    split_of: dict[str, str] = {}
    for file in sorted(folder.glob("*.txt")):
        word = file.stem.lower()
        if word not in SPLIT_WORDS:
            continue
        for name in decode(file.read_bytes(), file).content.split("\n"):
            if not name.strip():
                continue
            earlier = split_of.setdefault(name.strip(), word)
            if earlier != word:
                raise InputError(
                    f"{folder}: {name.strip()!r} is in both {earlier}.txt and {file.name}; take it out of one"
                )
    return split_of
