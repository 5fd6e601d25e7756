"""The pairs of a run, stored in its folder, so that they keep their ids when its source is edited or moved."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairsift.arrays import Ints
from pairsift.errors import InputError
from pairsift.files import write_parquet
from pairsift.pairs.pairs import ADDED, SKIPPED, Noise, Pairs

BLOCK, BLOCKS = 4096, 16  # bytes of a file by which it is known again


@dataclass(frozen=True)
class StoredPairs:
    """The pairs of a run, as they were in its source when the run was made, or when its pairs were last judged.

    Attributes:
        names: Names of the images in the source, (n_images,).
        files: Files of the images, relative to the source's folder if they lie in it, (n_images,).
        feature_rows: Row of each image in the precomputed features, (n_images,); -1 if the images are files.
        captions: Captions, (n_pairs,).
        split: Split of each pair as it was read, (n_pairs,).
        trained: Whether the networks were trained on each pair, (n_pairs,).
        image_of: Row of the image of each caption in the source, (n_pairs,); -1 for a caption without an image.
        planted: Row of the image of each caption with planted noise, (n_pairs,).
        shape: Shape of a row of precomputed features, such as `36 x 2048`; empty if the images are files.
        rows: Position of each pair in the source, (n_pairs,); -1 for a pair that is gone. None means that it is the id.
        fitted: Captions of the pairs that the run was made of, as they were then, (n_fitted,), n_fitted <= n_pairs; the
            other pairs came later. None means that all captions are as they were.
        planted_captions: Captions that planted noise gave to pairs in place of theirs, by pair.
        marks: What the content of each image is known by, (n_images,), see `content_marks`; empty where it is not kept.
        hash: Hash of the pairs as they were read.
        noise: Record of the noise that was planted; None where there is none, or where it is not kept.
    """

    names: list[str]
    files: list[str]
    feature_rows: Ints
    captions: list[str]
    split: NDArray[np.str_]
    trained: NDArray[np.bool_]
    image_of: Ints
    planted: Ints
    shape: str = ""
    rows: Ints | None = None
    fitted: list[str] | None = None
    planted_captions: dict[int, str] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)
    hash: str = ""
    noise: Noise | None = None


def write_stored_pairs(pairs: Pairs, split: NDArray[np.str_], path: Path) -> None:
    """Write the pairs of a run as Parquet, one row per pair.

    The columns are `pair`, `image`, `file` (bytes of the path), `feature_row`, `caption`, `split`, `trained`,
    `image_row`, `planted_row` (the image with planted noise; equal to `image_row` without noise) and `mark` (what the
    content of the image is known by). Where noise replaced captions, `planted_caption` has those that it gave, and null
    elsewhere; `caption` is that of the source.

    Args:
        pairs: Pairs of the run, with noise and without images that failed.
        split: Split of each pair as it was read, (n_pairs,).
        path: File to write. It appears either complete or not at all.

    Raises:
        WriteError: The file cannot be written.
    """
    marks, truth = content_marks(pairs), pairs.source_image_of
    of_pairs = np.array([marks[row] if row >= 0 else "" for row in truth.tolist()], object)
    columns = {"split": split, "trained": pairs.trained, "planted_row": pairs.image_of, "mark": of_pairs}
    table = _table(pairs, _feature_rows(pairs), columns)
    noise = "" if pairs.noise is None else json.dumps(asdict(pairs.noise))
    facts = {"hash": replace(pairs, split=split).hash(), "noise": noise}
    write_parquet(path, table.replace_schema_metadata({**(table.schema.metadata or {}), **facts}))


def write_known_pairs(pairs: Pairs, stored: StoredPairs, path: Path) -> None:
    """Write the pairs of a changed source, so that those that were added keep their ids too.

    The columns are those of `write_stored_pairs` and `row`, the position of each pair in the source, -1 for a pair that
    is gone. Splits, training record and noise are those of `stored`, for pairs that it has.

    Args:
        pairs: The pairs as `pairsift.pairs.merge` returns them, perhaps without images that failed.
        stored: The stored pairs that the source was merged into.
        path: File to write. It appears either complete or not at all.

    Raises:
        WriteError: The file cannot be written.
    """
    assert pairs.source_rows is not None
    size, fitted = len(stored.captions), len(stored.fitted or stored.captions)
    truth, present = pairs.source_image_of, pairs.source_rows >= 0
    split = np.where(pairs.split == SKIPPED, SKIPPED, ADDED)
    old = ~present[:size] | (np.arange(size) < fitted)
    split[:size][old] = stored.split[old]
    trained, planted = np.zeros(len(pairs), np.bool_), truth.copy()
    trained[:size], planted[:size] = stored.trained, stored.planted
    rows = _feature_rows(pairs)
    gone = np.setdiff1d(np.arange(len(stored.names)), truth[present])  # a merge forgets where their features were
    rows[gone] = stored.feature_rows[gone]
    columns = {"split": split, "trained": trained, "planted_row": planted, "row": pairs.source_rows}
    write_parquet(path, _table(pairs, rows, columns))


def _table(pairs: Pairs, feature_rows: Ints, columns: dict[str, NDArray[Any]]) -> pa.Table:
    """Return the table of stored pairs.

    Args:
        pairs: The pairs.
        feature_rows: Row of each image in the precomputed features, (n_images,); -1 if the images are files.
        columns: More columns, each (n_pairs,).
    """
    truth, base = pairs.source_image_of, folder_of(pairs.source)
    files = [os.fsencode(within(file, base)) for file in pairs.paths]
    table = pa.table(
        {
            "pair": np.arange(len(pairs)),
            "image": pa.array([pairs.names[row] if row >= 0 else "" for row in truth], pa.string()),
            "file": pa.array([files[row] if row >= 0 else b"" for row in truth], pa.binary()),
            "feature_row": np.where(truth >= 0, feature_rows[truth], -1),
            "caption": pa.array(pairs.source_captions or pairs.captions, pa.string()),
            "image_row": truth,
            **{name: pa.array(values.tolist()) for name, values in columns.items()},
            **_planted_captions(pairs),
        }
    )
    return table.replace_schema_metadata({"shape": feature_shape(pairs)})


def _planted_captions(pairs: Pairs) -> dict[str, pa.Array]:
    """Return the column of the captions that planted noise gave to pairs; nothing where it gave none."""
    if pairs.source_captions is None or pairs.true_image_of is None:
        return {}
    replaced = (pairs.true_image_of < 0) & (pairs.image_of >= 0)
    texts = [text if planted else None for text, planted in zip(pairs.captions, replaced, strict=True)]
    return {"planted_caption": pa.array(texts, pa.string())}


def _feature_rows(pairs: Pairs) -> Ints:
    """Return the row of each image in the precomputed features, (n_images,); -1 if the images are files."""
    return np.full(pairs.n_images, -1) if pairs.features is None else pairs.features.rows.copy()


def read_stored_pairs(path: Path, fitted: list[str] | None = None) -> StoredPairs | None:
    """Read a file of `write_stored_pairs` or `write_known_pairs`; return None if the file does not exist.

    Args:
        path: The file.
        fitted: Captions of the pairs that the run was made of, where the file is of `write_known_pairs`.

    Raises:
        InputError: The file is damaged.
    """
    if not path.exists():
        return None
    try:
        table = pq.read_table(path)
        numbers = {name: table[name].to_numpy() for name in ("feature_row", "trained", "image_row", "planted_row")}
        texts = {name: table[name].to_pylist() for name in ("image", "file", "caption", "split")}
    except (pa.ArrowException, OSError, KeyError) as error:
        raise InputError(f"{path}: cannot be read ({error}); take it from a copy of the run, or fit again") from error
    facts = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    marks = table["mark"].to_pylist() if "mark" in table.column_names else []
    planted = table["planted_caption"].to_pylist() if "planted_caption" in table.column_names else []
    owner = numbers["image_row"]
    rows, first_pairs = np.unique(owner, return_index=True)
    first_pairs = first_pairs[rows >= 0]
    return StoredPairs(
        names=[texts["image"][pair] for pair in first_pairs],
        files=[os.fsdecode(texts["file"][pair]) for pair in first_pairs],
        feature_rows=numbers["feature_row"][first_pairs].astype(np.int64),
        captions=texts["caption"],
        split=np.array(texts["split"], "<U7"),
        trained=numbers["trained"].astype(np.bool_),
        image_of=owner.astype(np.int64),
        planted=numbers["planted_row"].astype(np.int64),
        shape=facts.get("shape", ""),
        rows=table["row"].to_numpy().astype(np.int64) if "row" in table.column_names else None,
        fitted=fitted,
        planted_captions={pair: caption for pair, caption in enumerate(planted) if caption is not None},
        marks=[marks[pair] for pair in first_pairs] if marks else [],
        hash=facts.get("hash", ""),
        noise=Noise(**json.loads(facts["noise"])) if facts.get("noise") else None,
    )


def with_judged_pairs(stored: StoredPairs, table: pa.Table) -> StoredPairs:
    """Return the pairs of a run with the added pairs that a table of its judged pairs has.

    The folder of a run that was judged by an early version has no other record of these. Where they were in the source
    is unknown, so that they count as gone, and are found again by image and caption alone.

    Args:
        stored: The pairs that the run was made of.
        table: The table of judged pairs, with `pair`, `image` and `given_caption`.
    """
    size = len(stored.captions)
    added = table.filter(pa.compute.greater_equal(table["pair"], size)).to_pylist()
    if not added:
        return stored
    total = max(row["pair"] for row in added) + 1
    captions, split = [*stored.captions, *[""] * (total - size)], np.full(total, SKIPPED, "<U7")
    image_of = np.concatenate([stored.image_of, np.full(total - size, -1)])
    row_of = {name: row for row, name in enumerate(stored.names)}
    for row in added:
        captions[row["pair"]], split[row["pair"]] = row["given_caption"], ADDED
        image_of[row["pair"]] = row_of.setdefault(row["image"], len(row_of))
    split[:size] = stored.split
    new = len(row_of) - len(stored.names)
    return replace(
        stored,
        names=list(row_of),
        files=[*stored.files, *[""] * new],
        feature_rows=np.concatenate([stored.feature_rows, np.full(new, -1)]),
        captions=captions,
        split=split,
        trained=np.concatenate([stored.trained, np.zeros(total - size, np.bool_)]),
        image_of=image_of,
        planted=np.concatenate([stored.planted, image_of[size:]]),
        rows=np.concatenate([np.arange(size), np.full(total - size, -1)]),
        fitted=stored.captions,
    )


def content_marks(pairs: Pairs) -> list[str]:
    """Return texts by which the contents of images are known again wherever their files lie, (n_images,).

    With precomputed features, the content of each image is that of the files of all features.
    """
    if pairs.features is None:
        return [file_mark(path) for path in pairs.paths]
    captions = pairs.features.captions
    parts = (*pairs.features.parts, *(() if captions is None else captions.parts))
    return [" ".join(file_mark(part) for part in parts)] * pairs.n_images


def file_mark(path: Path) -> str:
    """Return a text by which a file is known again: its size and a checksum; empty where it cannot be read.

    The checksum is over the whole of a small file, and over blocks of a large one at equal distances.
    """
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size <= BLOCKS * BLOCK:
                return f"{size:x}-{zlib.crc32(stream.read()):x}"
            crc = 0
            for place in np.linspace(0, size - BLOCK, BLOCKS).astype(int).tolist():
                stream.seek(place)
                crc = zlib.crc32(stream.read(BLOCK), crc)
            return f"{size:x}-{crc:x}"
    except OSError:
        return ""


def feature_shape(pairs: Pairs) -> str:
    """Return the shape of a row of precomputed features as text, or an empty string if the images are files."""
    if pairs.features is None:
        return ""
    shape, captions = " x ".join(map(str, pairs.features.shape)), pairs.features.captions
    return shape if captions is None else f"{shape} with {captions.shape[0]} for captions"


def folder_of(source: str | Path) -> Path:
    """Return the folder that the relative paths of a source start from.

    This is the source itself if it is a folder, else the folder that contains it.
    """
    path = Path(source)
    return path if path.is_dir() else path.parent


def within(file: Path, base: Path) -> str:
    """Return the path of a file relative to a folder if the file lies in it, else its absolute path."""
    absolute, root = os.path.abspath(file), os.path.abspath(base)
    return os.path.relpath(absolute, root) if absolute.startswith(root + os.sep) else absolute
