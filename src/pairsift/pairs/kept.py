"""What a run was made of, kept in its folder, so that a source that was edited or moved still opens."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairsift.errors import InputError, writing
from pairsift.pairs.pairs import Ints, Pairs


@dataclass(frozen=True)
class Kept:
    """The pairs of a run as its source had them when it was made.

    Attributes:
        names: Images as the source named them, (n_images,).
        files: Their files, from the source's folder where they lie in it, (n_images,).
        feature_rows: Row of each image among precomputed features, (n_images,); -1 where images are files.
        captions: (n_pairs,).
        split: The split of each pair as it was read, (n_pairs,).
        trained: Whether the networks were trained on each pair, (n_pairs,).
        image_of: Row of the image that the source gives each caption, (n_pairs,); -1 for none.
        injected: The same with planted noise, (n_pairs,).
        shape: What a row of precomputed features holds, such as `36 x 2048`; empty where images are files.
    """

    names: list[str]
    files: list[str]
    feature_rows: Ints
    captions: list[str]
    split: NDArray[np.str_]
    trained: NDArray[np.bool_]
    image_of: Ints
    injected: Ints
    shape: str = ""


def write_kept(pairs: Pairs, split: NDArray[np.str_], path: Path) -> None:
    """Write what a run was made of as Parquet, one row per pair.

    Columns: `pair`, `image`, `file` (bytes of the path), `feature_row`, `caption`, `split`, `trained`, `image_row` and
    `injected_row` (the image with planted noise; the same without).

    Args:
        pairs: The run's pairs, with noise and without images that failed.
        split: The split of each pair as it was read, (n_pairs,).
        path: The file, which appears whole or not at all.

    Raises:
        WriteError: It cannot be written.
    """
    truth = pairs.image_of if pairs.true_image_of is None else pairs.true_image_of
    base = folder_of(pairs.source)
    files = [os.fsencode(within(file, base)) for file in pairs.paths]
    rows = np.full(pairs.n_images, -1) if pairs.features is None else pairs.features.rows
    table = pa.table(
        {
            "pair": np.arange(len(pairs)),
            "image": pa.array([pairs.names[row] if row >= 0 else "" for row in truth], pa.string()),
            "file": pa.array([files[row] if row >= 0 else b"" for row in truth], pa.binary()),
            "feature_row": np.where(truth >= 0, rows[truth], -1),
            "caption": pa.array(pairs.captions, pa.string()),
            "split": pa.array(split.tolist(), pa.string()),
            "trained": pairs.trained,
            "image_row": truth,
            "injected_row": pairs.image_of,
        }
    )
    table = table.replace_schema_metadata({"shape": feature_shape(pairs)})
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        try:
            pq.write_table(table, part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def read_kept(path: Path) -> Kept | None:
    """Read what `write_kept` wrote; None where there is no such file.

    Raises:
        InputError: The file is damaged.
    """
    if not path.exists():
        return None
    try:
        table = pq.read_table(path)
        numbers = {name: table[name].to_numpy() for name in ("feature_row", "trained", "image_row", "injected_row")}
        texts = {name: table[name].to_pylist() for name in ("image", "file", "caption", "split")}
    except (pa.ArrowException, OSError, KeyError) as error:
        raise InputError(f"{path}: cannot be read ({error}); take it from a copy of the run, or fit again") from error
    owner = numbers["image_row"]
    rows, first = np.unique(owner, return_index=True)
    first = first[rows >= 0]
    return Kept(
        names=[texts["image"][pair] for pair in first],
        files=[os.fsdecode(texts["file"][pair]) for pair in first],
        feature_rows=numbers["feature_row"][first].astype(np.int64),
        captions=texts["caption"],
        split=np.array(texts["split"], "<U7"),
        trained=numbers["trained"].astype(np.bool_),
        image_of=owner.astype(np.int64),
        injected=numbers["injected_row"].astype(np.int64),
        shape=(table.schema.metadata or {}).get(b"shape", b"").decode(),
    )


def feature_shape(pairs: Pairs) -> str:
    """Return what a row of precomputed features holds, in words; nothing where images are files."""
    return "" if pairs.features is None else " x ".join(map(str, pairs.features.shape))


def folder_of(source: str | Path) -> Path:
    """Return the folder that a source's relative paths start from: itself, or that of the file."""
    path = Path(source)
    return path if path.is_dir() else path.parent


def within(file: Path, base: Path) -> str:
    """Return a file's path from a folder where it lies in it, else its absolute path."""
    absolute, root = os.path.abspath(file), os.path.abspath(base)
    return os.path.relpath(absolute, root) if absolute.startswith(root + os.sep) else absolute
