"""Cleaned data as tar files of samples, the layout of WebDataset and img2dataset."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pairsift.arrays import Bools
from pairsift.errors import InputError, writing
from pairsift.export.tables import without_bytes
from pairsift.files import replacing
from pairsift.pairs.embedded import MODIFIED, image_suffix
from pairsift.pairs.image_files import IMAGE_SUFFIXES
from pairsift.pairs.readers.rows import SPLIT_COLUMNS, find_column
from pairsift.pairs.readers.shards import Sample, fields_of
from pairsift.pairs.readers.tars import Read, reading
from pairsift.pairs.source_rows import Cells, Origin
from pairsift.pairs.splits import SPLIT_WORDS
from pairsift.pairs.text import as_text

SAMPLES = 10_000  # in a tar file, as img2dataset has them


@dataclass(frozen=True)
class ChosenRecords:
    """What becomes of each record of a source.

    Attributes:
        keep: Whether to export each record, (n,).
        captions: New captions by record.
        extra: New fields, by their names, with a value for each record.
        images: Image file of each record, (n,); arbitrary for records that are not kept.
        folders: Folder for each record, (n,): its split, or an empty string.
    """

    keep: Bools
    captions: Mapping[int, str]
    extra: Mapping[str, list[object]]
    images: list[Path]
    folders: list[str]


@dataclass(frozen=True)
class NewSample:
    """A sample to write.

    Attributes:
        folder: Folder of its tar file; an empty string for none.
        key: Its key, if it has one already.
        files: Contents of its files by their endings.
    """

    folder: str
    key: str
    files: dict[str, bytes]


def samples_of_rows(origin: Origin, chosen: ChosenRecords) -> Iterator[NewSample]:
    """Yield a sample for each kept record: its image, its caption, and the other cells of its row as JSON.

    Images and other bytes that are no text become their name or null. The name of the image is kept under the name of
    its column.

    Raises:
        InputError: An image cannot be read.
    """
    for row in origin.kept_rows(chosen.keep, chosen.captions, chosen.extra):
        fields = {name: without_bytes(cell) for name, cell in row.cells.items()}
        caption = as_text(fields.pop(origin.caption))
        files = [_image(chosen.images[row.record]), ("txt", _text(caption)), ("json", _json(fields))]
        yield NewSample(chosen.folders[row.record], "", dict(files))


def image_bytes(path: Path) -> bytes:
    """Return the content of an image file.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: the image cannot be read ({error.strerror or error}); put it back and repeat the command"
        ) from error


def _image(path: Path) -> tuple[str, bytes]:
    """Return the ending and the content of an image file."""
    content, suffix = image_bytes(path), path.suffix.lower()
    suffix = suffix if suffix in IMAGE_SUFFIXES else image_suffix(content) or ".jpg"
    return "jpg" if suffix == ".jpeg" else suffix[1:], content


def _text(caption: str) -> bytes:
    """Return a caption as the content of a text file; a reader takes one line end at its end away."""
    return (caption + "\n" * caption.endswith("\n")).encode("utf-8", "replace")


def _json(fields: Cells) -> bytes:
    return json.dumps(fields, ensure_ascii=False, default=str).encode("utf-8", "replace")


def samples_of_shards(origin: Origin, chosen: ChosenRecords) -> Iterator[NewSample]:
    """Yield the samples of a source of tar files that keep a record, with all their files.

    A new caption goes where the old one was. The JSON file stays as it is where nothing in it changes.

    Raises:
        InputError: A tar file cannot be read.
    """
    first = 0
    with reading() as read:
        for sample in origin.samples or ():
            records = range(first, first + len(sample.records))
            first = records.stop
            kept = [record for record in records if chosen.keep[record]]
            if not (sample.members and kept):
                continue
            captions = [chosen.captions.get(record, sample.records[record - records.start].caption) for record in kept]
            fewer = len(kept) < len(records) - len(sample.spare)
            new = _Changes(
                captions if fewer or any(record in chosen.captions for record in kept) else None,
                {name: [values[record] for record in kept] for name, values in chosen.extra.items()},
                None if origin.splits is None else origin.splits[kept[0]],
            )
            yield NewSample(chosen.folders[kept[0]], sample.key, _files(sample, new, read))


@dataclass(frozen=True)
class _Changes:
    """What changes in a sample: all captions if one changes, new fields with a value for each, and the split."""

    captions: list[str] | None
    extra: dict[str, list[object]]
    split: str | None


def _files(sample: Sample, new: _Changes, read: Read) -> dict[str, bytes]:
    """Return the endings and contents of the files of a sample, as they are or with the changes."""
    files = {sample.ending(member): read(member) for member in sample.members if not member.problem}
    if sample.text is not None and new.captions is not None and not sample.holder:
        files[sample.ending(sample.text)] = _text(new.captions[0])
    data = "json" if sample.data is None else sample.ending(sample.data)
    changed = _changed_fields(sample, files.get(data), new)
    return files if changed is None else {**files, data: _json(changed)}


def _changed_fields(sample: Sample, content: bytes | None, new: _Changes) -> Cells | None:
    """Return the fields of the JSON file with the changes; None where nothing changes or the file has no fields."""
    fields = {} if content is None else fields_of(content, Path(sample.where))[0]
    if fields is None:
        return None
    changed = dict(fields)
    name = sample.holder or sample.repeats
    if name and new.captions is not None:
        changed[name] = new.captions if isinstance(fields[name], list) else new.captions[0]
    several = bool(sample.holder) and isinstance(fields.get(sample.holder), list)
    changed |= {column: values if several else values[0] for column, values in new.extra.items()}
    column = find_column(list(fields), SPLIT_COLUMNS)
    if column is not None and new.split is not None:
        meaning = SPLIT_WORDS.get(as_text(fields[column]).strip().lower())
        if meaning not in (None, SPLIT_WORDS.get(new.split)):
            changed[column] = new.split
    return changed if changed != fields else None


def write_shards(out: Path, samples: Iterable[NewSample]) -> None:
    """Write tar files of samples: `00000.tar` and so on, in the folders of the samples.

    Args:
        out: Folder to write, which must not exist.
        samples: The samples, in order.

    Raises:
        WriteError: The folder cannot be written.
    """
    keys: dict[str, int] = {}
    counts: Counter[str] = Counter()
    tars: dict[str, tarfile.TarFile] = {}
    with writing(out), replacing(out) as part, ExitStack() as opened:
        part.mkdir(parents=True)
        for number, sample in enumerate(samples):
            full, surplus = divmod(counts[sample.folder], SAMPLES)
            counts[sample.folder] += 1
            if not surplus:
                if full:
                    tars[sample.folder].close()
                place = part / sample.folder / f"{full:05d}.tar"
                place.parent.mkdir(exist_ok=True)
                tars[sample.folder] = opened.enter_context(tarfile.open(place, "w"))
            key = _unused(sample.key or f"{number:09d}", keys)
            for ending, content in sample.files.items():
                info = tarfile.TarInfo(f"{key}.{ending}")
                info.size, info.mtime = len(content), MODIFIED
                tars[sample.folder].addfile(info, io.BytesIO(content))


def _unused(key: str, taken: dict[str, int]) -> str:
    """Return a key, with a number if it is taken, without dots and without a way out of a folder.

    Args:
        key: The key.
        taken: Taken keys, with the last number of each; the new one is added.
    """
    parts = [re.sub(r"[.\\\x00-\x1f\x7f]", "_", part) for part in key.split("/") if part not in ("", ".", "..")]
    base = new = "/".join(parts) or "sample"
    while new in taken:
        taken[base] += 1
        new = f"{base}_{taken[base]}"
    taken[new] = 0
    return new
