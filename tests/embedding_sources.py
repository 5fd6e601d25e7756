"""Sources of aligned vectors, in both layouts of the reader `embeddings`."""

import csv
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WORDS = ("river", "engine", "violin", "harbour", "cactus", "lantern", "glacier", "bakery", "falcon", "tunnel")


def aligned(pairs: int, seed: int = 0, dims: tuple[int, int] = (12, 8)) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of images and captions that share what they show, each side in a space of its own."""
    rng = np.random.default_rng(seed)
    meaning = rng.normal(size=(pairs, 5))
    sides = [
        meaning @ rng.normal(size=(5, dim)) + 0.3 * rng.normal(size=(pairs, dim)) + rng.normal(size=dim) for dim in dims
    ]
    return sides[0].astype(np.float32), sides[1].astype(np.float32)


def captions_of(pairs: int, seed: int = 0) -> list[str]:
    """Captions that say nothing about the vectors."""
    rng = np.random.default_rng((seed, 1))
    return [f"{' '.join(rng.choice(WORDS, 3))} {number}" for number in range(pairs)]


def write_single(folder: Path, images: np.ndarray, texts: np.ndarray, columns: dict[str, list[str]]) -> Path:
    """image.npy, text.npy and captions.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "image.npy", images)
    np.save(folder / "text.npy", texts)
    with (folder / "captions.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return folder


def write_parts(
    folder: Path, images: np.ndarray, texts: np.ndarray, columns: dict[str, list[str]], cuts: list[int], digits: int = 1
) -> Path:
    """The layout of clip-retrieval, with a part up to each cut and from the last cut on."""
    for name in ("img_emb", "text_emb", "metadata"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    ends = [0, *cuts, len(images)]
    for number, (start, end) in enumerate(pairwise(ends)):
        rows = slice(start, end)
        label = str(number).zfill(digits)
        np.save(folder / "img_emb" / f"img_emb_{label}.npy", images[rows])
        np.save(folder / "text_emb" / f"text_emb_{label}.npy", texts[rows])
        table = pa.table({name: cells[rows] for name, cells in columns.items()})
        pq.write_table(table, folder / "metadata" / f"metadata_{label}.parquet")
    return folder
