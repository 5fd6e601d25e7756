"""The review queue at millions of pairs: what a page, a filter, a decision and a thumbnail take, and how much memory.

A run with generated captions, an image for every five pairs and ten suggestions for each of three pairs in ten is
served by `pairsift serve` in a process of its own, and asked over HTTP. The images share 100 files. `first` is the
first request, for which nothing is remembered, and `again` the median of the next ones. The memory is the largest
resident size of the process.

    python benchmarks/serve.py --json benchmarks/results/serve.json
    python benchmarks/serve.py --pairs 10000000 --json benchmarks/results/serve_10m.json
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from PIL import Image

from pairsift.marker import write_marker
from pairsift.runs.config import configure
from rows import Row, markdown, page, parser, write_rows

WORDS, CAPTION, FILES, PER_IMAGE = 20_000, 10, 100, 5
FILTERS = {
    "everything": "",
    "the best first": "order=best",
    "at random": "order=random&seed=3",
    "as in the source": "order=source",
    "a range of probabilities": "low=0.2&high=0.21",
    "a verdict": "verdict=clean",
    "undecided": "decision=undecided",
    "a column of the user": "column=shop=s7",
    "copies of images": "duplicates=image",
    "a word": "text=w77x",
    "a part of a word": "text=w1",
    "two words": "text=w12x+w5",
    "a word in a range": "text=w1&low=0.3&high=0.4",
}


def main() -> None:
    options = parser(__doc__, "serve.json")
    options.add_argument("--pairs", type=int, default=1_000_000)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = make_run(Path(place), chosen.pairs)
        began = time.monotonic()
        command = [sys.executable, "-m", "pairsift.cli", "serve", str(folder), "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = next(word for word in server.stdout.readline().split() if word.startswith("http"))
            rows = [{"what": "start", "first": 1000 * (time.monotonic() - began), "again": None}, *measured(address)]
            memory = peak(server.pid)
        finally:
            server.terminate()
            server.wait()
    facts = {"pairs": chosen.pairs, "memory_mb": memory, "machine": f"{platform.machine()}, {os.cpu_count()} cores"}
    write_rows(chosen.json, rows, facts)
    chosen.json.with_suffix(".md").write_text(page(__doc__, table(rows, facts)))
    print(table(rows, facts))


def make_run(place: Path, n: int) -> Path:
    """Write what `pairsift serve` reads of a finished run."""
    rng = np.random.default_rng(0)
    (place / "images").mkdir()
    for k in range(FILES):
        noise = rng.integers(0, 256, (60, 80, 3)).astype(np.uint8)
        Image.fromarray(noise).resize((1600, 1200)).save(place / "images" / f"{k}.jpg", quality=90)
    folder = place / "run"
    folder.mkdir()
    source = place / "mine.csv"
    source.touch()
    write_marker(folder, "run")
    (folder / "config.yaml").write_text(configure(source, out=folder).text())
    (folder / "metrics.json").write_text(json.dumps({"verdicts_given": True, "noise_rate": None}))
    words = np.array([f"w{k}x" for k in range(WORDS)])
    captions = [" ".join(words[row]) for row in rng.integers(0, WORDS, (n, CAPTION))]
    image_of = np.arange(n) // PER_IMAGE
    shared = {"split": rng.choice(["train", "dev", "test"], n, p=[0.8, 0.1, 0.1])}
    files = pa.array([f"images/{k % FILES}.jpg".encode() for k in image_of])
    rows = {"pair": np.arange(n), "image": [f"{k}.jpg" for k in image_of], "file": files, "caption": captions}
    places = {
        "feature_row": np.full(n, -1),
        "trained": np.ones(n, bool),
        "image_row": image_of,
        "planted_row": image_of,
    }
    pyarrow.parquet.write_table(pa.table({**rows, **places, **shared}), folder / "source.parquet")
    probability = np.sort(rng.random(n))
    order = rng.permutation(n)
    judged: dict[str, Any] = {
        "pair": order,
        "image": [f"{image_of[pair]}.jpg" for pair in order],
        "given_caption": [captions[pair] for pair in order],
        "split": shared["split"][order],
        "match_probability": probability,
        "is_mismatch": probability < 0.5,
        "verdict": np.where(probability < 0.5, "mismatched", "clean"),
        "suggested_caption": pa.nulls(n, pa.string()),
        "suggested_from_pair": pa.nulls(n, pa.int64()),
        "shop": rng.choice([f"s{k}" for k in range(300)], n),
    }
    judged["image_duplicates"] = pa.array(np.where(order % 20 == 0, order // 60, -1), mask=order % 20 != 0)
    judged["caption_duplicates"] = pa.nulls(n, pa.int64())
    pyarrow.parquet.write_table(pa.table(judged), folder / "pairs.parquet")
    doubtful = np.sort(order[probability < 0.3])
    suggestions = {
        "pair": np.repeat(doubtful, 10),
        "is_image": np.tile(np.arange(10) >= 5, len(doubtful)),
        "from_pair": rng.integers(0, n, 10 * len(doubtful)),
        "probability": rng.random(10 * len(doubtful)).astype(np.float32),
    }
    pyarrow.parquet.write_table(pa.table(suggestions), folder / "suggestions.parquet")
    return folder


def measured(address: str) -> list[Row]:
    """Ask for everything, and return what it takes."""

    def get(path: str) -> Callable[[], object]:
        return lambda: urllib.request.urlopen(address + path).read()

    def post(path: str, body: object) -> Callable[[], object]:
        request = urllib.request.Request(
            address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        return lambda: urllib.request.urlopen(request).read()

    rows = [timed("the page itself", get(""))]
    rows += [timed(name, get(f"api/pairs?limit=50&{query}")) for name, query in FILTERS.items()]
    rows.append(timed("the 1,000th page", get("api/pairs?limit=50&offset=50000")))
    decision = {"decisions": [{"pair": 5, "choice": "drop"}]}
    rows += [timed("a decision", post("api/decisions", decision), 20), timed("an undo", post("api/undo", {}), 20)]
    body = {"filter": {"high": 0.1}, "choice": "drop"}
    began = time.monotonic()
    post("api/decisions/filter", body)()
    rows.append({"what": "a tenth dropped at once", "first": 1000 * (time.monotonic() - began), "again": None})
    rows.append(timed("undecided, a tenth decided", get("api/pairs?limit=50&decision=undecided")))
    rows += [timed("a large image", get("image/7?size=large")), timed("a thumbnail", get("image/7?size=small"))]
    return rows


def timed(what: str, ask: Callable[[], object], times: int = 7) -> Row:
    """Ask once and then again, and return both in milliseconds, the latter as a median."""
    milliseconds = []
    for _ in range(times):
        began = time.monotonic()
        ask()
        milliseconds.append(1000 * (time.monotonic() - began))
    return {"what": what, "first": milliseconds[0], "again": statistics.median(milliseconds[1:])}


def peak(process: int) -> float:
    """Return the largest resident size of a process in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM"))


def table(rows: list[Row], facts: Row) -> str:
    """The rows as Markdown."""
    lines = []
    for row in rows:
        again = "" if row["again"] is None else f"{row['again']:,.0f}"
        lines.append([row["what"], f"{row['first']:,.0f}", again])
    summary = f"{facts['pairs']:,} pairs, {facts['memory_mb']:,.0f} MB, {facts['machine']}"
    return f"{summary}\n\n{markdown(['', 'first, ms', 'again, ms'], lines)}"


if __name__ == "__main__":
    main()
