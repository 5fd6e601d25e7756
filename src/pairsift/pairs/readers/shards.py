"""The `shards` reader: tar files with x.jpg, x.txt and x.json for each pair, as img2dataset and WebDataset do it."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from pairsift.errors import InputError
from pairsift.pairs.embedded import Store
from pairsift.pairs.readers.folders import IMAGE_SUFFIXES, walk
from pairsift.pairs.readers.rows import CAPTION_COLUMNS, SPLIT_COLUMNS, find_column
from pairsift.pairs.readers.tars import Contents, Member, scan
from pairsift.pairs.records import Columns, Listing, Record
from pairsift.pairs.splits import SPLIT_WORDS
from pairsift.pairs.text import Text, as_text, decode, how_read, one_line, printable, quoted

ENDINGS = (".tar", ".tar.gz", ".tgz")  # compressed files are found, so that they are told about
ROLES = ("image", "caption")  # names of columns that fields of the JSON files must not take
REPEATING = ("caption", "captions")  # fields that repeat the text file, as img2dataset writes them


@dataclass(slots=True)
class Sample:
    """The files of a tar file that belong together, because their names are equal up to the first dot.

    Attributes:
        shard: Path of the tar file within the source.
        where: The sample as the user knows it, such as `00000.tar sample 000000012`.
        name: Name of the sample over all tar files, such as `00000/000000012`.
        key: Name of the sample in its tar file.
        members: All files, in their order.
        image: The image; None if there is none.
        spare: Other images, which have no caption of their own.
        text: The text file; None if there is none.
        data: The JSON file; None if there is none.
        holder: Field of the JSON file that holds the caption or the captions; empty if the text file holds it.
        repeats: Field of the JSON file that repeats the caption of the text file; empty if there is none.
    """

    shard: PurePosixPath
    where: str
    name: str
    key: str
    members: list[Member]
    image: Member | None = None
    spare: list[Member] = field(default_factory=list)
    text: Member | None = None
    data: Member | None = None
    holder: str = ""
    repeats: str = ""

    def ending(self, member: Member) -> str:
        """Return the name of a file of the sample after the key and its dot."""
        return member.name[len(self.key) + 1 :]


@dataclass(slots=True)
class Item:
    """A sample, or a tar file as a whole that has a problem, and the records made of it."""

    sample: Sample | None
    records: list[Record]


@dataclass
class Reading:
    """The facts that are gathered while samples are read.

    Attributes:
        texts: Decoded files that are not plain UTF-8.
        captions: Places of captions, for the description: `text` and names of fields.
        broken: Number of JSON files that are no JSON objects.
        fields: Names of the fields of the JSON files.
    """

    texts: list[Text] = field(default_factory=list)
    captions: dict[str, None] = field(default_factory=dict)
    broken: int = 0
    fields: dict[str, None] = field(default_factory=dict)


def is_shards(path: Path) -> bool:
    """Return whether a path is a tar file, or a folder with tar files and no images beside them.

    In a folder, folders with the names of splits are looked into as well.
    """
    if not path.is_dir():
        return path.name.lower().endswith(ENDINGS)
    try:
        with os.scandir(path) as entries:
            folders = [entry.path for entry in entries if entry.name.lower() in SPLIT_WORDS and entry.is_dir()]
        names = [name for folder in [str(path), *folders] for name in os.listdir(folder) if name[0] != "."]
    except OSError:
        return False
    has_images = any(os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES for name in names)
    return not has_images and any(name.lower().endswith(ENDINGS) for name in names)


def read_shards(path: Path, columns: Columns) -> Listing:
    """Read tar files of samples: an image, and a text file or a JSON file with the caption, or both.

    The text file as a whole is a caption; without one, it is a field of the JSON file, or a list of captions. The
    other fields travel along. Images are written into the cache folder, one at a time. If folders or names of the tar
    files say which are for training (`train/00000.tar`, `cc3m-train-0000.tar`), these are the splits; else a field
    such as `split` is.

    Raises:
        InputError: The path holds no tar file, there is no such caption field, or the images cannot be written.
    """
    return read_samples(path, columns)[1]


def read_samples(path: Path, columns: Columns) -> tuple[list[Item], Listing]:
    """Read tar files as `read_shards` does, and return the samples beside their records.

    Raises:
        InputError: As `read_shards`.
    """
    tars = [path] if path.is_file() else [file for file in walk(path) if file.name.lower().endswith(ENDINGS)]
    if not tars:
        raise InputError(f"{path}: found no .tar file; the reader 'shards' needs one, or a folder with some")
    reading = Reading()
    items: list[Item] = []
    with Contents() as contents:
        for tar in tars:
            place = PurePosixPath(tar.relative_to(path).as_posix() if tar != path else tar.name)
            items += _items_of_tar(tar, place, tar == path, contents, columns, reading)
        if columns.caption is not None and find_column(list(reading.fields), (_plain(columns.caption),)) is None:
            raise InputError(
                f"{path}: no field {columns.caption!r} in the .json files, which have the fields "
                f"{quoted(reading.fields) or 'none'}; name another with --caption-column, or leave it out"
            )
        _store_images(items, Store(path, "", columns.cache, tars), contents)
    split = _take_splits(items)
    listing = Listing(
        [record for item in items for record in item.records],
        image=f"{len(tars)} tar file{'s' * (len(tars) != 1)}",
        caption=" or ".join(reading.captions) or "nowhere",
        split=split,
        reading=_notes(reading),
    )
    return items, listing


def group(members: Sequence[Member]) -> list[tuple[str, list[Member]]]:
    """Return the samples of a tar file: their keys, and their files in order.

    The key of a file is its name up to the first dot after its folders. If a name comes again, a new sample begins.
    """
    samples: list[tuple[str, list[Member]]] = []
    open_samples: dict[str, tuple[list[Member], set[str]]] = {}
    for member in members:
        first, dot, _ = member.base.partition(".")
        if not dot or not first:
            continue
        key = member.name[: len(member.name) - len(member.base)] + first
        files, names = open_samples.get(key, ([], set()))
        if not files or member.name.lower() in names:
            files, names = open_samples[key] = ([], set())
            samples.append((key, files))
        files.append(member)
        names.add(member.name.lower())
    return samples


def _suffix(member: Member) -> str:
    return "." + member.base.rpartition(".")[2].lower()


def _is_image(member: Member) -> bool:
    return _suffix(member) in IMAGE_SUFFIXES


def _is_text(member: Member) -> bool:
    return _suffix(member) == ".txt"


def sort_out(sample: Sample) -> None:
    """Set the image, the text file and the JSON file of a sample: those with the fewest dots in their names."""

    def dots(member: Member) -> int:
        return sample.ending(member).count(".")

    def pick(files: list[Member]) -> Member | None:
        return min(files, key=lambda member: (bool(member.problem), dots(member)), default=None)

    images = [member for member in sample.members if _is_image(member)]
    sample.image = pick(images)
    sample.text = pick([member for member in sample.members if _is_text(member)])
    sample.data = pick([member for member in sample.members if _suffix(member) == ".json"])
    if sample.image is not None:
        sample.spare = [file for file in images if file is not sample.image and dots(file) == dots(sample.image)]


def fields_of(raw: bytes, path: Path) -> tuple[dict[str, object] | None, Text]:
    """Return the fields of a JSON file, or None if it is no JSON object; and its text.

    Raises:
        InputError: The file starts as UTF-16 or UTF-32 and is not valid.
    """
    text = decode(raw, path)
    try:
        value = json.loads(text.content)
    except (ValueError, RecursionError):
        return None, text
    return (value if isinstance(value, dict) else None), text


def _plain(name: str) -> str:
    return name.strip().lower()


def _notes(reading: Reading) -> str:
    """Return what is unusual about the text and JSON files, for the description."""
    broken = f"JSON files that are no JSON objects and were passed over: {reading.broken}" if reading.broken else ""
    return "; ".join(filter(None, (how_read(reading.texts), broken)))


def _items_of_tar(
    tar: Path, place: PurePosixPath, single: bool, contents: Contents, columns: Columns, reading: Reading
) -> Iterator[Item]:
    """Yield the samples of a tar file with their records, and a record of its problem if it has one.

    Args:
        tar: The tar file.
        place: Path of the tar file within the source.
        single: Whether the source is this tar file.
        contents: Reader of the files within tar files.
        columns: Options of the source.
        reading: Facts, which are added to.
    """
    members, problem = scan(tar)
    seen: Counter[str] = Counter()
    for key, files in group(members):
        seen[key] += 1
        label = key if seen[key] == 1 else f"{key} ({seen[key]})"
        name = label if single else f"{place.with_suffix('')}/{label}"
        sample = Sample(place, one_line(f"{place} sample {label}"), name, key, files)
        sort_out(sample)
        yield Item(sample, _records(sample, contents, columns, reading))
    if problem:
        yield Item(None, [Record(str(place), "", None, "", problem=problem)])


def _records(sample: Sample, contents: Contents, columns: Columns, reading: Reading) -> list[Record]:
    """Return the records of a sample: one for each caption, or one with the problem, and one for each spare image."""
    fields, trouble = _fields(sample, contents, reading)
    captions, problem = _captions(sample, fields, contents, columns, reading)
    image = sample.image
    if image is None:
        links = [member for member in sample.members if member.problem]
        problem = f"{links[0].base} {links[0].problem}" if links else f"has no image, only {_bases(sample.members)}"
    elif image.problem or not image.size:
        problem = f"{image.base} {image.problem or 'is empty'}"
    elif problem and trouble:
        problem = trouble
    used = (sample.holder, sample.repeats)
    extra = {_column_name(name, ROLES): printable(as_text(value)) for name, value in fields.items() if name not in used}
    if sample.holder and sample.text is not None:
        extra.setdefault("txt", printable(_caption(sample.text, contents, reading)[0]))
    name = f"{sample.name}.{sample.ending(image)}" if image is not None else ""
    records = []
    for number, caption in enumerate(captions or [""], 1):
        where = f"{sample.where} caption {number}" if len(captions) > 1 else sample.where
        records.append(Record(where, name, None, caption, extra=extra, problem=problem))
    return records + [
        Record(sample.where, "", None, "", problem=f"{spare.base} has no caption: that is {image.base}'s already")
        for spare in sample.spare
        if image is not None
    ]


def _bases(members: Sequence[Member]) -> str:
    return one_line(", ".join(member.base for member in members), 100)


def _column_name(name: str, taken: Sequence[str]) -> str:
    """Return the name of the column for a field of the JSON files, which is another one where the name is taken."""
    return f"json {name}" if _plain(name) in taken else name


def _fields(sample: Sample, contents: Contents, reading: Reading) -> tuple[dict[str, object], str]:
    """Return the fields of the JSON file of a sample, and the problem of the file."""
    if sample.data is None:
        return {}, ""
    base = sample.data.base
    if sample.data.problem:
        return {}, f"{base} {sample.data.problem}"
    try:
        fields, text = fields_of(contents.read(sample.data), Path(base))
    except InputError as error:
        fields, text = None, Text(str(error))
    if fields is None:
        reading.broken += 1
        return {}, f"{base} is no JSON object"
    _note(text, reading)
    reading.fields.update(dict.fromkeys(fields))
    return fields, ""


def _note(text: Text, reading: Reading) -> None:
    if text.encoding != "utf-8" or text.western:
        reading.texts.append(replace(text, content=""))


def _captions(
    sample: Sample, fields: Mapping[str, object], contents: Contents, columns: Columns, reading: Reading
) -> tuple[list[str], str]:
    """Return the captions of a sample, and the problem; note where they are."""
    named = columns.caption
    if sample.text is not None and named is None:
        caption, problem = _caption(sample.text, contents, reading)
        reading.captions["the .txt files"] = None
        sample.repeats = next((name for name in REPEATING if _repeats(fields.get(name), caption)), "")
        return [caption], problem
    name = find_column(list(fields), CAPTION_COLUMNS if named is None else (_plain(named),))
    if name is None:
        return [], f"has no caption: no .txt file and no field {named or 'caption'!r} in a .json file"
    reading.captions[f"field {name!r} of the .json files"] = None
    sample.holder = name
    value = fields[name]
    values = value if isinstance(value, list) else [value]
    if any(isinstance(cell, (dict, list)) for cell in values):
        return [], f"field {name!r} holds a list or an object where text is needed"
    return [as_text(cell) for cell in values] or [""], ""


def _repeats(value: object, caption: str) -> bool:
    """Return whether the value of a field is a caption, but for white space around it."""
    values = value if isinstance(value, list) else [value]
    return len(values) == 1 and as_text(values[0]).strip() == caption.strip()


def _caption(member: Member, contents: Contents, reading: Reading) -> tuple[str, str]:
    """Return the text of a file without its last line end, and the problem."""
    if member.problem:
        return "", f"{member.base} {member.problem}"
    try:
        text = decode(contents.read(member), Path(member.base))
    except InputError as error:
        return "", str(error)
    _note(text, reading)
    return re.sub(r"\r?\n\Z", "", text.content), ""


def _store_images(items: Sequence[Item], store: Store, contents: Contents) -> None:
    """Write the images of the samples into the store, unless they are there, and put their paths into the records."""
    samples = [(item, item.sample.image) for item in items if item.sample is not None and item.sample.image is not None]
    readable = [(item, image) for item, image in samples if image.size and not image.problem]
    images = store.images()
    if images is None or len(images) != len(readable):
        images = [store.add(contents.read(image), image.base) for _, image in readable]
        if images:
            store.finish(images)
    for (item, _), stored in zip(readable, images, strict=True):
        item.records = [replace(record, path=stored.file) if record.image else record for record in item.records]


def _take_splits(items: Sequence[Item]) -> str:
    """Put the splits into the records, and return their place; an empty string where the source has none."""
    of_shards = [_split_of_place(item) for item in items]
    by_place = "train" in {SPLIT_WORDS.get(word) for word in of_shards}
    column = _split_column(items)
    for item, word in zip(items, of_shards, strict=True):
        item.records = [
            replace(
                record,
                split=word if by_place else record.extra.get(column or "", "").strip(),
                extra={
                    _column_name(name, SPLIT_COLUMNS): cell for name, cell in record.extra.items() if name != column
                },
            )
            for record in item.records
        ]
    if by_place:
        return "the folders' or tar files' names"
    return "" if column is None else f"field {column!r} of the .json files"


def _split_column(items: Sequence[Item]) -> str | None:
    """Return the field of the splits; None if no field of such a name has the word for a split in it."""
    records = [record for item in items for record in item.records]
    names = list(dict.fromkeys(name for record in records for name in record.extra))
    for candidate in SPLIT_COLUMNS:
        name = find_column(names, (candidate,)) or ""
        words = {record.extra.get(name, "").strip().lower() for record in records}
        if (words - {""}) & SPLIT_WORDS.keys():
            return name
    return None


def _split_of_place(item: Item) -> str:
    """Return the word for a split in the folder or the name of a sample's tar file; an empty string without one."""
    if item.sample is None:
        return ""
    place = item.sample.shard
    if len(place.parts) > 1 and place.parts[0].lower() in SPLIT_WORDS:
        return place.parts[0]
    words = [word for word in re.split(r"[^a-z]+", place.stem.lower()) if word and word in SPLIT_WORDS]
    return words[0] if len(set(words)) == 1 else ""
