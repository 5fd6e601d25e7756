"""The `chinese_clip` reader: images as base64 in train_imgs.tsv, and texts with their images' ids in JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pairsift.errors import InputError
from pairsift.pairs.base64_images import from_base64
from pairsift.pairs.embedded import Embedded, Store, in_rows
from pairsift.pairs.readers.json_rows import read_json_rows
from pairsift.pairs.readers.rows import Row
from pairsift.pairs.records import Columns, Listing, Record
from pairsift.pairs.splits import SPLIT_WORDS
from pairsift.pairs.text import as_text, other_columns, quoted

IMAGES, TEXTS = "_imgs.tsv", "_texts.jsonl"


def is_chinese_clip(path: Path) -> bool:
    """Return whether a path is a file of texts of this layout, or a folder with such files and their images."""
    return any((text.parent / _images_of(text)).is_file() for text in _texts_at(path))


def read_chinese_clip(path: Path, columns: Columns) -> Listing:
    """Read `train_imgs.tsv` (id, tab, image in base64) and `train_texts.jsonl` (text_id, text, image_ids), and others.

    A text with several images makes a pair of each. The names of the files are the splits. Images are written into the
    cache folder, one at a time.

    Raises:
        InputError: There are no such files, they cannot be read, or the images cannot be written.
    """
    texts = [text for text in _texts_at(path) if (text.parent / _images_of(text)).is_file()]
    if not texts:
        raise InputError(f"{path}: the reader 'chinese_clip' needs files such as train{IMAGES} and train{TEXTS}")
    tables = [text.parent / _images_of(text) for text in texts]
    files, problems = _stored(path, tables, columns.cache)
    words = [text.name.removesuffix(TEXTS) for text in texts]
    records: list[Record] = []
    notes: list[str] = []
    several = 0
    for word, text in zip(words, texts, strict=True):
        rows = read_json_rows(text, columns)
        notes.append(rows.reading)
        for row in rows.rows:
            of_row = _records(row, word, files, problems)
            several += len(of_row) > 1
            records += of_row
    used = {record.image for record in records}
    bare = sum(key not in used for key in files)
    notes += [f"texts with several images, each a pair: {several}"] * bool(several)
    notes += [f"images without a text: {bare}"] * bool(bare)
    return Listing(
        records,
        f"base64 in {quoted([table.name for table in tables], 3)}",
        f"'text' in {quoted([text.name for text in texts], 3)}",
        "the files' names" if "train" in words and all(word.lower() in SPLIT_WORDS for word in words) else "",
        reading="; ".join(dict.fromkeys(filter(None, notes))),
    )


def _records(row: Row, word: str, files: dict[str, Path | None], problems: dict[str, str]) -> list[Record]:
    """Return the records of a text, one for each of its images, whose names begin with the word of its file."""
    ids = row.cells.get("image_ids")
    names = [as_text(name).strip() for name in ids] if isinstance(ids, list) else []
    records = []
    for number, name in enumerate(names or [""], 1):
        key = f"{word}/{name}" if name else ""
        unknown = f"image {name} is not in {word}{IMAGES}" if name and key not in files else ""
        records.append(
            Record(
                where=f"{row.where} image {number}" if len(names) > 1 else row.where,
                image=key,
                path=files.get(key),
                caption=as_text(row.cells.get("text")),
                split=word,
                extra=other_columns(row.cells, "text", "image_ids"),
                problem=row.problem or problems.get(key, unknown),
            )
        )
    return records


def _texts_at(path: Path) -> list[Path]:
    """Return the files of texts at a path: the file itself, or those in the folder."""
    return [path] if path.name.endswith(TEXTS) else sorted(path.glob(f"*{TEXTS}"))


def _images_of(text: Path) -> str:
    """Return the name of the file with the images of a file of texts."""
    return text.name.removesuffix(TEXTS) + IMAGES


def _stored(path: Path, tables: list[Path], cache: Path | None) -> tuple[dict[str, Path | None], dict[str, str]]:
    """Return the file of each image, and the problems of images, by the names of the images."""
    store = Store(path, "", cache, tables)
    images = store.images()
    if images is None:
        images = [
            Embedded(name, None) if data is None else store.add(data, name)
            for table in tables
            for name, data in _images_in(table)
        ]
        store.finish(images)
    files: dict[str, Path | None] = {}
    problems = {}
    for image in in_rows(images):
        first = files.setdefault(image.name, image.file)
        if image.file is None:
            problems[image.name] = "its image is no base64"
        elif first != image.file:
            problems[image.name] = "its image is one of several under this id"
    return files, problems


def _images_in(table: Path) -> Iterator[tuple[str, bytes | None]]:
    """Yield the name and the bytes of each image of a file, None for what is no base64."""
    word = table.name.removesuffix(IMAGES)
    try:
        with table.open("rb") as lines:
            for line in lines:
                name, _, data = line.rstrip(b"\r\n").partition(b"\t")
                if name.strip():
                    yield f"{word}/{name.decode('utf-8', 'replace').strip()}", from_base64(data.decode("latin-1"))
    except OSError as error:
        raise InputError(f"{table}: cannot be read: {error.strerror or error}") from error
