"""Trainings that end when recall on dev makes no more progress, beside trainings of the planned length.

A collection is read and shuffled as in verdicts.py, with splits of 80, 10 and 10% by image; `flickr-five` has its own,
and its dev and test stay clean. Training pairs are judged once, without networks, and both trainings start from the
same weights with the same order; where no stage ended early, both are one training. rSum is of the ensemble of both
networks on the truly matching test pairs. Seconds are of the process, so that other programs count little.

    python benchmarks/endings.py --data ../shared --cache runs/cache
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from pairsift.cores import limit_threads
from pairsift.detect.options import DetectOptions
from pairsift.encode.options import EncodeOptions
from pairsift.retrieve.gallery import evaluate
from pairsift.runs.config import Config, configure
from pairsift.runs.job import job_of
from pairsift.runs.judge import Judge, of_training
from pairsift.runs.prepare import Prepared, prepare
from pairsift.train.loop import Trainer
from pairsift.train.options import TrainOptions
from rows import Row, find_row, markdown, mean, page, parser, read_rows, select, versions, write_rows
from verdicts import records, shuffled, with_splits, write_source

COLLECTIONS = ("flickr-five", "flickr-1600", "flickr-400-five", "scenes-1600", "emoji")
KEY = ("collection", "noise", "seed", "method", "plan")
PLANS = ("planned length", "ends by dev")
WITHOUT_NETWORKS = replace(DetectOptions(), networks=replace(DetectOptions().networks, min_pairs=2**62))


def main() -> None:
    options = parser(__doc__, "endings.json")
    options.add_argument("--data", type=Path, default=Path("../shared"))
    options.add_argument("--collections", nargs="+", default=list(COLLECTIONS))
    options.add_argument("--noise", nargs="+", type=float, default=[0.3])
    options.add_argument("--seeds", nargs="+", type=int, default=[1])
    options.add_argument("--method", default="sift")
    options.add_argument("--cache", default=None, help="folder of the feature cache")
    chosen = options.parse_args()
    limit_threads()
    rows = read_rows(chosen.json)
    for collection, noise, seed in product(chosen.collections, chosen.noise, chosen.seeds):
        wanted = [dict(zip(KEY, (collection, noise, seed, chosen.method, plan), strict=True)) for plan in PLANS]
        if all(find_row(rows, row) for row in wanted):
            continue
        for row in measure(wanted, chosen.data.resolve(), chosen.cache):
            print({name: row[name] for name in (*KEY, "rsum", "epochs", "seconds")}, flush=True)
            rows.append(row)
        write_rows(chosen.json, rows)
    chosen.json.with_suffix(".md").write_text(page(__doc__, table(rows)))


def measure(wanted: list[Row], data: Path, cache: str | None) -> list[Row]:
    """Return a row for each plan."""
    collection, noise, seed, method, _ = wanted[0].values()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        where = "train" if collection == "flickr-five" else "all"
        true = with_splits(records(collection, data, seed, place), seed)
        given, wrong = shuffled(true, noise, seed, where)
        config = configure(
            write_source(given, place),
            method=method,
            out=place / "run",
            train=TrainOptions(seed=seed),
            encode=EncodeOptions(cache=cache),
            detect=WITHOUT_NETWORKS,
        )
        (config.folder / "model").mkdir(parents=True)
        prepared = prepare(config, config.folder, progress=False)
        judge = Judge(of_training(prepared), config.folder, config, False)
        evidence = judge.prior(judge.judge()), judge.likeness()
        facts = {"pairs": len(given), "training_pairs": len(prepared.pairs.ids("train"))}
        facts |= {"versions": versions(), "machine": f"{platform.machine()}, {os.cpu_count()} cores"}
        ended = train(config, prepared, evidence, wrong, True)
        planned = train(config, prepared, evidence, wrong, False) if ended["endings"] else ended
        return [{**row, **facts, **reached} for row, reached in zip(wanted, (planned, ended), strict=True)]


def train(config: Config, prepared: Prepared, evidence: tuple, wrong: np.ndarray, may_end: bool) -> Row:
    """Return what a training takes and reaches whose stages may end, or are as long as planned."""
    trainer = Trainer(job_of(config, prepared, config.folder, *evidence))
    planned = len(trainer.phases)
    if not may_end:
        kept = {id(phase): replace(phase, may_end=False) for phase in trainer.phases}  # a phase is one object
        trainer.phases = [kept[id(phase)] for phase in trainer.phases]
    began = time.process_time()
    trainer.run()
    seconds = time.process_time() - began
    split = prepared.pairs.split.astype("<U7")
    split[wrong & (split == "test")] = "unused"
    matchers = [network.matcher for network in trainer.networks]
    test = evaluate(matchers, prepared.features, replace(prepared.pairs, split=split), "test")["ensemble"]
    return {
        "planned": planned,
        "epochs": len(trainer.log),
        "endings": len(trainer.position.endings),
        "best_epoch": trainer.position.best_epoch,
        "dev": [round(line["dev"]["rsum"], 1) for line in trainer.log],
        "rsum": round(test["rsum"], 1),
        "bfloat16": trainer.fast_products,
        "seconds": round(seconds, 1),
    }


def table(rows: list[Row]) -> str:
    """Return means over the seeds, a line for each collection, noise and method."""
    lines = []
    groups = dict.fromkeys((row["collection"], row["noise"], row["method"]) for row in rows)
    for collection, noise, method in groups:
        group = [select(rows, {"collection": collection, "noise": noise, "method": method, "plan": p}) for p in PLANS]
        seconds = [sum(row["seconds"] for row in part) for part in group]
        cells = [collection, str(group[0][0]["training_pairs"]), f"{noise:.0%}", method, str(len(group[0]))]
        cells += [mean((row["rsum"] for row in part), ".1f") for part in group]
        cells += [mean((row["epochs"] for row in part), ".0f") for part in group]
        lines.append([*cells, f"{seconds[1] / seconds[0]:.2f}"])
    head = ["collection", "training pairs", "noise", "method", "seeds", "rSum, planned length", "rSum, ends by dev"]
    return markdown([*head, "epochs, planned", "epochs, ends by dev", "share of the seconds"], lines)


if __name__ == "__main__":
    main()
