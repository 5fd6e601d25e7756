"""Many pairs of vectors in files: seconds and memory of a check, of an export and of the review, by their number.

A folder of vectors of 512 numbers in half precision, `image.npy`, `text.npy` and `captions.parquet`, is checked by
`pairsift check` in a process of its own, exported, and reviewed over HTTP. 30% of the captions change places; where
the folder has `truth.npy`, AUROC and the flags are compared with it. `shared` is the same check by two processes with
one thread each, beside one process with one thread. `train` is an epoch of each phase of a method with the preset of
`two_tower`, from the source to the trained network, which has all pairs in memory; its seconds are those of an epoch
alone, for each network. Of more than two million pairs it is one epoch of one network of `plain`. `torchrun` is an
epoch of `plain`, with 512 and with 2,048 pairs in a step, by one process with one thread and by two. `index` is the
approximate index of the captions, and `mixture` a fit to as many numbers as pairs, and the posterior of each. The
memory is the largest resident size of the process. Beside the seconds stands the time of a product of two float32
matrices of 2,048 x 2,048.

    python benchmarks/scale.py vectors-100k vectors-1m vectors-10m --work /tmp/scale
    python benchmarks/scale.py vectors-1m --work /tmp/scale --stages shared train torchrun index mixture
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

# isort: split
import numpy as np
import pyarrow.parquet as pq
import torch
from sklearn.metrics import roc_auc_score

from epochs import costs_of, epochs, short
from rows import Row, markdown, page, parser, read_rows, select, versions, write_rows, write_tables
from serve import FILTERS, peak, timed

PRODUCT, REPEATS = 2048, 20
BATCHES = 512, 2048  # pairs in a step of `torchrun`
STAGES = ("check", "export", "review", "shared", "train", "torchrun", "index", "mixture")
METHODS = ("plain", "sift", "pc2")
MOST = 2_000_000  # pairs that each method trains on
ASKED = tuple(f"review: {name}" for name in FILTERS)
SUMMARY = (  # what, its number, and how it is written
    ("check", "seconds", ",.0f"),
    *(("check", f"{stage} s", ",.0f") for stage in ("learn", "judge", "finish")),
    ("check", "gigabytes", ".2f"),
    ("check", "gigabytes beyond mapped files", ".2f"),
    ("export without the flagged pairs", "seconds", ".1f"),
    ("review: start", "seconds", ".1f"),
    ("review: start", "gigabytes", ".2f"),
    ("review: everything", "first s", ".2f"),
    *((f"epoch: {name}", "seconds", ",.1f") for name in METHODS),
    ("epoch: pc2", "gigabytes", ".1f"),
    ("index: build", "seconds", ",.0f"),
    ("index: a query", "seconds", ".3f"),
    *((f"mixture: {kind}", "seconds", ".2f") for kind in ("gaussian", "beta")),
)
COMMAND = [sys.executable, "-m", "pairsift.cli"]


def main() -> None:
    options = parser(__doc__, "scale.json")
    options.add_argument("vectors", nargs="+", type=Path, help="folders of vectors")
    options.add_argument(
        "--work", type=Path, required=True, help="folder of the runs, which are made if they are missing"
    )
    options.add_argument("--batch-size", type=int, help="pairs in a step of what torchrun starts")
    options.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES[:3])
    options.add_argument("--pages", nargs="*", type=Path, default=[], help="pages whose table is written anew")
    chosen = options.parse_args()
    if "RANK" in os.environ:
        return train_beside_others(str(chosen.vectors[0]), chosen.batch_size)
    rows = read_rows(chosen.json)
    for folder in chosen.vectors:
        run, pairs = chosen.work / f"{folder.name}-run", pq.read_metadata(folder / "captions.parquet").num_rows
        for stage in chosen.stages:
            for row in STAGE[stage](folder, run):
                row = {"pairs": pairs, "stage": stage, **row, "product": product(), **machine()}
                same = {name: row[name] for name in ("pairs", "stage", "what")}
                rows = [other for other in rows if {name: other[name] for name in same} != same] + [row]
                write_rows(chosen.json, rows)
                print(row, flush=True)
    rows.sort(key=lambda row: (row["pairs"], STAGES.index(row["stage"])))
    write_rows(chosen.json, rows)
    chosen.json.with_suffix(".md").write_text(page(__doc__, table(rows)), encoding="utf-8")
    write_tables(chosen.pages, {"<!-- scale table -->": summary}, rows)


def machine() -> Row:
    """What a row was measured with."""
    return {**versions(), "machine": f"{platform.machine()}, {os.cpu_count()} cores", "date": time.strftime("%Y-%m-%d")}


def product() -> float:
    """Seconds of a product of two matrices."""
    a = torch.rand(PRODUCT, PRODUCT)
    began = time.monotonic()
    for _ in range(REPEATS):
        a @ a
    return (time.monotonic() - began) / REPEATS


def timed_run(*words: object) -> Row:
    """Seconds and memory of a command."""
    began, own = time.monotonic(), 0.0
    process = subprocess.Popen([*COMMAND, *map(str, words)], stdout=subprocess.DEVNULL)
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        own = max(own, own_memory(process.pid))
        time.sleep(0.2)
    process.returncode = os.waitstatus_to_exitcode(ended[1])
    assert not process.returncode, words
    row = {"seconds": time.monotonic() - began, "gigabytes": ended[2].ru_maxrss * 1024 / 1e9}
    return row | {"gigabytes beyond mapped files": own}


def own_memory(process: int) -> float:
    """The memory of a process that is no page of a file, in GB; 0 at its end."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next((int(line.split()[1]) * 1024 / 1e9 for line in status.splitlines() if line.startswith("RssAnon")), 0.0)


def checked(folder: Path, run: Path) -> list[Row]:
    """Check the vectors, and compare the flags with the truth."""
    row = {"what": "check", **timed_run("check", folder, "--out", run, "--overwrite", "--quiet")}
    metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    row |= {f"{name} s": seconds for name, seconds in metrics["seconds"].items()}
    row |= {name: metrics["noise_rate"][name] for name in ("estimated", "low", "high")}
    if (folder / "truth.npy").exists():
        found = pq.read_table(run / "pairs.parquet", columns=["pair", "match_probability", "is_mismatch"])
        wrong, flag = np.load(folder / "truth.npy")[found["pair"].to_numpy()], np.asarray(found["is_mismatch"])
        row["auroc"] = float(roc_auc_score(wrong, -found["match_probability"].to_numpy()))
        row |= {
            "precision": float(wrong[flag].mean()),
            "recall": float(flag[wrong].mean()),
            "rate": float(wrong.mean()),
        }
    return [row]


def exported(folder: Path, run: Path) -> list[Row]:
    """Export the pairs that are not flagged."""
    out = run.with_suffix(".parquet")
    out.unlink(missing_ok=True)
    row = timed_run("export", run, "--out", out, "--drop-below", 0.5, "--quiet")
    rows = pq.read_metadata(out).num_rows
    out.unlink()
    return [{"what": "export without the flagged pairs", **row, "rows": rows}]


def reviewed(folder: Path, run: Path) -> list[Row]:
    """Serve the review, and ask for its first page by each filter."""
    began = time.monotonic()
    server = subprocess.Popen([*COMMAND, "serve", run, "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = next(word for word in server.stdout.readline().split() if word.startswith("http"))
        start = time.monotonic() - began
        filters = {name: query for name, query in FILTERS.items() if "shop" not in query}
        rows = []
        for name, query in {**filters, "the page itself": None}.items():
            place = address if query is None else f"{address}api/pairs?limit=50&{query}"
            found = timed(name, lambda place=place: ask(place), 3)
            rows.append({"what": f"review: {name}", "seconds": found["again"] / 1000, "first s": found["first"] / 1000})
        return [{"what": "review: start", "seconds": start, "gigabytes": peak(server.pid) / 1000}, *rows]
    finally:
        server.terminate()
        server.wait()


def ask(address: str) -> object:
    """Fetch a page."""
    from urllib.request import urlopen

    return urlopen(address).read()


def shared(folder: Path, run: Path) -> list[Row]:
    """Check by one process with one thread, and by two with one thread each."""
    rows = []
    for count in (1, 2):
        place = run.with_name(f"{run.name}-{count}")
        shutil.rmtree(place, ignore_errors=True)
        began = time.monotonic()
        words = [
            [*COMMAND, "check", folder, "--out", place, "--shard", f"{k}/{count}", "--quiet"] for k in range(count)
        ]
        processes = [subprocess.Popen(one, env={**os.environ, "OMP_NUM_THREADS": "1"}) for one in words]
        assert not any(process.wait() for process in processes)
        row = {"what": f"check by {count} with one thread", "seconds": time.monotonic() - began}
        judged = max(file.stat().st_mtime for file in (place / "shards").glob("evidence-*"))
        rows.append(row | {"judge s": judged - (place / "shards" / "judge.safetensors").stat().st_mtime})
        shutil.rmtree(place)
    ratios = {name: rows[0][name] / rows[1][name] for name in ("seconds", "judge s")}
    rows[1] |= {"times as fast": ratios["seconds"], "judging, times as fast": ratios["judge s"]}
    return rows


def trained(folder: Path, run: Path) -> list[Row]:
    """Train each method for an epoch of each of its phases."""
    found = in_process(epochs_of, str(folder))
    plain = found["plain"]["seconds"]
    return [{"what": f"epoch: {name}", "times plain": row["seconds"] / plain, **row} for name, row in found.items()]


def epochs_of(source: str) -> dict[str, Row]:
    """Seconds of the mean epoch of a training and of an epoch of each phase, and the memory so far, by method."""
    from pairsift.runs.prepare import matcher_factory, prepare

    shared: dict[str, Any] = {"source": source, "matcher": "two_tower", "dev": 1000, "test": 1000}
    few = pq.read_metadata(Path(source, "captions.parquet")).num_rows <= MOST
    if not few:
        shared["plain"] = {"networks": 1, "epochs": {"warmup": 0}}
    found: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as place:
        began = time.monotonic()
        prepared = prepare(short(shared | {"method": "plain"}), Path(place), progress=False)
        prepared_s = time.monotonic() - began
        for name in METHODS if few else ("plain",):
            config = short(shared | {"method": name})
            seconds = epochs(config, prepared)
            costs = costs_of({"method": name, "matcher": "two_tower", "costs": seconds})
            found[name] = {
                "seconds": costs.get("whole") or costs["train"],
                "gigabytes": gigabytes(),
                "prepared s": prepared_s,
            }
            found[name] |= {f"{phase} s": value for phase, value in seconds.items()}
        matcher = matcher_factory(config, prepared)()
        weights = sum(part.numel() for part in matcher.parameters() if part.ndim == 2)
        pairs = len(prepared.pairs.ids("train"))
        batch = config.train.with_batch_size(pairs).batch_size or 0
        operations = 6 * pairs * (weights + batch * matcher.dim)
    rate = operations / found["plain"]["seconds"]
    return found | {"plain": found["plain"] | {"share of the product": rate * product() / (2 * PRODUCT**3)}}


def spread(folder: Path, run: Path) -> list[Row]:
    """Train by one process with one thread, and by torchrun in two with one thread each."""
    rows = []
    for batch in BATCHES:
        for count in (1, 2):
            start = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
            command = [*start, __file__, str(folder), "--work", str(run.parent), "--batch-size", str(batch)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
            what = f"epoch by {count} with one thread, steps of {batch}"
            rows.append({"what": what, "seconds": json.loads(out.splitlines()[-1])["train"]})
        rows[-1]["times as fast"] = rows[-2]["seconds"] / rows[-1]["seconds"]
    return rows


def train_beside_others(source: str, batch: int) -> None:
    """Train `plain` as one of the processes of torchrun; the first of them prints the seconds of an epoch by phase."""
    from pairsift.processes import joined
    from pairsift.runs.prepare import prepare

    given = {"source": source, "matcher": "two_tower", "dev": 1000, "test": 1000, "method": "plain"}
    config = short(given | {"batch_size": batch})
    with joined("cpu") as processes, tempfile.TemporaryDirectory() as place:
        seconds = epochs(config, prepare(config, Path(place), progress=False), processes)
        if processes.first:
            print(json.dumps(seconds))


def indexed(folder: Path, run: Path) -> list[Row]:
    """Build an approximate index of the captions, and ask it with images."""
    return in_process(index_of, str(folder))


def index_of(folder: str) -> list[Row]:
    """Seconds of the index and of a query."""
    from pairsift.retrieve.nearest import ApproximateIndex, closest

    texts, images = (torch.from_numpy(np.load(Path(folder, f"{side}.npy"), "r+")) for side in ("text", "image"))
    began = time.monotonic()
    index = ApproximateIndex.build([texts], [images[::1000]])
    row = {"what": "index: build", "seconds": time.monotonic() - began, "recall": index.facts["recall"]}
    asked = [images[place : place + 1] for place in range(0, 2000, 100)]
    began = time.monotonic()
    for query in asked:
        closest([query], [texts], 10, index)
    query_s = (time.monotonic() - began) / len(asked)
    return [row | {"gigabytes": gigabytes()}, {"what": "index: a query", "seconds": query_s}]


def mixed(folder: Path, run: Path) -> list[Row]:
    """Fit mixtures to numbers of two kinds."""
    return in_process(mixtures_of, pq.read_metadata(folder / "captions.parquet").num_rows)


def mixtures_of(n: int) -> list[Row]:
    """Seconds of a mixture of Gaussians and of betas, and of one that is fitted to all numbers."""
    from pairsift.methods.parts import division

    rng, rows, usual = np.random.default_rng(0), list[Row](), division.SUMMARISED
    values = np.concatenate([rng.gamma(2, 0.4, n - 3 * n // 10), 2 + rng.gamma(4, 0.5, 3 * n // 10)])
    for kind in ("gaussian", "beta"):
        lows = []
        for most, how in ((usual, ""), (n, ", fitted to all numbers")):
            division.SUMMARISED = most
            began = time.monotonic()
            lows.append(division.fit_mixture(values, 0, kind).low(values))
            row = {"what": f"mixture: {kind}{how}", "seconds": time.monotonic() - began, "gigabytes": gigabytes()}
            rows.append(row)
        rows[-2]["largest difference"] = float(np.abs(lows[0] - lows[1]).max())
    return rows


def in_process(function: Callable[..., Any], *given: object) -> Any:
    """Return what a function returns in a process of its own, whose memory is its alone."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *given).result()


def gigabytes() -> float:
    """The largest resident size of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


STAGE = {
    "check": checked,
    "export": exported,
    "review": reviewed,
    "shared": shared,
    "train": trained,
    "torchrun": spread,
    "index": indexed,
    "mixture": mixed,
}


def summary(rows: Sequence[Row]) -> str:
    """What was measured, with a column for each number of pairs."""
    sizes = sorted({row["pairs"] for row in rows})
    lines = []
    for what, name, form in SUMMARY:
        cells = [[row[name] for row in select(rows, {"pairs": size, "what": what}) if name in row] for size in sizes]
        if any(cells):
            label = what if name == "seconds" else f"{what}, {name}"
            lines.append([label, *(format(cell[0], form) if cell else "" for cell in cells)])
    slowest = [[row for row in rows if row["pairs"] == size and row["what"] in ASKED] for size in sizes]
    first = [f"{max(row['first s'] for row in found):.2f}" if found else "" for found in slowest]
    lines.append(["review: the slowest filter, first s", *first])
    return markdown(["seconds, or GB", *(f"{size:,}" for size in sizes)], lines)


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    kept = ("pairs", "stage", "what", "seconds", "gigabytes", "product")
    skipped = {*kept, "machine", "date", *versions()}
    lines = []
    for row in rows:
        others = ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value:,}"
            for name, value in row.items()
            if name not in skipped
        )
        gigabytes = f"{row['gigabytes']:.2f}" if "gigabytes" in row else ""
        products = f"{row['seconds'] / row['product']:,.0f}"
        lines.append([f"{row['pairs']:,}", row["what"], f"{row['seconds']:,.2f}", products, gigabytes, others])
    return markdown(["pairs", "", "seconds", "products", "GB", ""], lines)


if __name__ == "__main__":
    main()
