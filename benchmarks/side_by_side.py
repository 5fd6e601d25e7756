"""Fits side by side: those of the same pairs, noise and seed share their features and their held-out evidence."""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from option_names import tree
from pairsift.bench.measure import Row, Start, train
from pairsift.runs.config import from_tree
from pairsift.runs.prepare import Prepared, prepare

PRETRAINED = ("osa",)  # methods that refuse matchers which start untrained
VERIFIED = 60  # every so many-th training pair is declared to match, for methods that need such pairs


def measured(
    data: Path,
    cache: Path | None,
    rows: list[Row],
    typed: Callable[[Row], tuple[str, list[str]]],
    text_encoder: str = "",
) -> Iterator[Row]:
    """Train and test rows of the same pairs, noise, matcher and seed, and give back each with its numbers.

    Args:
        data: Flickr8k's folder.
        cache: Folder of the feature cache.
        rows: What is wanted: `matcher`, `loss`, `noise`, `seed`, `images` (None for all), perhaps `captions`.
        typed: A row's method and its options, as `fit` knows them.
        text_encoder: Name of the text encoder; empty for the default one, without n-grams beside it.
    """
    if not rows:
        return
    first = rows[0]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        (folder / "model").mkdir(parents=True)
        shared = {
            "source": str(fewer(data, first["images"], Path(place)) if first["images"] else data),
            "out": str(folder),
            "cache": None if cache is None else str(cache),
            "text_encoder": text_encoder or None,
            "captions_per_image": first.get("captions"),
            "matcher": first["matcher"],
            "noise": first["noise"],
            "noise_seed": first["seed"],
            "seed": first["seed"],
        }
        common = from_tree({**shared, "method": "plain"})
        start = Start.judge(common, with_verified(prepare(common, folder, progress=False)), folder)
        for row in rows:
            method, options = typed(row)
            config = from_tree({**shared, "method": method, "loss": row["loss"], **tree(options)})
            yield row | train(config, start, folder) | start.facts


def with_verified(prepared: Prepared) -> Prepared:
    """Declare every 60th training pair to match; one that planted noise moved counts as any other pair."""
    declared = np.zeros(len(prepared.pairs), np.bool_)
    declared[prepared.pairs.ids("train")[::VERIFIED]] = True
    return replace(prepared, pairs=replace(prepared.pairs, verified=declared))


def fewer(data: Path, images: int, place: Path) -> Path:
    """A table of the first `images` training images and a fifth as many dev and test images, with their captions."""
    split_of = {}
    for split, count in (("train", images), ("dev", images // 5), ("test", images // 5)):
        lines = (data / "splits" / f"{split}.txt").read_text(encoding="utf-8").split()
        split_of |= dict.fromkeys(lines[:count], split)
    path = place / "flickr8k.csv"
    with (data / "captions.csv").open(encoding="utf-8", newline="") as read, path.open("w", newline="") as written:
        table = csv.writer(written)
        table.writerow(("image", "caption", "split"))
        for row in csv.DictReader(read):
            if row["image"] in split_of:
                image = (data / "images" / row["image"]).resolve()
                table.writerow((image, row["caption"], split_of[row["image"]]))
    return path


def write(path: Path, rows: list[Row]) -> None:
    """Write rows; a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    part.replace(path)
