"""The `nuswide` reader: NUS-WIDE, photographs of Flickr in folders by concept, with their tags as captions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pairsift.errors import InputError
from pairsift.pairs.records import Columns, Listing, Record
from pairsift.pairs.text import Text, how_read, quoted, read_text

IMAGES = "ImageList/Imagelist.txt"
SPLITS = {"train": "ImageList/TrainImagelist.txt", "test": "ImageList/TestImagelist.txt"}
TAGS = "NUS_WID_Tags/All_Tags.txt"
FOLDER = "Flickr"
IMAGE_NAME = re.compile(r".*?_([0-9]{1,19})\.[A-Za-z]+")  # NNNN_ID.jpg
ID = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of a list of images.

    Attributes:
        where: The line as the user knows it, such as `Imagelist.txt line 3`.
        name: Concept and file name, such as `actor/0001_2124494179.jpg`.
        photo: Id of the photograph at Flickr; -1 if the file name has none.
    """

    where: str
    name: str
    photo: int


def is_nuswide(path: Path) -> bool:
    """Return whether a folder contains NUS-WIDE's list of all images."""
    return (path / IMAGES).is_file()


def read_nuswide(path: Path, columns: Columns) -> Listing:
    r"""Read NUS-WIDE: the images in Flickr/, their list in ImageList/ and their tags in NUS_WID_Tags/All_Tags.txt.

    A line of `ImageList/Imagelist.txt` is `concept\NNNN_ID.jpg`, an image in `Flickr/concept/`; of a longer path the
    last two parts count. A line of `NUS_WID_Tags/All_Tags.txt` is an id and then the tags, between white space. The
    caption of an image is its tags in their order, joined by blanks.

    The two files of the distribution have the same order, as others have checked. Lines are nevertheless matched by id,
    so that a list that was shortened or sorted reads the same. Some photographs lie in two folders and have two lines
    of tags: the first image takes the first line, as the common order says. It is assumed that the files are UTF-8 and
    that zeros before an id mean nothing; no public description says so.

    `TrainImagelist.txt` and `TestImagelist.txt`, if they exist, are the splits, and an image in neither is unused. So
    shorter lists make a sample, such as GSC's 102,000 random images, whose names are not published.

    Raises:
        InputError: A part of the layout is missing or cannot be read, no line of tags begins with an id, two lists name
            the same image, or they name no image of `Imagelist.txt`.
    """
    base = columns.folder or path / FOLDER
    for part in (IMAGES, TAGS):
        if not (path / part).is_file():
            raise InputError(f"{path}: the reader 'nuswide' needs {part} in this folder")
    if not base.is_dir():
        raise InputError(f"{path}: has no folder {FOLDER} of images; put it there, or name it with --image-folder")
    list_text, tags_text = read_text(path / IMAGES), read_text(path / TAGS)
    images = listed(path / IMAGES, list_text)
    tags = read_tags(path / TAGS, tags_text)
    records = [record(image, base, *caption) for image, caption in zip(images, match_tags(images, tags), strict=True)]
    split_of, strangers = read_splits(path, {image.name for image in images})
    if split_of:
        records = [replace(image_record, split=split_of.get(image_record.image, "")) for image_record in records]
    photos = {image.photo for image in images if image.photo >= 0}
    lines_of_no_image = sum(len(lines) for photo, lines in tags.items() if photo not in photos)
    reading = [how_read([list_text, tags_text])]
    if lines_of_no_image:
        reading.append(f"lines of All_Tags.txt whose id no image has: {lines_of_no_image}")
    return Listing(
        records + strangers,
        f"Imagelist.txt in {base}",
        "the tags in All_Tags.txt",
        "TrainImagelist.txt and TestImagelist.txt" if split_of else "",
        reading="; ".join(filter(None, reading)),
    )


def lines_of(text: Text) -> Iterable[tuple[int, str]]:
    """Return the lines that are not blank, without white space around them, and their numbers."""
    lines = text.content.replace("\r\n", "\n").replace("\r", "\n").split("\n")  # tags may contain other line ends
    return ((number, line.strip()) for number, line in enumerate(lines, 1) if line.strip())


def listed(path: Path, text: Text) -> list[Listed]:
    """Return the images that a list names."""
    images = []
    for number, line in lines_of(text):
        parts = [part for part in line.replace("\\", "/").split("/") if part]
        match = IMAGE_NAME.fullmatch(parts[-1]) if parts else None
        name = "/".join(parts[-2:])
        images.append(Listed(f"{path.name} line {number}", name, int(match[1]) if match else -1))
    return images


def read_tags(path: Path, text: Text) -> dict[int, list[str]]:
    """Return the tags of each line of an id, in their order; lines that do not begin with an id are under -1.

    Raises:
        InputError: No line begins with an id.
    """
    tags: dict[int, list[str]] = {}
    for _, line in lines_of(text):
        number_word, *words = line.split()
        photo = int(number_word) if ID.fullmatch(number_word) else -1
        tags.setdefault(photo, []).append(" ".join(words))
    if not tags.keys() - {-1}:
        raise InputError(f"{path}: no line begins with the id of an image; each has to be an id and then tags")
    return tags


def match_tags(images: list[Listed], tags: dict[int, list[str]]) -> Iterable[tuple[str, str]]:
    """Return the caption of each image, and the reason why there is none.

    The k-th image with an id has the k-th line with this id. If there are more of the one than of the other, the lines
    must be alike.
    """
    counts = Counter(image.photo for image in images)
    seen: Counter[int] = Counter()
    for image in images:
        place = seen[image.photo]
        seen[image.photo] += 1
        lines = tags.get(image.photo, [])
        if image.photo < 0:
            yield "", f"{quoted([image.name])} is not a name like concept\\0001_123456.jpg, with the photograph's id"
        elif not lines:
            yield "", f"All_Tags.txt has no line for its id {image.photo}"
        elif len(lines) != counts[image.photo] and len(set(lines)) > 1:
            yield "", f"All_Tags.txt has {len(lines)} different lines for its id {image.photo}"
        else:
            line = lines[min(place, len(lines) - 1)]
            yield line, "" if line else f"All_Tags.txt has no tags for its id {image.photo}"


def record(image: Listed, base: Path, tags: str, problem: str) -> Record:
    """Return the record of an image."""
    return Record(
        where=image.where,
        image=image.name,
        path=base / image.name,
        caption=tags,
        extra={"flickr_id": str(image.photo) if image.photo >= 0 else ""},
        problem=problem,
    )


def read_splits(path: Path, names: set[str]) -> tuple[dict[str, str], list[Record]]:
    """Return the split of each image, and a record for each listed image that is not among `names`.

    Both are empty if there are no lists of splits.

    Raises:
        InputError: A list cannot be read, two lists name the same image, or they name none of these.
    """
    split_of: dict[str, str] = {}
    strangers = []
    files = {split: path / file for split, file in SPLITS.items() if (path / file).is_file()}
    for split, file in files.items():
        for image in listed(file, read_text(file)):
            if image.name not in names:
                strangers.append(Record(image.where, image.name, None, "", split, problem="is not in Imagelist.txt"))
            elif split_of.setdefault(image.name, split) != split:
                raise InputError(f"{file}: {image.name!r} is in TrainImagelist.txt too; take it out of one")
    if files and not split_of:
        raise InputError(
            f"{path / 'ImageList'}: {quoted(file.name for file in files.values())} name no image of "
            "Imagelist.txt; take away the lists that belong to other images"
        )
    return split_of, strangers
