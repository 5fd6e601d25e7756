"""Small sources that the tests of this room write."""

import csv
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairsift.errors import InputError
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.readers import load


def touch(folder: Path, *names: str) -> None:
    """Empty files: readers look only whether an image is there."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def write_table(path: Path, names: Sequence[str], rows: Sequence[Sequence[str]]) -> Path:
    """Rows as CSV, TSV, JSON lines or Parquet, by the path's extension."""
    if path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif path.suffix == ".parquet":
        columns = zip(*rows, strict=True)
        pq.write_table(pa.table({name: list(cells) for name, cells in zip(names, columns, strict=True)}), path)
    else:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter="\t" if path.suffix in (".tsv", ".txt") else ",")
            writer.writerows([names, *rows])
    return path


def plain_pairs(captions_per_image: Sequence[int], n_dev: int = 2, n_test: int = 2) -> Pairs:
    """Pairs whose training images have so many captions each; dev and test images have one."""
    counts = [*captions_per_image, *[1] * (n_dev + n_test)]
    image_of = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
    n_train = sum(captions_per_image)
    names = [f"{row}.jpg" for row in range(len(counts))]
    return Pairs(
        source="memory",
        names=names,
        paths=[Path(name) for name in names],
        captions=[f"caption {pair}" for pair in range(len(image_of))],
        image_of=image_of,
        split=np.array(["train"] * n_train + ["dev"] * n_dev + ["test"] * n_test, dtype="<U7"),
    )


def noise_index(pairs: Pairs) -> list[int]:
    """The image of each training caption, counted among the training images in the order of their first captions."""
    train = pairs.ids("train")
    images = list(dict.fromkeys(pairs.source_image_of[train].tolist()))
    return [images.index(row) for row in pairs.image_of[train].tolist()]


def by_content(image: bytes) -> str:
    """The name of an image within a file that has none."""
    return f"image {hashlib.sha256(image).hexdigest()[:16]}"


def reasons(pairs: Pairs) -> dict[int, tuple[str, str]]:
    """Where and why, for each skipped pair."""
    return {skip.pair: (skip.where, skip.reason) for skip in pairs.skipped}


def refused(*arguments: object, **named: object) -> str:
    """The one line with which `load` refuses."""
    with pytest.raises(InputError) as caught:
        load(*arguments, **named)  # type: ignore[arg-type]
    line = str(caught.value)
    assert "\n" not in line
    return line
