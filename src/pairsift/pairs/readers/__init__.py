"""The readers: one for each layout of image-caption pairs."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pairsift.errors import InputError, dashed
from pairsift.pairs import READERS
from pairsift.pairs.image_files import IMAGE_SUFFIXES, walk
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.readers.chinese_clip import is_chinese_clip
from pairsift.pairs.readers.choice import MORE_CAPTIONS
from pairsift.pairs.readers.embeddings import is_embeddings
from pairsift.pairs.readers.folders import METADATA, TEXT_SUFFIXES, is_flickr8k
from pairsift.pairs.readers.nuswide import is_nuswide
from pairsift.pairs.readers.precomp import is_now, is_precomp
from pairsift.pairs.readers.rows import CAPTION_COLUMNS, NO_COLUMN
from pairsift.pairs.readers.separated import is_separated, read_separated
from pairsift.pairs.readers.shards import is_shards
from pairsift.pairs.readers.tables import FORMATS, PARQUET
from pairsift.pairs.records import Columns, Listing, assemble
from pairsift.pairs.splits import Draw
from pairsift.pairs.text import one_line, read_text
from pairsift.source_path import is_pattern, places_of, require_path, require_source

SEVERAL = {"table", "shards"}  # readers of sources of several files
MOST_OTHERS = 50  # files beside images among which a table is sought
IMAGE_OBJECTS = re.compile(r'"images"\s*:\s*\[\s*[{\]]')  # a list of objects, or an empty one
PROBED = 2**16  # bytes at both ends of a JSON file that show whether it has captions
ADVICE = {  # by the extensions of files that hold what a reader could read
    (".zip", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar", ".tgz"): "unpack it, and give the file or the folder in it",
    (".xlsx", ".xls", ".ods", ".numbers"): "save its sheet as CSV or as Unicode text",
    (".pkl", ".pickle", ".h5", ".hdf5", ".feather", ".arrow", ".db", ".sqlite"): "write its rows as CSV or Parquet",
}
BUILT_IN = frozenset(READERS)
# Readers whose images are not named by paths.
WITHOUT_FOLDER = ("folder", "shards", "chinese_clip", "precomp", "now", "embeddings")
WITHOUT_COLUMNS = ("coco", "karpathy", "chinese_clip", "nuswide")

LAYOUTS = {
    "now": is_now,
    "precomp": is_precomp,
    "nuswide": is_nuswide,
    "flickr8k": is_flickr8k,
    "chinese_clip": is_chinese_clip,
    "embeddings": is_embeddings,
    "shards": is_shards,
}


def folder_of_images(reader: str, folder: Path) -> Path:
    """Return the folder that the user set for relative image paths, after a check.

    Raises:
        InputError: The path is not a folder, or the reader does not use such a folder.
    """
    if reader in WITHOUT_FOLDER:
        raise InputError(f"the reader {reader!r} takes no --image-folder: leave it out")
    if not folder.is_dir():
        raise InputError(f"--image-folder {folder}: is not a folder; name the one that relative image paths start from")
    return folder


def choose(path: Path) -> str:
    """Return the name of the reader that fits the file or folder at the path.

    Raises:
        InputError: No reader fits.
    """
    if is_pattern(path):
        return choose_for_all(path)
    for name, fits in LAYOUTS.items():
        if fits(path):
            return name
    if path.is_dir():
        return "table" if holds_parquet(path) else "folder"
    suffix = path.suffix.lower()
    if suffix == ".json":
        text = read_text(path).content
        if text.lstrip().startswith("{") and IMAGE_OBJECTS.search(text):
            return "coco" if '"annotations"' in text else "karpathy"
    if suffix in FORMATS or is_separated(path, Columns()):
        return "table"
    for endings, advice in ADVICE.items():
        if suffix in endings:
            raise InputError(f"{path}: no reader fits the extension '{suffix}': {advice}")
    raise InputError(
        f"{path}: no reader fits the extension '{suffix}'; it may be {', '.join(FORMATS)}, .tar or a folder, "
        f"or name the reader: {', '.join(READERS)}"
    )


def choose_for_all(pattern: Path) -> str:
    """Return the name of the reader that reads all files of a pattern.

    Raises:
        InputError: No reader fits, or no reader reads several of them.
    """
    names = {choose(place): place for place in places_of(pattern)}
    name = next(iter(names))
    if len(names) > 1:
        both = " and ".join(f"{place.name} ({name})" for name, place in [*names.items()][:2])
        raise InputError(f"{pattern}: names sources of several kinds, such as {both}: give those of one kind")
    return name


def table_within(path: Path) -> Path:
    """Return the only table or annotation file of a folder whose images have no captions beside them.

    Any other path is returned as it is.
    """
    if is_pattern(path) or not path.is_dir() or choose(path) != "folder" or _has_captions_beside(path):
        return path
    files = walk(path).files
    stems = {file.stem for file in files if file.suffix.lower() in IMAGE_SUFFIXES}
    others = [file for file in files if file.suffix.lower() not in IMAGE_SUFFIXES]
    if len(others) > MOST_OTHERS or any(file.stem in stems or file.stem == METADATA for file in others):
        return path
    found = [file for file in others if _holds_pairs(file)]
    return found[0] if len(found) == 1 else path


def _holds_pairs(file: Path) -> bool:
    """Return whether a file is a table of images and captions, or an annotation file with captions."""
    try:
        if FORMATS.get(file.suffix.lower(), read_separated) is read_separated:
            return is_separated(file, Columns())
        if file.suffix.lower() == ".json":
            with file.open("rb") as stream:
                beginning = stream.read(PROBED)
                stream.seek(max(0, file.stat().st_size - PROBED))
                ends = beginning + stream.read()
            if not any(f'"{name}"'.encode() in ends for name in (*CAPTION_COLUMNS, *MORE_CAPTIONS)):
                return False
            if choose(file) != "table":
                return True
        return bool(READERS.find("table")(file, Columns()).records)
    except (InputError, OSError):
        return False


def holds_parquet(folder: Path) -> bool:
    """Return whether a folder holds Parquet files, and no image with captions or a table `metadata` beside it."""
    return not _has_captions_beside(folder) and any(
        name.lower().endswith(PARQUET) for _, names in _visible(folder) for name in names
    )


def _has_captions_beside(folder: Path) -> bool:
    """Return whether a folder holds an image with a text file of its name, or with a table `metadata`, beside it."""
    for _, names in _visible(folder):
        parts = [os.path.splitext(name) for name in names]
        images = {stem for stem, suffix in parts if suffix.lower() in IMAGE_SUFFIXES}
        texts = {stem for stem, suffix in parts if suffix.lower() in TEXT_SUFFIXES}
        if images & texts or (images and METADATA in {stem for stem, _ in parts}):
            return True
    return False


def _visible(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the folders below a folder, without hidden ones, and the names of their files."""
    for place, below, names in os.walk(folder):
        below[:] = [name for name in below if not name.startswith(".")]
        yield place, names


def read_listing(path: Path, name: str, columns: Columns) -> Listing:
    """Return the records of a source, without splits where the user wants none of the source's."""
    listing = READERS.find(name)(path, columns)
    return replace(listing, split="") if columns.split == NO_COLUMN else listing


def require_one(name: str, path: Path) -> None:
    """Raise an error for a pattern where the reader reads a single file or folder.

    Raises:
        InputError: It is a pattern.
    """
    if name in BUILT_IN - SEVERAL and is_pattern(path):
        raise InputError(f"{path}: the reader {name!r} reads one file or folder: give a single one")


def load(  # noqa: PLR0913
    path: str | Path | Sequence[str | Path],
    reader: str | None = None,
    split_seed: int = 0,
    shares: tuple[float, float] | None = (0.1, 0.1),
    image_column: str | None = None,
    caption_column: str | None = None,
    image_folder: str | Path | None = None,
    cache: str | Path | None = None,
    *,
    text_file: Literal["lines", "whole"] | None = None,
    quotes: str | None = None,
    split_column: str | None = None,
    lists: str | None = None,
    keep_empty: bool = False,
) -> Pairs:
    """Read image-caption pairs.

    A record that cannot be used (no caption or one that says nothing, no image file, a repeated row, broken text) is
    kept with the split `skipped` and listed in `Pairs.skipped`. Images are not decoded here, so a broken image file is
    not detected here.

    Args:
        path: A table (CSV, TSV, JSON lines, Parquet), a JSON file of COCO's or Karpathy's layout, a tar file of
            samples, or a folder, which may contain tar or Parquet files, or features instead of images. Several tables
            or tar files are named by a pattern such as `data/*.parquet` or `{00000..00012}.tar`, or by a list.
        reader: Name of a reader in `READERS`; by default the one that fits the path.
        split_seed: Seed of the splits that are drawn if the source does not have them.
        shares: Shares of the images in dev and in test if these splits are drawn, each above 0, together below 1, or
            their numbers, from 1 on; None puts all pairs that can be used into the split `added`, whatever splits the
            source has.
        image_column: Image column of a table, if it has an unusual name.
        caption_column: Caption column of a table, if it has an unusual name; for the reader `shards`, the field of the
            JSON files that has the captions, where that is not the text files; for the reader `now`, the kind of token
            ids.
        image_folder: Folder that relative image paths of a table, a JSON file, the `flickr8k` or the `nuswide`
            layout start from, if it is not the default folder of the reader.
        cache: Folder for the images that a Parquet or tar file contains; None takes `$XDG_CACHE_HOME/pairsift` or
            `~/.cache/pairsift`.
        text_file: Whether each line of a text file beside an image is a caption, or the file as a whole; None to tell
            by the files.
        quotes: How quotes are marked in a CSV or TSV file: `csv` (doubled), `backslash`, or `none` if they are plain
            characters; by default, the rows of the file show it.
        keep_empty: Whether captions that say nothing about a picture, such as `nan` or a file name, are used too.
        split_column: Split column of a table, or field of the JSON files of shards, if it has an unusual name; `none`
            draws the splits whatever the source has.
        lists: Whether a cell of text that lists several captions or images is several (`split`) or one (`keep`); by
            default what all cells show.

    Returns:
        The pairs; `description` says in one line what was read as image, caption and split.

    Raises:
        InputError: An argument is not valid, or the path contains nothing that can be used. The message says what is
            there and what to do.
    """
    path = require_path(path)
    if shares is not None and not (min(shares) > 0 and sum(share for share in shares if share < 1) < 1):
        raise InputError(f"shares {shares[0]} of dev and {shares[1]} of test must be above 0 and together below 1")
    if reader is not None:
        READERS.find(reader)
    for option, value, words in (
        ("quotes", quotes, ("csv", "backslash", "none")),
        ("lists", lists, ("split", "keep")),
        ("text_file", text_file, ("lines", "whole")),
    ):
        if value not in (None, *words):
            raise InputError(f"{option} {value!r} is none of {', '.join(words)}")
    try:
        require_source(path)
        path = table_within(path) if reader is None else path
        name = choose(path) if reader is None else reader
        require_one(name, path)
        folder = None if image_folder is None else folder_of_images(name, Path(image_folder))
        stored = None if cache is None else Path(cache)
        columns = Columns(image_column, caption_column, folder, stored, text_file, quotes, split_column, lists)
        _refuse_needless(name, columns)
        draw = None if shares is None else Draw(split_seed, *shares)
        with _no_collection():
            return assemble(str(path), name, read_listing(path, name, columns), draw, keep_empty)
    except InputError as error:
        raise InputError(one_line(str(error), 1000)) from error


def _refuse_needless(reader: str, columns: Columns) -> None:
    """Raise an error for an option that the reader does not use.

    Raises:
        InputError: There is one.
    """
    values = {"image_column": columns.image, "caption_column": columns.caption, "quotes": columns.quotes}
    values |= {"lists": columns.lists, "split_column": None if columns.split == NO_COLUMN else columns.split}
    values = values if reader in WITHOUT_COLUMNS else {}
    values |= {} if reader == "folder" else {"text_file": columns.text_file}
    for option, value in values.items():
        if value is not None:
            raise InputError(f"the reader {reader!r} takes no {dashed(option)}: leave it out")


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pause the search for cycles of objects, which takes longer than to read a million records that have none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
