"""Encoders that share a space: what training adds to their cosine; every row is a noise, a method, a start and a seed.

No checkpoint like CLIP's is to be had without a network connection. A stand-in: `two_tower` networks are trained on
half of Flickr8k's training images with their true captions, and then frozen. Their vectors of the other half, of dev
and of test are a source of embeddings. Noise is planted among the training captions. `zero-shot` is the cosine of these
vectors, with no training; `random` starts know of no shared space, `aligned` ones are the identity. All are ensembles
of two networks but `zero-shot` and `osa`, which is one network and five epochs. AUROC is about the match probability
over the training pairs, and beside it about the cosine alone.

Rows without the field `evidence` are older; they are of clean captions, where every pair is believed, as it is now.

    python benchmarks/aligned.py --json benchmarks/results/aligned.json

Rows that the file already holds are not measured again.
"""

from __future__ import annotations

import csv
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from pairsift.bench.measure import Row, measured_on
from pairsift.retrieve.gallery import evaluate
from pairsift.runs.config import from_tree
from pairsift.runs.job import job_of
from pairsift.runs.judge import Judge, of_training
from pairsift.runs.prepare import prepare
from pairsift.train.loop import Trainer
from rows import find_row, markdown, mean, option_tree, page, parser, read_rows, select, write_rows
from verdicts import EVIDENCE

KEY = ("noise", "method", "start", "seed")
PRETRAINED = ("osa",)  # methods that refuse matchers which start untrained
BLOCK = 1024


def main() -> None:
    options = parser(__doc__, "aligned.json")
    options.add_argument("--data", type=Path, default=Path("../shared/flickr8k"))
    options.add_argument("--methods", nargs="+", default=["plain", "crossfit", "sift", "osa"])
    options.add_argument("--noise", nargs="+", type=float, default=[0.0, 0.4, 0.6])
    options.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    options.add_argument("--options", nargs="*", default=[], help="further options of fit: precision=bf16")
    options.add_argument("--cache", default=None, help="folder of the feature cache")
    chosen = options.parse_args()
    rows = read_rows(chosen.json)
    starts = {method: ("aligned",) if method in PRETRAINED else ("random", "aligned") for method in chosen.methods}
    wanted = [("zero-shot", "aligned"), *((method, start) for method in chosen.methods for start in starts[method])]
    for seed in chosen.seeds:
        with tempfile.TemporaryDirectory() as place:
            source = None
            for noise in chosen.noise:
                for method, start in wanted:
                    row = dict(zip(KEY, (noise, method, start, seed), strict=True))
                    if find_row(rows, row):
                        continue
                    source = source or embeddings(chosen.data, Path(place), seed, chosen.cache, chosen.options)
                    rows.append(row | measure(row, source, Path(place), chosen.options))
                    print(
                        json.dumps({name: value for name, value in rows[-1].items() if name != "versions"}), flush=True
                    )
                    write_rows(chosen.json, rows)
    chosen.json.with_suffix(".md").write_text(page(__doc__, table(rows)))


def embeddings(data: Path, place: Path, seed: int, cache: str | None, options: list[str]) -> Path:
    """Train on one half, and write the vectors of the other half, of dev and of test as a source."""
    splits = {name: (data / "splits" / f"{name}.txt").read_text().split() for name in ("train", "dev", "test")}
    order = np.random.default_rng(seed).permutation(len(splits["train"]))
    first = {splits["train"][row] for row in order[: len(order) // 2]}
    split_of = {image: split for split, images in splits.items() for image in images}
    with (data / "captions.csv").open(encoding="utf-8", newline="") as stream:
        records = [(row["image"], row["caption"], split_of.get(row["image"], "")) for row in csv.DictReader(stream)]
    halves = {
        "first": lambda image, split: image in first or split == "dev",
        "rest": lambda image, _: image not in first,
    }
    prepared = {}
    for name, wants in halves.items():
        table = place / f"{name}.csv"
        with table.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(("image", "caption", "split"))
            kept = [record for record in records if record[2] and wants(record[0], record[2])]
            writer.writerows(((data / "images" / image).resolve(), text, split) for image, text, split in kept)
        folder = place / f"run-{name}"
        (folder / "model").mkdir(parents=True)
        given = {"source": str(table), "out": str(folder), "cache": cache, "seed": seed, "method": "plain"}
        config = from_tree(given | option_tree(["plain.networks=1", *options]))
        prepared[name] = prepare(config, folder, progress=False)
        if name == "first":
            trainer = Trainer(job_of(config, prepared[name], folder))
            trainer.run()
    pairs, features = prepared["rest"].pairs, prepared["rest"].features
    ids, matcher = pairs.ids(), trainer.networks[0].matcher.eval()
    sides = (features.images, pairs.image_of[ids], matcher.encode_images), (features.texts, ids, matcher.encode_texts)
    source = place / "source"
    source.mkdir()
    with torch.no_grad():
        for name, (values, rows, encode) in zip(("image", "text"), sides, strict=True):
            parts = [encode(values.batch(rows[start : start + BLOCK])).vectors for start in range(0, len(rows), BLOCK)]
            np.save(source / f"{name}.npy", torch.cat(parts).float().numpy())
    with (source / "captions.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("image", "caption", "split"))
        writer.writerows((pairs.names[pairs.image_of[pair]], pairs.captions[pair], pairs.split[pair]) for pair in ids)
    return source


def measure(wanted: Row, source: Path, place: Path, options: list[str]) -> Row:
    """Train one row and test it."""
    folder = place / "-".join(str(value) for value in wanted.values())
    (folder / "model").mkdir(parents=True)
    aligned = wanted["start"] == "aligned"
    given = {
        "source": str(source),
        "out": str(folder),
        "method": "plain" if wanted["method"] == "zero-shot" else wanted["method"],
        "noise": wanted["noise"],
        "noise_seed": wanted["seed"],
        "seed": wanted["seed"],
        "aligned": aligned,
    }
    none = ["plain.epochs.warmup=0", "plain.epochs.train=0"] if wanted["method"] == "zero-shot" else []
    config = from_tree(given | option_tree([*none, *options]))
    prepared = prepare(config, folder, progress=False)
    judge = Judge(of_training(prepared), folder, config, False)
    judgement = judge.judge()
    began = time.monotonic()
    trainer = Trainer(job_of(config, prepared, folder, judge.prior(judgement), judge.likeness()))
    trainer.run()
    test = evaluate([network.matcher for network in trainer.networks], prepared.features, prepared.pairs, "test")
    values = {
        "evidence": EVIDENCE,
        "rsum": test["ensemble"]["rsum"] if "ensemble" in test else next(iter(test.values()))["rsum"],
        "best_epoch": trainer.position.best_epoch,
        "estimate": round(judgement.rate, 4),
        "seconds": round(time.monotonic() - began, 1),
    }
    if wanted["noise"]:
        train = judge.judged.in_train
        right = ~prepared.pairs.mismatched()[judge.ids][train]
        values["auroc"] = round(float(roc_auc_score(right, judgement.probability[train])), 4)
        if "cosine" in judgement.detectors:
            values["auroc_cosine"] = round(float(roc_auc_score(right, judgement.detectors["cosine"][train])), 4)
    facts = measured_on(config, prepared)
    return {
        **values,
        "options": options,
        **{name: facts[name] for name in ("data_hash", "index_hash", "versions", "machine")},
    }


def table(rows: list[Row]) -> str:
    """Means over the seeds."""
    lines = []
    for key in sorted({tuple(row[name] for name in KEY[:-1]) for row in rows}, key=str):
        group = select(rows, dict(zip(KEY, key, strict=False)))
        forms = {"rsum": ".1f", "auroc": ".4f", "auroc_cosine": ".4f"}
        numbers = [mean((row.get(name) for row in group), form) for name, form in forms.items()]
        best = mean((None if row.get("best_epoch") is None else row["best_epoch"] + 1 for row in group), ".1f")
        lines.append([f"{key[0]:.0%}", *key[1:], *numbers, best, str(len(group))])
    head = ["noise", "method", "start", "rSum", "AUROC", "AUROC of the cosine", "best epoch", "seeds"]
    return markdown(head, lines)


if __name__ == "__main__":
    main()
