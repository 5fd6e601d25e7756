"""Verdicts by image network and precision, and images that it encodes in a second.

Collections and verdicts are those of text_choice.py, with the default text encoder and 30% of the captions shuffled.
Speeds are of 800 photographs of Flickr8k, as JPEG files of 224 and of 500 pixels (enlarged), from the files to vectors
in the cache, by as many threads as torch uses; beside them the products of two float32 matrices of 2,048 x 2,048 that
the same threads take in a second.

    python benchmarks/image_encoders.py --data ../shared --cache runs/cache
"""

from __future__ import annotations

import tempfile
import time
from itertools import product
from pathlib import Path

import torch
from PIL import Image

import pairsift.encode.efficientnet
from hub_encoders import PRODUCT, seconds
from pairsift.cores import limit_threads
from pairsift.encode.cache import encode_images
from pairsift.encode.options import EncodeOptions
from pairsift.encode.registry import image_encoder
from pairsift.pairs.readers import load
from pairsift.runs.config import configure
from pairsift.train.options import TrainOptions
from rows import Row, find_row, markdown, mean, page, parser, read_rows, select, versions, write_rows
from text_choice import COLLECTIONS, judged, true_pairs
from verdicts import records, shuffled, write_source

NOISE = 0.3
KEY = ("collection", "seed", "encoder", "dtype")
ENCODERS = ("efficientnet-lite0", "efficientnet-lite2")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PHOTOGRAPHS, SIDES = 800, (224, 500)
SPEED = "images a second"  # the collection of rows of speed


def main() -> None:
    options = parser(__doc__, "image_encoders.json")
    options.add_argument("--data", type=Path, default=Path("../shared"))
    options.add_argument("--collections", nargs="*", default=list(COLLECTIONS))
    options.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    options.add_argument("--encoders", nargs="+", default=list(ENCODERS))
    options.add_argument("--speeds", action="store_true", help="measure speeds, of which rows are replaced")
    options.add_argument("--cache", default=None, help="folder of the feature cache")
    chosen = options.parse_args()
    limit_threads()
    rows = read_rows(chosen.json)
    if chosen.speeds:
        rows = [row for row in rows if row["collection"] != SPEED]
        for name, dtype in product(ENCODERS, DTYPES):
            rows.append(speed(name, dtype, chosen.data.resolve()))
            print(rows[-1], flush=True)
    for key in product(chosen.collections, chosen.seeds, chosen.encoders, DTYPES):
        wanted = dict(zip(KEY, key, strict=True))
        if find_row(rows, wanted) is None:
            rows.append(measure(wanted, chosen.data.resolve(), chosen.cache))
            print({name: rows[-1].get(name) for name in (*KEY, "estimate", "auroc", "calibration")}, flush=True)
            write_rows(chosen.json, rows)
    write_rows(chosen.json, rows)
    chosen.json.with_suffix(".md").write_text(page(__doc__, tables(rows)))


def choose(dtype: str) -> None:
    """Let networks that are made from now on compute in a precision, whatever the machine is fast at."""
    pairsift.encode.efficientnet.precision_on = lambda device: DTYPES[dtype]


def measure(wanted: Row, data: Path, cache: str | None) -> Row:
    """One row of verdicts."""
    choose(wanted["dtype"])
    with tempfile.TemporaryDirectory() as name:
        place, seed = Path(name), wanted["seed"]
        true = [(*record[:2], "") for record in true_pairs(wanted["collection"], data, seed, place)]
        given, wrong = shuffled(true, NOISE, seed, "all")
        config = configure(
            write_source(given, place),
            method="linear",
            out=place / "run",
            train=TrainOptions(seed=seed),
            encode=EncodeOptions(cache=cache, image_encoder=wanted["encoder"]),
        )
        return {**wanted, "pairs": len(given), **judged(config, wrong), "versions": versions()}


def speed(encoder: str, dtype: str, data: Path) -> Row:
    """One row of images a second, by the side of the photographs."""
    choose(dtype)
    network, rates = image_encoder(encoder), {}
    for side in SIDES:
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            paths = [Path(image) for image, _, _ in records(f"flickr-{PHOTOGRAPHS}", data, 1, place)]
            for number, path in enumerate(paths):
                with Image.open(path) as photograph:
                    photograph.resize((side, side), Image.Resampling.BICUBIC).save(place / f"{number}.jpg", quality=90)
            copies = [(str(place / f"{number}.jpg"), f"photograph {number}", "") for number in range(len(paths))]
            pairs = load(write_source(copies, place))
            began = time.perf_counter()
            encode_images(pairs, network, place / "cache")
            rates[str(side)] = round(len(paths) / (time.perf_counter() - began), 1)
    square = torch.rand(PRODUCT, PRODUCT)
    return {
        "collection": SPEED,
        "encoder": encoder,
        "dtype": dtype,
        "rates": rates,
        "threads": torch.get_num_threads(),
        "products": round(1 / seconds(lambda: square @ square, 5), 1),
        "versions": versions(),
    }


def tables(rows: list[Row]) -> str:
    """Verdicts, then speeds."""
    return f"{summary(rows)}\n\n{speeds(rows)}"


def summary(rows: list[Row]) -> str:
    """AUROC and estimated share by collection and network, means over the seeds."""
    verdicts = [row for row in rows if row["collection"] != SPEED]
    lines = []
    for collection in dict.fromkeys(row["collection"] for row in verdicts):
        cells, group = [], select(verdicts, {"collection": collection})
        for encoder, dtype in product(ENCODERS, DTYPES):
            seeds = select(group, {"encoder": encoder, "dtype": dtype})
            numbers = [
                mean((row[name] for row in seeds), form) for name, form in (("auroc", ".3f"), ("estimate", ".1%"))
            ]
            cells.append(", ".join(numbers))
        lines.append([f"`{collection}`", f"{group[0]['pairs']:,}", *cells])
    return markdown(["collection", "pairs", *(f"`{name}`, {one}" for name, one in product(ENCODERS, DTYPES))], lines)


def speeds(rows: list[Row]) -> str:
    """Images a second by network and precision."""
    lines = [
        [f"`{row['encoder']}`", row["dtype"], *map(str, row["rates"].values()), str(row["products"])]
        for row in select(rows, {"collection": SPEED})
    ]
    head = ["network", "precision", *(f"images a second, {side} pixels" for side in SIDES), "products a second"]
    return markdown(head, lines)


if __name__ == "__main__":
    main()
