"""Captions that each text encoder of a package encodes in a second of a core, and that its products alone would allow.

Captions are encoded as the feature cache does: 512 at a time, by a thread for each core. After each encoder its
products are timed: as many operations of the same precision, (1024, 384) times (384, 1536), by as many threads. Seconds
are of the process, so that other programs count little; numbers are medians over the rounds. Vectors are compared with
those in float32.

    python benchmarks/text_encoders.py --data ../shared/flickr8k --rounds 5
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

import pairsift.encode.encoder
from pairsift.cores import limit_threads
from pairsift.encode.cache import CAPTIONS_PER_CHUNK
from pairsift.encode.encoder import TextEncoder
from pairsift.encode.parallel import map_in_threads
from pairsift.encode.registry import text_encoder
from pairsift.pairs.readers import load
from rows import Row, markdown, parser, versions, write_rows

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
COUNTED = 512  # captions of which the operations are counted
HEAD = ("encoder", "precision", "captions", "products alone", "MFLOP a caption", "lowest cosine")


def main() -> None:
    options = parser(__doc__, "text_encoders.json")
    options.add_argument("--data", type=Path, default=Path("../shared/flickr8k"), help="the source of the captions")
    options.add_argument("--captions", type=int, default=4000, help="number of captions")
    options.add_argument("--rounds", type=int, default=5, help="number of rounds over all encoders")
    chosen = options.parse_args()
    limit_threads()
    captions = sorted(set(load(chosen.data).captions))
    drawn = np.random.default_rng(0).choice(len(captions), min(chosen.captions, len(captions)), replace=False)
    captions = [captions[place] for place in drawn]
    encoders = {("wordllama", "fp32"): text_encoder("wordllama")}
    encoders |= {(name, precision): made(name, precision) for name in ("minilm", "muse") for precision in PRECISIONS}
    rows = measure(encoders, captions, chosen.rounds)
    print(table(rows))
    write_rows(chosen.json, rows, {"captions": len(captions), "threads": torch.get_num_threads(), **versions()})


def made(name: str, precision: str) -> TextEncoder:
    """A sentence encoder with this precision, whatever the processor is fast at."""
    pairsift.encode.encoder.bfloat16_pays = lambda: precision == "bf16"
    found = text_encoder(name)
    found.encode(["a dog"])  # its network is loaded now
    return found


def measure(encoders: dict[tuple[str, str], TextEncoder], captions: list[str], rounds: int) -> list[Row]:
    """The rows of all encoders."""
    seconds: dict[tuple[str, str], list[tuple[float, float]]] = {key: [] for key in encoders}
    work = {name: operations(encoder, captions) for (name, _), encoder in encoders.items()}
    vectors = {}
    chunks = [captions[start : start + CAPTIONS_PER_CHUNK] for start in range(0, len(captions), CAPTIONS_PER_CHUNK)]
    for _ in range(rounds):
        for (name, precision), encoder in encoders.items():
            taken, parts = timed(encoder.encode, chunks)
            vectors[name, precision] = np.concatenate(parts)
            alone = products(work[name] * len(captions), PRECISIONS[precision]) if work[name] else 0.0
            seconds[name, precision].append((taken, alone))
    rows = []
    for (name, precision), pairs in seconds.items():
        taken, alone = (statistics.median(values) for values in zip(*pairs, strict=True))
        row = {"encoder": name, "precision": precision, "per_core_second": len(captions) / taken, "flop": work[name]}
        row["products_per_core_second"] = len(captions) / alone if alone else None
        if (name, "bf16") in vectors:
            row["lowest_cosine"] = float((vectors[name, precision] * vectors[name, "fp32"]).sum(1).min())
        rows.append(row)
    return rows


def operations(encoder: TextEncoder, captions: list[str]) -> float:
    """Operations in the products of a caption."""
    with FlopCounterMode(display=False) as counter:
        encoder.encode(captions[:COUNTED])
    return counter.get_total_flops() / min(COUNTED, len(captions))


def products(flop: float, precision: torch.dtype) -> float:
    """Seconds that products with this many operations take."""
    weight = torch.ones(1536, 384, dtype=precision)
    rows = torch.ones(1024, 384, dtype=precision)
    number = max(1, round(flop / (2 * rows.numel() * len(weight)) / (4 * torch.get_num_threads())))
    with torch.inference_mode():
        linear = torch.nn.functional.linear
        taken, _ = timed(lambda _: [linear(rows, weight) for _ in range(number)], [None] * 4 * torch.get_num_threads())
    return taken


def timed(work: Callable, tasks: list) -> tuple[float, list]:
    """Seconds of the process, and the results of all tasks."""
    begun = time.process_time()
    results = list(map_in_threads(work, tasks))
    return time.process_time() - begun, results


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = []
    for row in rows:
        limit, cosine = row["products_per_core_second"], row.get("lowest_cosine")
        numbers = f"{row['per_core_second']:,.0f}", f"{limit:,.0f}" if limit else "", f"{row['flop'] / 1e6:.0f}"
        lines.append((row["encoder"], row["precision"], *numbers, f"{cosine:.5f}" if cosine else ""))
    return markdown(HEAD, lines)


if __name__ == "__main__":
    main()
