"""The pairs of a run, stored in its folder, so that the run still opens after its source was edited or moved."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairsift.arrays import Ints
from pairsift.errors import InputError
from pairsift.files import write_parquet
from pairsift.pairs.pairs import Pairs


@dataclass(frozen=True)
class StoredPairs:
    """The pairs of a run, as they were in its source when the run was made.

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


def write_stored_pairs(pairs: Pairs, split: NDArray[np.str_], path: Path) -> None:
    """Write the pairs of a run as Parquet, one row per pair.

    The columns are `pair`, `image`, `file` (bytes of the path), `feature_row`, `caption`, `split`, `trained`,
    `image_row` and `planted_row` (the image with planted noise; equal to `image_row` without noise).

    Args:
        pairs: Pairs of the run, with noise and without images that failed.
        split: Split of each pair as it was read, (n_pairs,).
        path: File to write. It appears either complete or not at all.

    Raises:
        WriteError: The file cannot be written.
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
            "planted_row": pairs.image_of,
        }
    )
    table = table.replace_schema_metadata({"shape": feature_shape(pairs)})
    write_parquet(path, table)


def read_stored_pairs(path: Path) -> StoredPairs | None:
    """Read the file that `write_stored_pairs` wrote; return None if the file does not exist.

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
        shape=(table.schema.metadata or {}).get(b"shape", b"").decode(),
    )


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
