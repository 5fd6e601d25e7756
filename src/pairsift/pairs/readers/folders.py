"""The `folder` reader (images with a text file each) and the `flickr8k` reader (images/, captions.csv, splits/)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from statistics import median

from pairsift.errors import InputError
from pairsift.pairs.image_files import IMAGE_SUFFIXES, Parts, subfolders, walk
from pairsift.pairs.readers.rows import CAPTION_COLUMNS, SPLIT_COLUMNS, find_column
from pairsift.pairs.readers.shards import REPEATING, ROLES, column_name, fields_of, is_repeated, split_column_of
from pairsift.pairs.readers.tables import FORMATS, read_table
from pairsift.pairs.records import Columns, Listing, Record
from pairsift.pairs.splits import SPLIT_WORDS
from pairsift.pairs.text import Text, as_text, decode, how_read, printable, quoted, read_text

METADATA = "metadata"  # name of a table of the images of its folder
TABLES = FORMATS.keys() - {".txt"}  # here, a text file holds the captions of an image
TEXT_SUFFIXES = (".caption", ".cap", ".txt")  # the first one counts where an image has several
TEXT_FOLDERS = ("capt", "text", "txt", "desc", "prompt", "label")  # in names of folders, the likeliest first
LONG = 200  # characters; where half of the lines are longer, they are paragraphs
ALIKE = 0.9  # share of the text files with the same number of lines, if these are captions
BULLET = re.compile(r"(?:[-*•·]|\d+[.)])\s")
LABEL = re.compile(r"[^\W\d][\w /]{0,30}:\s")

Captions = tuple[str, list[tuple[str, str]], str]  # the field that has them, the captions with places, and the problem


@dataclass(slots=True)
class ImageFile:
    """An image file and the captions that lie beside it.

    Attributes:
        path: The image.
        name: Its path from the folder of the source on.
        text: Its text file, or None.
        content: The decoded text; None if there is none.
        fields: Fields of its JSON file.
        problem: Reason why these cannot be used, or an empty string.
    """

    path: Path
    name: str
    text: Path | None = None
    content: str | None = None
    fields: dict[str, object] = field(default_factory=dict)
    problem: str = ""


def read_folder(path: Path, columns: Columns) -> Listing:
    """Read images with a text file of the same name, in this folder and all folders below it.

    The text file (`.caption`, `.cap`, `.txt`) lies beside the image, or at the same place of another folder, as
    `captions/a/1.txt` does for `images/a/1.jpg`. It is a caption, or each of its lines is one. Without a text file, a
    field of a JSON file beside the image is the caption; its other fields travel along. Where there are no such files,
    tables called `metadata` are read. If the images' folders at one depth all have names of splits (`train`, `val`,
    ...), these folders define the splits; else a field such as `split` does.

    Raises:
        InputError: No image in the folder has a caption.
    """
    walked = walk(path)
    images = [
        ImageFile(file, file.relative_to(path).as_posix())
        for file in walked.files
        if file.suffix.lower() in IMAGE_SUFFIXES
    ]
    texts, notes = _texts(walked.files)
    orphans, note = _match(path, images, texts)
    _read_fields(images, walked.files)
    if not any(image.text or _caption_field(image.fields, columns) for image in images):
        tables = [file for file in walked.files if file.stem.lower() == METADATA and file.suffix.lower() in TABLES]
        if tables:
            return _read_metadata(path, tables, images, columns)
        raise InputError(_nothing(path, images, walked.files))
    decoded = [text for image in images for text in _decode(image)]
    whole, choice = _are_whole([image.content for image in images if image.content], columns.text_file)
    records = [record for image in images for record in _records(path, image, whole, columns)]
    records += [Record(text.relative_to(path).as_posix(), "", None, "", problem=why) for text, why in orphans]
    records += [
        Record(folder.relative_to(path).as_posix(), "", None, "", problem=f"cannot be read: {why}")
        for folder, why in walked.unread
    ]
    records, split = _with_splits(path, records, columns.split)
    return Listing(
        records,
        "image files",
        _place_of_captions(images, columns),
        split,
        reading="; ".join(filter(None, (how_read(decoded), choice, note, *notes, walked.note))),
    )


def _key(file: Path) -> str:
    """Return the path without its extension, which is the same for an image and its text file."""
    return str(file.with_suffix(""))


def _texts(files: Iterable[Path]) -> tuple[dict[str, Path], list[str]]:
    """Return the text file of each name, and notes on the text files of which others take the place."""
    texts: dict[str, Path] = {}
    passed: Counter[str] = Counter()
    for suffix in TEXT_SUFFIXES:
        for file in files:
            if file.suffix.lower() == suffix and (kept := texts.setdefault(_key(file), file)) is not file:
                passed[f"{suffix} files passed over for {kept.suffix} files of the same name"] += 1
    return texts, [f"{what}: {count}" for what, count in passed.items()]


def _match(root: Path, images: list[ImageFile], texts: dict[str, Path]) -> tuple[list[tuple[Path, str]], str]:
    """Give each image its text file; return those of no image with the reason, and a note on those of other folders."""
    owners: dict[Path, ImageFile] = {}
    for image in images:
        _claim(image, texts.get(_key(image.path)) or texts.get(str(image.path)), owners)
    paired = {PurePosixPath(image.name).parts[:-1] for image in owners.values()}
    above = {parts[:depth] for parts in paired for depth in range(1, len(parts) + 1)}
    spare = [text for text in texts.values() if text not in owners]
    taken: list[ImageFile] = []
    passed: dict[Path, str] = {}
    by_place: dict[Parts, list[tuple[int, Path]]] = {}
    for text in spare:
        for place, folder in _places(text.relative_to(root).as_posix(), paired, above):
            by_place.setdefault(place, []).append((_rank(folder), text))
    for image in images:
        if image.text is not None or image.problem:
            continue
        found = sorted({pair for place, _ in _places(image.name, paired, above) for pair in by_place.get(place, [])})
        best = [text for rank, text in found if rank == found[0][0]]
        if len(best) > 1:
            fitting = " and ".join(repr(text.relative_to(root).as_posix()) for text in best[:2])
            image.problem = f"its caption may be in {fitting}: move one of them away"
        elif best:
            _claim(image, best[0], owners)
            taken.append(image)
            passed |= {text: f"the caption of its image is in {best[0].relative_to(root)}" for _, text in found[1:]}
    has_no_image = f"has no image of the same name beside it ({', '.join(sorted(IMAGE_SUFFIXES))})"
    orphans = [(text, passed.get(text, has_no_image)) for text in spare if text not in owners]
    example = f", such as {taken[0].text.relative_to(root)} for {taken[0].name}" if taken and taken[0].text else ""
    return orphans, f"text files in other folders than their images: {len(taken)}{example}" * bool(taken)


def _claim(image: ImageFile, text: Path | None, owners: dict[Path, ImageFile]) -> None:
    """Give an image a text file, unless that belongs to another image."""
    owner = owners.setdefault(text, image) if text is not None else image
    if owner is image:
        image.text = text
    elif text is not None:
        image.problem = f"{text.name} belongs to {owner.path.name} already"


def _places(name: str, paired: set[Parts], above: set[Parts]) -> Iterator[tuple[Parts, str]]:
    """Yield the parts of a file's path without each of its folders, and that folder's name; and the whole path.

    No folder is left out that contains images with their text files beside them, nor one with the name of a split:
    files of the same name in it and in another folder do not belong together.

    Args:
        name: The path, from the source on.
        paired: Folders with images and their text files beside them.
        above: These folders, and all those that contain them.
    """
    parts = PurePosixPath(name).with_suffix("").parts
    if parts[:-1] not in paired:
        yield parts, ""
    for depth, folder in enumerate(parts[:-1]):
        if folder.lower() not in SPLIT_WORDS and parts[: depth + 1] not in above:
            yield (*parts[:depth], *parts[depth + 1 :]), folder


def _rank(folder: str) -> int:
    """Return how early the name of a folder stands among those of folders of captions."""
    return next((rank for rank, word in enumerate(TEXT_FOLDERS) if word in folder.lower()), len(TEXT_FOLDERS))


def _read_fields(images: list[ImageFile], files: Iterable[Path]) -> None:
    """Read the fields of the JSON file beside each image."""
    data = {_key(file): file for file in files if file.suffix.lower() == ".json"}
    for image in images:
        file = data.get(_key(image.path))
        if file is not None:
            try:
                image.fields = fields_of(file.read_bytes(), file)[0] or {}
            except (OSError, InputError) as error:
                image.problem = image.problem or f"{file.name} cannot be read: {error}"


def _caption_field(fields: Mapping[str, object], columns: Columns) -> str | None:
    """Return the field of a JSON file that has the caption, or None."""
    return find_column(list(fields), CAPTION_COLUMNS if columns.caption is None else (columns.caption.strip().lower(),))


def _decode(image: ImageFile) -> Iterator[Text]:
    """Read the text file of an image, and yield how it was decoded."""
    if image.text is None or image.problem:
        return
    try:
        text = decode(image.text.read_bytes(), image.text)
    except (OSError, InputError) as error:
        image.problem = f"{image.text.name} cannot be read: {error}"
        return
    image.content = text.content.replace("\r\n", "\n").replace("\r", "\n").rstrip()
    if not image.content:
        image.problem = f"{image.text.name} is empty"
    yield replace(text, content="")


def _are_whole(texts: Sequence[str], text_file: str | None) -> tuple[bool, str]:
    """Return whether text files are one caption each, and not a caption a line; and a note where this matters."""
    several = sum("\n" in text.strip() for text in texts)
    if not several:
        return False, ""
    whole = text_file == "whole" if text_file is not None else _are_paragraphs(texts)
    says = (
        "each as one caption (--text-file lines: a caption a line)"
        if whole
        else "a caption a line (--text-file whole: each as one caption)"
    )
    return whole, f"text files of several lines: {several}, {says}"


def _are_paragraphs(texts: Sequence[str]) -> bool:
    """Return whether the lines of texts go on with the text, and are no captions of their own.

    They do if most of them go on with a sentence, a list or a form. Otherwise they are captions if nearly all texts
    have the same number of lines. If not, they are paragraphs if blank lines are between most of them, or if they are
    long.
    """
    lines = [[line.strip() for line in text.strip().split("\n")] for text in texts]
    several = [part for part in lines if len(part) > 1]
    later = [(part[0], before, line) for part in several for before, line in pairwise(part) if line]
    if 2 * sum(_goes_on(first, line) for first, _, line in later) > len(later):
        return True
    is_apart = 2 * sum(not before for _, before, _ in later) > len(later)
    number, often = Counter(len([*filter(None, part)]) for part in lines).most_common(1)[0]
    if often >= ALIKE * len(lines) and number > 1 + is_apart:
        return False
    return is_apart or median(len(line) for part in several for line in part if line) > LONG


def _goes_on(first: str, line: str) -> bool:
    """Return whether a line goes on with the text that a first line begins: its sentence, its list or its form."""
    if BULLET.match(line):
        return not BULLET.match(first)
    label, before = LABEL.match(line), LABEL.match(first)
    if label:
        return before is None or label[0].lower() != before[0].lower()
    return line[0].islower() and not first[0].islower()


def _records(root: Path, image: ImageFile, whole: bool, columns: Columns) -> list[Record]:
    """Return the records of an image: one for each of its captions, or a single one with the problem."""
    extra = {name: printable(as_text(value)) for name, value in image.fields.items()}
    holder, captions, problem = _captions_of_text(root, image, whole)
    if columns.caption is not None or not (problem or captions):
        extra |= {"txt": printable(image.content)} if image.content else {}
        holder, captions, problem = _captions_of_fields(image, columns)
    extra = {column_name(name, ROLES): cell for name, cell in extra.items() if name != holder}
    if problem:
        return [Record(image.name, image.name, image.path, "", extra=extra, problem=problem)]
    return [Record(where, image.name, image.path, caption, extra=extra) for where, caption in captions]


def _captions_of_text(root: Path, image: ImageFile, whole: bool) -> Captions:
    """Return the field of a JSON file that repeats the caption, the captions with their places, and the problem."""
    if image.text is None or not image.content:
        return "", [], image.problem
    place = image.text.relative_to(root).as_posix()
    lines = [(number, line.strip()) for number, line in enumerate(image.content.split("\n"), 1) if line.strip()]
    captions = (
        [(place, image.content.strip())] if whole else [(f"{place} line {number}", line) for number, line in lines]
    )
    repeats = (name for name in REPEATING if is_repeated(image.fields.get(name), image.content))
    return next(repeats, ""), captions, image.problem


def _captions_of_fields(image: ImageFile, columns: Columns) -> Captions:
    """Return the field of a JSON file with the captions, the captions with their places, and the problem."""
    name = _caption_field(image.fields, columns)
    if name is None:
        named = f"no field {columns.caption!r} in a .json file" if columns.caption else "no .json file with a caption"
        return "", [], f"has no text file of the same name ({', '.join(TEXT_SUFFIXES)}), and {named}"
    value = image.fields[name]
    values = value if isinstance(value, list) else [value]
    if any(isinstance(cell, (dict, list)) for cell in values):
        return name, [], f"field {name!r} of its .json file holds a list or an object where text is needed"
    place = PurePosixPath(image.name).with_suffix(".json")
    wheres = [f"{place} caption {number}" if len(values) > 1 else str(place) for number in range(1, len(values) + 1)]
    captions = [*zip(wheres, map(as_text, values), strict=True)]
    return name, captions, "" if captions else f"field {name!r} of its .json file is empty"


def _with_splits(path: Path, records: list[Record], asked: str | None) -> tuple[list[Record], str]:
    """Return the records with their splits, and the place of these; an empty string where there are none."""
    folders = [PurePosixPath(record.image).parts[:-1] for record in records if record.image]
    for depth in range(0 if asked is not None else min(map(len, folders), default=0)):
        if all(parts[depth].lower() in SPLIT_WORDS for parts in folders):
            words = [PurePosixPath(record.image).parts[depth] if record.image else "" for record in records]
            return [_with_split(record, word, None) for record, word in zip(records, words, strict=True)], (
                "the folders' names"
            )
    column = split_column_of(path, records, asked)
    if column is None:
        return records, ""
    words = [record.extra.get(column, "").strip() for record in records]
    records = [_with_split(record, word, column) for record, word in zip(records, words, strict=True)]
    return records, f"field {column!r} of the .json files"


def _with_split(record: Record, word: str, column: str | None) -> Record:
    """Return a record with its split, without the column of the splits and without others of such a name."""
    extra = {column_name(name, SPLIT_COLUMNS): cell for name, cell in record.extra.items() if name != column}
    return replace(record, split=word, extra=extra)


def _place_of_captions(images: Iterable[ImageFile], columns: Columns) -> str:
    """Return where the captions are, for the description."""
    places: dict[str, None] = {}
    for image in images:
        if image.text is not None and columns.caption is None:
            places[f"the {image.text.suffix.lower()} file of each image"] = None
        elif name := _caption_field(image.fields, columns):
            places[f"field {name!r} of the .json files"] = None
    return " or ".join(places)


def _nothing(path: Path, images: Sequence[ImageFile], files: Sequence[Path]) -> str:
    """Return the error of a folder without an image that has a caption: what is there, and what helps."""
    kinds = Counter(file.suffix.lower() for file in files if file.suffix.lower() not in IMAGE_SUFFIXES)
    others = ", ".join(f"{count} {kind or 'without an extension'}" for kind, count in kinds.most_common(4))
    line = f"{path}: found {len(images)} images, {f'other files: {others}' if others else 'no other files'}"
    if images:
        line += f"; the captions of x.jpg have to be in a file of the same name: x{', x'.join(TEXT_SUFFIXES)} or x.json"
    problem = next((f"{image.name}: {image.problem}" for image in images if image.problem), "")
    if problem:
        return f"{line}; {problem}"
    tables = [file.relative_to(path).as_posix() for file in files if file.suffix.lower() in TABLES]
    if tables:
        return f"{line}; {'or ' * bool(images)}read one of its tables: {quoted(tables, 4)}"
    place = path.absolute()
    for folder in subfolders(place.parent) if images else []:
        if any((folder / images[0].name).with_suffix(suffix).is_file() for suffix in TEXT_SUFFIXES):
            return f"{line}; {folder} has such files: read {place.parent}, which contains both folders"
    return line if images else f"{line}; give a folder of images with captions, or a table"


def _read_metadata(root: Path, tables: Sequence[Path], images: Sequence[ImageFile], columns: Columns) -> Listing:
    """Read the tables `metadata` that name the images of their folders, as the library `datasets` has them."""
    listings = [read_table(table, columns, table.parent).with_files() for table in tables]
    records = []
    for table, listing in zip(tables, listings, strict=True):
        base = table.parent.relative_to(root)
        for record in listing.records:
            name = (base / record.image).as_posix() if record.image else ""
            records.append(replace(record, image=name, where=(base / record.where).as_posix()))
    spare = len({image.path for image in images} - {record.path for record in records})
    if not any(listing.split for listing in listings):
        records, split = _with_splits(root, records, columns.split)
    else:
        split = listings[0].split
    first = listings[0]
    notes = [listing.reading for listing in listings] + [f"images that no table names: {spare}"] * bool(spare)
    names = quoted([table.relative_to(root).as_posix() for table in tables], 3)
    return Listing(
        records,
        f"{first.image} of {names}",
        first.caption,
        split,
        reading="; ".join(dict.fromkeys(filter(None, notes))),
    )


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
        for name in read_text(file).content.split("\n"):
            if not name.strip():
                continue
            earlier = split_of.setdefault(name.strip(), word)
            if earlier != word:
                raise InputError(
                    f"{folder}: {name.strip()!r} is in both {earlier}.txt and {file.name}; take it out of one"
                )
    return split_of
