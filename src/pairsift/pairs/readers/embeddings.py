"""The `embeddings` reader: vectors of images and of captions, such as CLIP's, with a table of the captions."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pairsift.arrays import Ints, Reals
from pairsift.errors import InputError
from pairsift.pairs.precomputed import FeatureFiles, Precomputed, load_array, open_rows
from pairsift.pairs.readers.choice import split_column
from pairsift.pairs.readers.rows import Roles, SourceTable, pick_columns
from pairsift.pairs.readers.tables import named_record, read_rows
from pairsift.pairs.records import Columns, Listing, Record
from pairsift.pairs.text import quoted
from pairsift.remote import is_remote
from pairsift.source_path import root_of

IMAGES, TEXTS = "image.npy", "text.npy"
FOLDERS = {"img_emb": ".npy", "text_emb": ".npy", "metadata": ".parquet"}  # as clip-retrieval writes them
FACTS = "encoding.json"  # in a folder of `pairsift encode`: of what the vectors are, and by which encoders
IMAGE_PLACE = {"file": pa.string(), "file_offset": pa.int64(), "file_size": pa.int64()}  # columns there
PROBLEM = "problem"  # column there that says why a record could not be encoded
COMPARED = 4096  # vectors at a time
TOLERANCE = 0.01  # relative distance of two vectors of one image, computed twice in half precision
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq")


@dataclass(frozen=True)
class Part:
    """Three files whose rows belong together.

    Attributes:
        images: File of the images' vectors.
        texts: File of the captions' vectors.
        table: File of the captions.
    """

    images: Path
    texts: Path
    table: Path


def is_embeddings(path: Path) -> bool:
    """Return whether a folder contains vectors of images or of captions in one of the two layouts."""
    return any((path / name).is_file() for name in (IMAGES, TEXTS)) or any(
        (path / name).is_dir() for name in ("img_emb", "text_emb")
    )


def encoding_facts(path: Path) -> dict[str, Any]:
    """Return what a folder of `pairsift encode` says of its vectors; nothing for any other folder."""
    try:
        facts = json.loads((path / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) and isinstance(facts.get("shards"), int) else {}


def images_root(path: Path) -> str:
    """Return the folder or the URLs that `pairsift encode` made vectors of; an empty string for any other folder."""
    source = encoding_facts(path).get("source")
    if source is None:
        return ""
    return source if is_remote(source) else os.path.abspath(root_of(source))


def read_embeddings(path: Path, columns: Columns) -> Listing:
    """Read image.npy and text.npy with a table of captions, or img_emb/, text_emb/ and metadata/ of clip-retrieval.

    The arrays are (rows, dim) floats; only their headers are read here. The rows of the two arrays and of the table
    belong together; each of them is a pair. The table is the file called `captions`, or the only table in the
    folder. Rows with the same image name and the same vector share an image. Without an image column, each row has its
    own image. In the layout of clip-retrieval, the parts of the three folders with the same
    number belong together, and parts are ordered by their numbers.

    Raises:
        InputError: Files are missing, cannot be read, or do not fit each other.
    """
    columns = replace(columns, needs_image=False)
    in_parts = not any((path / name).is_file() for name in (IMAGES, TEXTS))
    parts = numbered_parts(path) if in_parts else [single_part(path)]
    dims = [open_rows(file, (2,)).shape[1] for file in (parts[0].images, parts[0].texts)]
    records: list[Record] = []
    tables = [read_part(part, dims, columns) for part in parts]
    split, notes = split_column(SourceTable(tables[0].names, [row for table in tables for row in table.rows]))
    problem = PROBLEM if encoding_facts(path) else ""
    for part, table in zip(parts, tables, strict=True):
        roles = pick_columns(part.table, table.names, columns)
        roles = roles if columns.split is not None else roles._replace(split=split)
        records += records_of(part, table, roles, len(records), problem)
    image, caption, split, _ = roles
    records, note = with_shared_images(records, parts)
    features = Precomputed(
        tuple(part.images for part in parts),
        (dims[0],),
        np.zeros(0, np.int64),
        captions=FeatureFiles(tuple(part.texts for part in parts), (dims[1],), np.arange(len(records))),
    )
    files = parts[0].images, parts[0].texts, parts[0].table
    places = [f"{name}/ ({len(parts)} files)" for name in FOLDERS] if in_parts else [file.name for file in files]
    names = f", a row for each name in column {image!r}" if image else ", a row for each image"
    return Listing(
        records,
        image=f"{places[0]} (rows of {dims[0]}{names})",
        caption=f"column {caption!r} of {places[2]} with {places[1]} (rows of {dims[1]})",
        split="" if split is None else f"column {split!r}",
        features=features,
        reading="; ".join(filter(None, (tables[0].reading, *(notes if split is None else []), note))),
    )


def single_part(path: Path) -> Part:
    """Return the files of a folder with one array for each side.

    Raises:
        InputError: One of the files is missing, or there are several tables.
    """
    for name in (IMAGES, TEXTS):
        if not (path / name).is_file():
            raise InputError(f"{path}: has no {name}; put the missing file into the folder")
    tables = sorted(file for file in path.iterdir() if file.is_file() and file.suffix.lower() in TABLES)
    tables = [file for file in tables if file.stem.lower() == "captions"] or tables
    if len(tables) != 1:
        found = quoted((file.name for file in tables), 4) or "none"
        raise InputError(f"{path}: needs a table of captions beside {IMAGES}, and holds {found}; call it captions.csv")
    return Part(path / IMAGES, path / TEXTS, tables[0])


def numbered_parts(path: Path) -> list[Part]:
    """Return the parts of clip-retrieval's layout that have vectors, ordered by their numbers.

    Raises:
        InputError: There are none, a folder lacks a part that another one has, or `pairsift encode` has not ended.
    """
    files = {name: numbered_files(path / name, suffix) for name, suffix in FOLDERS.items()}
    shards = encoding_facts(path).get("shards", 0)
    if left := max(0, shards - len(files["metadata"])):
        raise InputError(f"{path}: {left:,} of {shards:,} shards are not encoded yet: repeat `pairsift encode`")
    numbers = sorted(set().union(*files.values()), key=int)
    if not numbers:
        raise InputError(
            f"{path}: has neither {IMAGES} and {TEXTS} nor img_emb/ and text_emb/; name the folder with them"
        )
    for name, suffix in FOLDERS.items():
        for number in numbers:
            if number not in files[name]:
                raise InputError(
                    f"{path}: has no {name}/{name}_{number}{suffix} beside the other files of part {number}; "
                    "copy or make it again"
                )
    images, texts, tables = files.values()
    parts = [Part(images[number], texts[number], tables[number]) for number in numbers]
    return [part for part in parts if not _is_empty(part)] or parts[:1]


def _is_empty(part: Part) -> bool:
    """Return whether a part has no vectors, as where a tar file has no samples."""
    return all(load_array(file, mapped=True).shape[:1] == (0,) for file in (part.images, part.texts))


def numbered_files(folder: Path, suffix: str) -> dict[str, Path]:
    """Return the files `<folder>_<number><suffix>` of a folder, which may be missing, by their numbers as written."""
    pattern = re.compile(rf"{folder.name}_(\d+)\{suffix}", re.ASCII)
    matches = ((pattern.fullmatch(file.name), file) for file in folder.glob("*"))
    return {match[1]: file for match, file in matches if match}


def read_part(part: Part, dims: list[int], columns: Columns) -> SourceTable:
    """Read the table of a part, and the headers of its arrays.

    Args:
        part: The part.
        dims: Lengths of the vectors of images and of captions.
        columns: Column names set by the user.

    Raises:
        InputError: A file cannot be read, the table has no caption column, or the files do not fit each other.
    """
    table = read_rows(part.table, columns)
    images, texts = (open_rows(file, (2,)).shape for file in (part.images, part.texts))
    for file, shape, dim in ((part.images, images, dims[0]), (part.texts, texts, dims[1])):
        if shape[1] != dim:
            raise InputError(f"{file}: a row has {shape[1]} values where the first part has {dim}; make it again")
    problem = next((f"; {row.where} {row.problem}" for row in table.rows if row.problem), "")
    for file, rows, problems in ((part.texts, texts[0], ""), (part.table, len(table.rows), problem)):
        if rows != images[0]:
            raise InputError(
                f"{file}: has {rows} rows and {part.images.name} has {images[0]}; row i of both must belong to pair i"
                f"{problems}"
            )
    return table


def records_of(part: Part, table: SourceTable, roles: Roles, start: int, problem: str) -> list[Record]:
    """Return the records of a part, each with the row of its own vector.

    Args:
        part: Files of the part.
        table: Its table.
        roles: Columns of the image, the caption and the split.
        start: Number of rows in the previous parts.
        problem: Column that says why a row cannot be used; an empty string if there is none.
    """
    records = []
    for number, row in enumerate(table.rows, start):
        record = named_record(row, roles, table.names)
        reason = record.problem or record.extra.get(problem, "")
        name = record.image or f"row {number}"
        records.append(replace(record, image=name, path=part.images, row=number, problem=reason))
    return records


def with_shared_images(records: list[Record], parts: Sequence[Part]) -> tuple[list[Record], str]:
    """Return the records with one row for all that have the same image name and the same vector, and a note.

    A vector that was computed again differs a little. A name that comes again with another vector, as where two folders
    number their images from 0, is another image: its row is appended to its name.

    Args:
        records: A record for each row, in order.
        parts: The parts with their vectors.
    """
    first_of: dict[str, int] = {}
    firsts = np.array([first_of.setdefault(record.image, row) for row, record in enumerate(records)], np.int64)
    repeated = np.flatnonzero(firsts != np.arange(len(firsts)))
    vectors = [open_rows(part.images, (2,)) for part in parts]
    others: dict[tuple[str, bytes], int] = {}  # the first row of each further vector of a name
    count = 0
    shared = list(records)
    for start in range(0, len(repeated), COMPARED):
        rows = repeated[start : start + COMPARED]
        own, first = rows_of(vectors, rows), rows_of(vectors, firsts[rows])
        with np.errstate(all="ignore"):
            same = np.linalg.norm(own - first, axis=1) <= TOLERANCE * np.linalg.norm(first, axis=1)
        count += int((~same).sum())
        for row, vector, is_same in zip(rows.tolist(), own, same.tolist(), strict=True):
            name, target = records[row].image, int(firsts[row])
            if not is_same:
                target = others.setdefault((name, hashlib.sha256(vector.tobytes()).digest()), row)
                name = f"{name} (row {target})"
            shared[row] = replace(records[row], image=name, path=records[target].path, row=target)
    note = f"{count:,} row{'s have' if count > 1 else ' has'} the image name of an earlier row and another vector"
    return shared, f"{note}, and so another image" if count else ""


def rows_of(vectors: Sequence[np.memmap[Any, Any]], rows: Ints) -> Reals:
    """Return rows of the concatenated arrays, (n, dim)."""
    starts = np.cumsum([0, *map(len, vectors)])
    found = np.empty((len(rows), vectors[0].shape[1]))
    for start, end, values in zip(starts, starts[1:], vectors, strict=False):
        within = (rows >= start) & (rows < end)
        found[within] = values[rows[within] - start]
    return found
