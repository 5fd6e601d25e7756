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
from pairsift.pairs.embedded import Store, in_rows
from pairsift.pairs.image_files import IMAGE_SUFFIXES, Walk, walk
from pairsift.pairs.readers.rows import CAPTION_COLUMNS, NO_COLUMN, SPLIT_COLUMNS, find_column
from pairsift.pairs.readers.tars import Member, Read, reading, scan
from pairsift.pairs.records import Columns, Listing, Record
from pairsift.pairs.splits import SPLIT_WORDS, is_split, split_of_place
from pairsift.pairs.text import Text, as_text, decode, how_read, one_line, printable, quoted
from pairsift.source_path import places_of, root_of

ENDINGS = (".tar", ".tar.gz", ".tgz")  # compressed files are found, so that they are told about
ROLES = ("image", "caption")  # names of columns that fields of the JSON files must not take
REPEATING = ("caption", "captions")  # fields that repeat the text file, as img2dataset writes them


@dataclass(slots=True)
class Sample:
    """The files of a tar file that belong together, because their names are equal up to the first dot.

    Without files, it stands for a tar file as a whole that has a problem. The image, the text file and the JSON file
    are those with the fewest dots in their names.

    Attributes:
        shard: Path of the tar file within the source.
        where: The sample as the user knows it, such as `00000.tar sample 000000012`.
        name: Name of the sample over all tar files, such as `00000/000000012`.
        key: Name of the sample in its tar file.
        members: All files, in their order.
        records: The records made of it.
        image: The image; None if there is none.
        spare: Other images, which have no caption of their own.
        text: The text file; None if there is none.
        data: The JSON file; None if there is none.
        holder: Field of the JSON file that holds the caption or the captions; empty if the text file holds it.
        repeats: Field of the JSON file that repeats the caption of the text file; empty if there is none.
    """

    shard: PurePosixPath
    where: str
    name: str = ""
    key: str = ""
    members: list[Member] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    image: Member | None = field(init=False)
    spare: list[Member] = field(init=False)
    text: Member | None = field(init=False)
    data: Member | None = field(init=False)
    holder: str = ""
    repeats: str = ""

    def __post_init__(self) -> None:
        images = [*filter(_is_image, self.members)]
        self.image = self._first(images)
        self.text = self._first([*filter(_is_text, self.members)])
        self.data = self._first([member for member in self.members if _suffix(member) == ".json"])
        first = self.image
        self.spare = [file for file in images if first and file is not first and self._dots(file) == self._dots(first)]

    def ending(self, member: Member) -> str:
        """Return the name of a file of the sample after the key and its dot."""
        return member.name[len(self.key) + 1 :]

    def _dots(self, member: Member) -> int:
        return self.ending(member).count(".")

    def _first(self, files: list[Member]) -> Member | None:
        return min(files, key=lambda file: (bool(file.problem), self._dots(file)), default=None)


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


def tar_files(path: Path) -> tuple[list[Path], list[Walk]]:
    """Return the tar files of a source in their order, and the walks through its folders.

    Raises:
        InputError: There is none.
    """
    places = places_of(path)
    walks = [walk(place) if place.is_dir() else Walk([place], [], 0, 0) for place in places]
    files, given = [file for walked in walks for file in walked.files], set(places)
    tars = [file for file in files if file in given or file.name.lower().endswith(ENDINGS)]
    if not tars:
        raise InputError(f"{path}: found no .tar file; the reader 'shards' needs one, or a folder with some")
    return tars, walks


def read_samples(path: Path, columns: Columns) -> tuple[list[Sample], Listing]:
    """Read tar files as `read_shards` does, and return the samples beside their records.

    Raises:
        InputError: As `read_shards`.
    """
    root, (tars, walks) = root_of(path), tar_files(path)
    samples = [
        Sample(
            PurePosixPath(), str(folder), records=[Record(str(folder), "", None, "", problem=f"cannot be read: {why}")]
        )
        for walked in walks
        for folder, why in walked.unread
    ]
    with reading() as read:
        gathered = _Gathered(read, columns)
        for tar in tars:
            place = PurePosixPath(tar.relative_to(root).as_posix())
            samples += gathered.samples(tar, place, tar == path)
        if columns.caption is not None and find_column(list(gathered.fields), (_plain(columns.caption),)) is None:
            raise InputError(
                f"{path}: no field {columns.caption!r} in the .json files, which have the fields "
                f"{quoted(gathered.fields) or 'none'}; name another with --caption-column, or leave it out"
            )
        _store_images(samples, Store(path, "", columns.cache, tars), read)
    split = _take_splits(path, samples, columns.split)
    broken = f"JSON files that are no JSON objects and were passed over: {gathered.broken}" if gathered.broken else ""
    records = [record for sample in samples for record in sample.records]
    unused = sum(not record.split for record in records) if split else 0
    listing = Listing(
        records,
        image=f"{len(tars)} tar file{'s' * (len(tars) != 1)}",
        caption=" or ".join(gathered.captions) or "nowhere",
        split=split,
        reading="; ".join(
            filter(
                None,
                (
                    how_read(gathered.texts),
                    broken,
                    f"captions without a split, which are unused: {unused}" * bool(unused),
                    *(walked.note for walked in walks),
                ),
            )
        ),
    )
    return samples, listing


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
    return [part for key, files in samples for part in _by_last_dot(key, files)]


def _by_last_dot(key: str, files: list[Member]) -> list[tuple[str, list[Member]]]:
    """Return a sample, or the samples that the names up to the last dot make of it."""
    parts: dict[str, list[Member]] = {}
    for file in files:
        parts.setdefault(file.name.rpartition(".")[0], []).append(file)
    whole = {name: part for name, part in parts.items() if any(map(_is_image, part)) and any(map(_is_text, part))}
    if len(whole) < 2:
        return [(key, files)]
    if key in whole:
        whole[key] += [file for name, part in parts.items() if name not in whole for file in part]
        return list(whole.items())
    return list(parts.items())


def _suffix(member: Member) -> str:
    return "." + member.base.rpartition(".")[2].lower()


def _is_image(member: Member) -> bool:
    return _suffix(member) in IMAGE_SUFFIXES


def _is_text(member: Member) -> bool:
    return _suffix(member) == ".txt"


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


class _Gathered:
    """What is gathered from sample to sample while they are read.

    Attributes:
        texts: Decoded files that are not plain UTF-8.
        captions: Places of captions, for the description: `text` and names of fields.
        broken: Number of JSON files that are no JSON objects.
        fields: Names of the fields of the JSON files.
    """

    def __init__(self, read: Read, columns: Columns) -> None:
        self._read = read
        self._named = columns.caption
        self.texts: list[Text] = []
        self.captions: dict[str, None] = {}
        self.broken = 0
        self.fields: dict[str, None] = {}

    def samples(self, tar: Path, place: PurePosixPath, single: bool) -> Iterator[Sample]:
        """Yield the samples of a tar file with their records, and one for its problem if it has one.

        Args:
            tar: The tar file.
            place: Path of the tar file within the source.
            single: Whether the source is this tar file.
        """
        members, problem = scan(tar)
        seen: Counter[str] = Counter()
        for key, files in group(members):
            seen[key] += 1
            label = key if seen[key] == 1 else f"{key} ({seen[key]})"
            name = label if single else f"{place.with_suffix('')}/{label}"
            sample = Sample(place, one_line(f"{place} sample {label}"), name, key, files)
            sample.records = self._records(sample)
            yield sample
        if problem:
            yield Sample(place, str(place), records=[Record(str(place), "", None, "", problem=problem)])

    def _records(self, sample: Sample) -> list[Record]:
        """Return the records of a sample: one for each caption, or the problem, and one for each spare image."""
        fields, trouble = self._fields(sample)
        captions, problem = self._captions(sample, fields)
        image = sample.image
        if image is None:
            links = [f"{member.base} {member.problem}" for member in sample.members if member.problem]
            bases = one_line(", ".join(member.base for member in sample.members), 100)
            problem = links[0] if links else f"has no image, only {bases}"
        elif image.problem or not image.size:
            problem = f"{image.base} {image.problem or 'is empty'}"
        elif problem and trouble:
            problem = trouble
        texts = {name: printable(as_text(value)) for name, value in fields.items()}
        used = (sample.holder, sample.repeats)
        extra = {column_name(name, ROLES): text for name, text in texts.items() if name not in used}
        if sample.holder and sample.text is not None:
            extra.setdefault("txt", printable(self._caption(sample.text)[0]))
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

    def _fields(self, sample: Sample) -> tuple[dict[str, object], str]:
        """Return the fields of the JSON file of a sample, and the problem of the file."""
        if sample.data is None:
            return {}, ""
        base = sample.data.base
        if sample.data.problem:
            return {}, f"{base} {sample.data.problem}"
        try:
            fields, text = fields_of(self._read(sample.data), Path(base))
        except InputError as error:
            fields, text = None, Text(str(error))
        if fields is None:
            self.broken += 1
            return {}, f"{base} is no JSON object"
        self._note(text)
        self.fields.update(dict.fromkeys(fields))
        return fields, ""

    def _captions(self, sample: Sample, fields: Mapping[str, object]) -> tuple[list[str], str]:
        """Return the captions of a sample, and the problem; note where they are."""
        if sample.text is not None and self._named is None:
            caption, problem = self._caption(sample.text)
            self.captions["the .txt files"] = None
            sample.repeats = next((name for name in REPEATING if is_repeated(fields.get(name), caption)), "")
            return [caption], problem
        name = find_column(list(fields), CAPTION_COLUMNS if self._named is None else (_plain(self._named),))
        if name is None:
            return [], f"has no caption: no .txt file and no field {self._named or 'caption'!r} in a .json file"
        self.captions[f"field {name!r} of the .json files"] = None
        sample.holder = name
        value = fields[name]
        values = value if isinstance(value, list) else [value]
        if any(isinstance(cell, (dict, list)) for cell in values):
            return [], f"field {name!r} holds a list or an object where text is needed"
        return [as_text(cell) for cell in values] or [""], ""

    def _caption(self, member: Member) -> tuple[str, str]:
        """Return the text of a file without its last line end, and the problem."""
        if member.problem:
            return "", f"{member.base} {member.problem}"
        try:
            text = decode(self._read(member), Path(member.base))
        except InputError as error:
            return "", str(error)
        self._note(text)
        return re.sub(r"\r?\n\Z", "", text.content), ""

    def _note(self, text: Text) -> None:
        if text.encoding != "utf-8" or text.western:
            self.texts.append(replace(text, content=""))


def column_name(name: str, taken: Sequence[str]) -> str:
    """Return the name of the column for a field of the JSON files, which is another one where the name is taken."""
    return f"json {name}" if _plain(name) in taken else name


def is_repeated(value: object, caption: str) -> bool:
    """Return whether the value of a field is a caption, but for white space around it."""
    values = value if isinstance(value, list) else [value]
    return len(values) == 1 and as_text(values[0]).strip() == caption.strip()


def _store_images(samples: Sequence[Sample], store: Store, read: Read) -> None:
    """Write the images of the samples into the store, unless they are there, and put their paths into the records."""
    readable = [
        (sample, image)
        for sample in samples
        if (image := sample.image) is not None and image.size and not image.problem
    ]
    images = store.images()
    if images is None or len(images) != len(readable):
        images = [store.add(read(image), image.base) for _, image in readable]
        if images:
            store.finish(images)
    for (sample, _), stored in zip(readable, in_rows(images), strict=True):
        sample.records = [replace(record, path=stored.file) if record.image else record for record in sample.records]


def _take_splits(path: Path, samples: Sequence[Sample], asked: str | None) -> str:
    """Put the splits into the records, and return their place; an empty string where the source has none.

    Raises:
        InputError: There is no field of the name that the user asked for.
    """
    of_shards = [split_of_place(sample.shard) if sample.members else "" for sample in samples]
    by_place = asked is None and "train" in {SPLIT_WORDS.get(word) for word in of_shards}
    column = split_column_of(path, [record for sample in samples for record in sample.records], asked)
    for sample, word in zip(samples, of_shards, strict=True):
        sample.records = [
            replace(
                record,
                split=word if by_place else record.extra.get(column or "", "").strip(),
                extra={column_name(name, SPLIT_COLUMNS): cell for name, cell in record.extra.items() if name != column},
            )
            for record in sample.records
        ]
    if by_place:
        return "the folders' or tar files' names"
    return "" if column is None else f"field {column!r} of the .json files"


def split_column_of(path: Path, records: Sequence[Record], asked: str | None) -> str | None:
    """Return the field of the splits; None if no field of such a name has mostly words for splits in it.

    Raises:
        InputError: There is no field of the name that the user asked for.
    """
    names = list(dict.fromkeys(name for record in records for name in record.extra))
    if asked is not None:
        column = None if asked == NO_COLUMN else find_column(names, (_plain(asked),))
        if column is None and asked != NO_COLUMN:
            raise InputError(f"{path}: no field '{asked}' in the .json files; they have {quoted(names)}")
        return column
    for candidate in SPLIT_COLUMNS:
        name = find_column(names, (candidate,)) or ""
        if is_split(record.extra.get(name, "").strip() for record in records):
            return name
    return None
