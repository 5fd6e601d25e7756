"""Verdicts and recall on collections of many sizes and shapes, clean ones among them; noise in all splits or in train.

A collection is read as a user's table without splits, and where train alone gets noise, as one with splits of 80, 10
and 10%; all of Flickr8k with five captions an image (`flickr-five`) keeps its own, and `flickr-N-five` are N of its
training images with all captions. `stamps` and `clipart` come from debian_pictures.py. A share of the captions is
permuted among themselves; with a placeholder, then a tenth of the pairs has one blank image, or one caption that says
nothing, and is mismatched too. `verdicts` rows judge all pairs by held-out evidence and train no networks but the ones
for the folds. Beside the AUROC of the match probability stands the AUROC of two detectors in simple_detectors.py: the
cosine of 5-fold ridge-CCA, and agreement with the captions of the ten nearest images. `flagged` counts pairs with a
match probability below one half, where verdicts are given; the calibration error has 15 bins of equal mass. `recall`
rows are whole fits; rSum is measured on the truly matching test pairs. `networks_rsum` is the rSum that the networks of
`crossfit` reach alone, without the linear model that competes with them below 10,000 training pairs. Rows of `crossfit`
at 0% without the field `evidence` are older: there every pair is believed, as it is now. With `--again` rows of
`crossfit` without `networks_rsum` are measured anew.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from PIL import Image
from sklearn.metrics import roc_auc_score

from pairsift.encode.options import EncodeOptions
from pairsift.methods.crossfit import Crossfit
from pairsift.retrieve.gallery import evaluate
from pairsift.runs.config import Config, configure
from pairsift.runs.fit import fit
from pairsift.runs.job import LINEAR_BELOW
from pairsift.runs.judge import Judge
from pairsift.runs.prepare import prepare
from pairsift.runs.run import Run
from pairsift.scenes import write_scenes
from pairsift.train.options import TrainOptions
from rows import Row, find_row, markdown, mean, page, parser, read_rows, select, versions, write_rows, write_tables
from simple_detectors import cca_score, knn_score

Record = tuple[str, str, str]  # image file, absolute or from the table's folder; caption; split or nothing
LANGUAGES = ("de", "fr", "es", "ru", "ar", "hi", "ja", "zh", "fi", "el")
PLACEHOLDERS = 0.1  # share of the pairs with one
SIZES = (30, 100, 200, 400, 800, 1600, 6000)
FIVE = ("flickr-400-five", "flickr-2000-five", "flickr-five")
OTHERS = ("emoji", "emoji-400", "emoji-languages", "scenes-100", "scenes-1600")
COLLECTIONS = (*(f"flickr-{size}" for size in SIZES), *FIVE, *OTHERS)
DRAWINGS = ("stamps", "clipart-800", "clipart")  # of debian_pictures.py; no constant of verdicts was chosen on them
ORDER = {name: place for place, name in enumerate((*COLLECTIONS, *DRAWINGS))}
EVIDENCE = "training pairs, images joined with their captions"  # what today's weights of training pairs come from
WHERE = ("all", "train", "all, image", "all, caption")  # the last two with a placeholder
PLACES = dict(zip(WHERE, ("", " of train", " and a blank image", " and an empty caption"), strict=True))
KEY = ("kind", "collection", "noise", "where", "seed", "method")
QUALITIES = ("auroc", "auroc_cca", "auroc_knn", "precision", "recall", "calibration", "rsum")
SHOWN = ("wrong", "flagged", "estimate", "low", "high", *QUALITIES, "seconds")


def main() -> None:
    options = parser(__doc__, "verdicts.json")
    options.add_argument("kind", choices=("verdicts", "recall"))
    options.add_argument(
        "--data", type=Path, default=Path("../shared"), help="folder of flickr8k and emoji, or of debian_pictures.py"
    )
    options.add_argument("--collections", nargs="+", default=list(COLLECTIONS))
    options.add_argument("--noise", nargs="+", type=float, default=[0.0, 0.05, 0.1, 0.3, 0.6])
    options.add_argument("--where", choices=WHERE, default="all", help="splits that get noise")
    options.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    options.add_argument("--methods", nargs="+", default=["crossfit", "plain"], help="of recall rows")
    options.add_argument("--again", action="store_true", help="measure older rows of crossfit anew")
    options.add_argument("--cache", default=None, help="folder of the feature cache")
    options.add_argument("--pages", nargs="*", type=Path, default=[], help="pages whose table is written anew")
    chosen = options.parse_args()
    rows = read_rows(chosen.json)
    for wanted in wanted_rows(chosen):
        old = find_row(rows, wanted)
        stale = chosen.again and wanted["method"] == "crossfit" and "networks_rsum" not in (old or {})
        if old is None or stale:
            row = measure(wanted, chosen.data, chosen.cache)
            rows = [*(other for other in rows if other is not old), row]
            print(json.dumps({name: row.get(name) for name in (*KEY, *SHOWN)}), flush=True)
            write_rows(chosen.json, rows)
    chosen.json.with_suffix(".md").write_text(page(__doc__, tables(rows)))
    write_tables(chosen.pages, TABLES, rows)


def wanted_rows(chosen: argparse.Namespace) -> Iterator[Row]:
    """Every row that the options ask for, by its key."""
    methods = chosen.methods if chosen.kind == "recall" else [""]
    kind, where = [chosen.kind], [chosen.where]
    for key in product(kind, chosen.collections, chosen.noise, where, chosen.seeds, methods):
        yield dict(zip(KEY, key, strict=True))


def records(collection: str, data: Path, seed: int, place: Path) -> list[Record]:
    """The collection's true pairs; its sample is drawn by the seed.

    Splits are drawn by the images' paths as the table has them. Those of scenes, which are drawn into the folder of the
    table, start from there, so that rows of one seed have the same splits.
    """
    name, _, size = collection.partition("-")
    rng = np.random.default_rng((seed, 21))
    if name == "scenes":
        write_scenes(place / "scenes", int(size), seed)
        return [(f"scenes/images/{row['image']}", row["caption"], "") for row in table(place / "scenes")]
    if size == "languages":
        rows = [row for row in table(data / name) if row["caption_de"]]
        return [(str(data / name / row["image"]), row[f"caption_{rng.choice(LANGUAGES)}"], "") for row in rows]
    if name == "emoji" or collection in DRAWINGS:
        pairs = [(str(data / name / row["image"]), row["caption"], "") for row in table(data / name)]
        return [pairs[row] for row in rng.permutation(len(pairs))[: int(size)]] if size else pairs
    folder = data / "flickr8k"
    lists = {split: (folder / "splits" / f"{split}.txt").read_text().split() for split in ("train", "dev", "test")}
    split_of = {image: split for split, images in lists.items() for image in images}
    captions: dict[str, list[str]] = {}
    for row in table(folder):
        captions.setdefault(row["image"], []).append(row["caption"])
    if size == "five":
        known = [(image, split) for image, split in split_of.items() if image in captions]
        return [(str(folder / "images" / image), text, split) for image, split in known for text in captions[image]]
    size, _, five = size.partition("-")
    chosen = [lists["train"][row] for row in rng.permutation(len(lists["train"]))[: int(size)]]
    if five:
        return [(str(folder / "images" / image), text, "") for image in chosen for text in captions[image]]
    return [(str(folder / "images" / image), str(rng.choice(captions[image])), "") for image in chosen]


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "captions.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def with_splits(true: list[Record], seed: int) -> list[Record]:
    """Draw splits by image where the collection has none: a tenth of the images each for dev and test."""
    if any(split for _, _, split in true):
        return true
    images = list(dict.fromkeys(image for image, _, _ in true))
    order = np.random.default_rng((seed, 24)).permutation(len(images))
    tenth = len(images) // 10
    part = {images[row]: "dev" if place < tenth else "test" for place, row in enumerate(order[: 2 * tenth])}
    return [(image, caption, part.get(image, "train")) for image, caption, _ in true]


def shuffled(true: list[Record], noise: float, seed: int, where: str) -> tuple[list[Record], np.ndarray]:
    """A share of the captions permuted among themselves, and which then belong to another image."""
    rng = np.random.default_rng((seed, 22))
    pool = [row for row, (_, _, split) in enumerate(true) if where != "train" or split == "train"]
    picked = rng.permutation(pool)[: round(noise * len(pool))]
    taken = rng.permutation(picked)
    given = list(true)
    for row, other in zip(picked, taken, strict=True):
        given[row] = (true[row][0], true[other][1], true[row][2])
    wrong = np.zeros(len(true), np.bool_)
    wrong[picked] = [true[row][0] != true[other][0] for row, other in zip(picked, taken, strict=True)]
    return given, wrong


def with_placeholder(
    given: list[Record], wrong: np.ndarray, seed: int, where: str, place: Path
) -> tuple[list[Record], np.ndarray]:
    """Give a tenth of the pairs one blank image, or one caption that says nothing, where `where` names one."""
    hit = np.random.default_rng((seed, 23)).random(len(given)) < (PLACEHOLDERS if where in WHERE[2:] else 0)
    Image.new("RGB", (64, 64), "lightgrey").save(place / "blank.png")
    new = {WHERE[2]: {0: "blank.png"}, WHERE[3]: {1: "No description available"}}.get(where, {})
    replaced = [
        tuple(new.get(k, old) for k, old in enumerate(record)) if hit[i] else record for i, record in enumerate(given)
    ]
    return replaced, wrong | hit


def measure(wanted: Row, data: Path, cache: str | None) -> Row:
    """One row."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        true = records(wanted["collection"], data.resolve(), wanted["seed"], place)
        if wanted["where"] == "train":
            true = with_splits(true, wanted["seed"])
        given, wrong = shuffled(true, wanted["noise"], wanted["seed"], wanted["where"])
        given, wrong = with_placeholder(given, wrong, wanted["seed"], wanted["where"], place)
        source = write_source(given, place)
        shared: Row = {"out": place / "run", "train": TrainOptions(seed=wanted["seed"])}
        shared["encode"] = EncodeOptions(cache=cache)
        began = time.monotonic()
        if wanted["kind"] == "recall":
            numbers = recall(source, {**shared, "method": wanted["method"]}, wrong)
        else:
            numbers = verdicts(configure(source, **shared), wrong)
        seconds = round(time.monotonic() - began, 1)
    facts = {"seconds": seconds, "pairs": len(given), "wrong": round(float(wrong.mean()), 4)}
    return {**wanted, **facts, **numbers, "versions": versions(), "machine": platform.machine()}


def write_source(given: list[Record], place: Path) -> Path:
    """Write a user's table of the pairs, with splits where there are any."""
    source, splits = place / "pairs.csv", any(split for _, _, split in given)
    with source.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("image", "caption", "split")[: 2 + splits])
        writer.writerows(record[: 2 + splits] for record in given)
    return source


def verdicts(config: Config, wrong: np.ndarray) -> Row:
    """Judge all pairs by held-out evidence."""
    folder = config.folder
    (folder / "model").mkdir(parents=True)
    prepared = prepare(config, folder, progress=False)
    began = time.monotonic()
    judge = Judge(prepared, folder, config, False)
    judgement = judge.judge()
    took = round(time.monotonic() - began, 1)
    ends = {
        "estimate": judgement.rate,
        "low": judgement.low,
        "high": judgement.high,
        "expected_auroc": judgement.auroc,
        "verdicts": judgement.verdicts,
    }
    truth = wrong[judge.ids]
    beside = {"cca": cca_score(prepared, judge), "knn": knn_score(prepared, judge)} if truth.any() else {}
    others = {f"auroc_{name}": round(float(roc_auc_score(truth, -score)), 4) for name, score in beside.items()}
    seen = judge.judged.in_train
    about = truth[seen] if judgement.rate_outside_train is not None else truth
    ends["true_rate"] = round(float(about.mean()), 4)
    if truth[seen].any():
        others["auroc_train"] = round(float(roc_auc_score(truth[seen], -judgement.probability[seen])), 4)
    return {**quality(judgement.probability, truth, judgement.verdicts), **others, **ends, "evidence_seconds": took}


def recall(source: Path, options: Row, wrong: np.ndarray) -> Row:
    """A whole fit, and its rSum on the truly matching pairs of test; of `crossfit` also without the linear model."""
    run = fit(source, **options, progress=False)
    pairs = run.prepared.pairs
    judged = run.pairs().sort_by("pair")
    ids = judged["pair"].to_numpy()
    own = {"rsum": rsum(run, wrong), "train_seconds": run.metrics["seconds"]["train"]}
    if options["method"] == "crossfit":
        own["networks_rsum"] = own["rsum"] if len(pairs.ids("train")) < LINEAR_BELOW else None
        if run.metrics["best"]["model"] == "linear":
            with patch.object(Crossfit, "competes_with_linear", False):
                alone = fit(source, **{**options, "out": options["out"].with_name("networks")}, progress=False)
            own["networks_rsum"] = rsum(alone, wrong)
    own["estimate"] = run.metrics["noise_rate"]["estimated"]
    return {
        **quality(judged["match_probability"].to_numpy(), wrong[ids], run.metrics["verdicts_given"]),
        **own,
        "evidence": EVIDENCE,
        "training_pairs": len(pairs.ids("train")),
        "warnings": [warning["text"] for warning in run.metrics["warnings"]],
    }


def rsum(run: Run, wrong: np.ndarray) -> float:
    """The rSum of a run on the truly matching pairs of test."""
    pairs = run.prepared.pairs
    split = pairs.split.astype("<U7")
    split[wrong & (split == "test")] = "unused"
    test = evaluate(run.matchers, run.prepared.features, replace(pairs, split=split), "test")
    return float(test["ensemble"]["rsum"])


def quality(probability: np.ndarray, wrong: np.ndarray, given: bool) -> Row:
    """How good probabilities of a match are; pairs are flagged where verdicts are given."""
    flagged = (probability < 0.5) & given
    values: Row = {"flagged": float(flagged.mean()), "calibration": calibration(probability, ~wrong)}
    if wrong.any():
        values["auroc"] = float(roc_auc_score(wrong, -probability))
        values["recall"] = float(flagged[wrong].mean())
    if flagged.any():
        values["precision"] = float(wrong[flagged].mean())
    return {name: round(value, 4) for name, value in values.items()}


def calibration(probability: np.ndarray, right: np.ndarray, bins: int = 15) -> float:
    """Mean gap between what is said and what is true, over bins of equal mass."""
    order = np.argsort(probability, kind="stable")
    gaps = [
        abs(probability[part].mean() - right[part].mean()) * len(part)
        for part in np.array_split(order, bins)
        if len(part)
    ]
    return float(sum(gaps) / len(order))


def groups(rows: list[Row]) -> Iterator[tuple[Row, list[Row]]]:
    """Rows that differ in the seed alone; rows of older weights are apart."""
    names = [*(name for name in KEY if name != "seed"), "evidence"]
    grouped: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        grouped.setdefault(tuple(row.get(name, "") for name in names), []).append(row)
    for key in sorted(grouped, key=lambda key: (key[0], ORDER.get(key[1], 99), key)):
        yield dict(zip(names, key, strict=True)), grouped[key]


def tables(rows: list[Row]) -> str:
    """Verdicts and fits: means over the seeds, and of the estimate the largest error."""
    lines, fits = [], []
    for key, group in groups(rows):
        noise = f"{key['noise']:.0%}" + PLACES[key["where"]]
        if key["kind"] == "recall":
            source = "training pairs" if key["evidence"] else "all pairs"
            cells = [key["collection"], noise, key["method"], "" if key["method"] == "plain" else source]
            fits.append([*cells, *means(group, {"rsum": ".1f", "train_seconds": ".0f"}), str(len(group))])
            continue
        error = max(abs(row["estimate"] - true_rate(row)) for row in group)
        cells = [key["collection"], str(group[0]["pairs"]), noise, *means(group, {"flagged": ".1%", "estimate": ".1%"})]
        aurocs = dict.fromkeys(("auroc", "auroc_train", "auroc_cca", "auroc_knn"), ".3f")
        forms = {"precision": ".2f", "recall": ".2f", "calibration": ".3f", "evidence_seconds": ".0f"}
        lines.append([*cells, f"{error:.1%}", *means(group, aurocs | forms), str(len(group))])
    heads = ("collection", "pairs", "noise", "flagged", "estimate", "largest error", "AUROC", "of train", "CCA", "k-NN")
    judged = markdown([*heads, "precision", "recall", "calibration error", "seconds", "seeds"], lines)
    heads = ("collection", "noise", "method", "weights from", "rSum on true test pairs", "training seconds", "seeds")
    return judged + "\n\n" + markdown(heads, fits)


def means(group: list[Row], forms: dict[str, str]) -> list[str]:
    """The means of numbers by their names and formats."""
    return [mean((row.get(name) for row in group), form) for name, form in forms.items()]


def true_rate(row: Row) -> float:
    """The share of mismatched pairs among training pairs or all pairs, whichever the estimate is about."""
    return float(row.get("true_rate", row["noise"] if row["where"] == "train" else row["wrong"]))


def summary(rows: list[Row]) -> str:
    """Collections by noise in all splits: the flags at 0%, elsewhere estimate, largest error and AUROC."""
    cells_of: dict[str, dict[float, list[Row]]] = {}
    for key, group in groups(select(rows, {"kind": "verdicts", "where": "all"})):
        cells_of.setdefault(key["collection"], {})[key["noise"]] = group
    noises = sorted({noise for cells in cells_of.values() for noise in cells})
    lines = []
    for collection, cells in cells_of.items():
        line = [f"`{collection}`", f"{next(iter(cells.values()))[0]['pairs']:,}"]
        for noise in noises:
            group = cells.get(noise, [])
            error = max((abs(row["estimate"] - row["wrong"]) for row in group), default=0)
            if not any(row["verdicts"] for row in group):
                line.append("no verdicts" if group else "")
            elif noise:
                estimate, auroc = means(group, {"estimate": ".0%", "auroc": ".3f"})
                line.append(f"{estimate} ({error:.1%}), {auroc}")
            else:
                line += means(group, {"flagged": ".1%"})
        lines.append(line)
    heads = (f"{noise:.0%}" if noise else "0%: flagged" for noise in noises)
    return markdown(["collection", "pairs", *heads], lines)


def by_noise(values_of: dict[str, dict[str, Any]], cell: Callable[[Any], str]) -> str:
    """Collections by noise, without those that have nothing to show."""
    noises = sorted({noise for cells in values_of.values() for noise in cells}, key=lambda noise: (len(noise), noise))
    lines = []
    for collection in sorted(values_of, key=lambda name: ORDER.get(name, 99)):
        cells = [cell(values_of[collection][noise]) if noise in values_of[collection] else "" for noise in noises]
        if any(cells):
            lines.append([f"`{collection}`", *cells])
    return markdown(["collection", *noises], lines)


def recall_summary(rows: list[Row]) -> str:
    """Collections by noise: recall of `crossfit`, and of `plain` in brackets, over the seeds that both have."""
    both: dict[str, dict[str, dict[int, dict[str, float]]]] = {}
    for row in rows:
        if row["kind"] == "recall" and row["method"] in ("crossfit", "plain"):
            noise = f"{row['noise']:.0%}" + PLACES[row["where"]]
            seeds = both.setdefault(row["collection"], {}).setdefault(noise, {})
            seeds.setdefault(row["seed"], {})[row["method"]] = row["rsum"]

    def cell(seeds: dict[int, dict[str, float]]) -> str:
        runs = [run for run in seeds.values() if len(run) == 2]
        ours, plain = (mean((run[name] for run in runs), ".0f") for name in ("crossfit", "plain"))
        return f"{ours} ({plain})" + (f", {len(runs)} seeds" if len(runs) > 1 else "") if runs else ""

    return by_noise(both, cell)


def taught_summary(rows: list[Row]) -> str:
    """Collections by the number of training pairs: recall of `crossfit` and `sift`, and what the second gains."""
    runs: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in select(rows, {"evidence": EVIDENCE}):
        key = (row["training_pairs"], row["collection"], row["noise"], row["where"], row["seed"])
        runs.setdefault(key, {})[row["method"]] = row
    lines = []
    for (pairs, collection, noise, where, seed), both in sorted(runs.items()):
        if {"crossfit", "sift"} <= both.keys():
            before, after = both["crossfit"]["rsum"], both["sift"]["rsum"]
            cells = [f"`{collection}`", f"{pairs:,}", f"{noise:.0%}" + PLACES[where], str(seed)]
            lines.append([*cells, f"{before:.1f}", f"{after:.1f}", f"{after - before:+.1f}"])
    return markdown(["collection", "training pairs", "noise", "seed", "`crossfit`", "`sift`", "gain"], lines)


def linear_summary(rows: list[Row]) -> str:
    """Collections by noise: what the linear model that competes with the networks adds to the rSum of `crossfit`."""
    gains_of: dict[str, dict[str, list[float]]] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        if row["kind"] == "recall" and row["method"] == "crossfit" and row.get("networks_rsum") is not None:
            noise = f"{row['noise']:.0%}" + PLACES[row["where"]]
            gains_of.setdefault(row["collection"], {}).setdefault(noise, []).append(row["rsum"] - row["networks_rsum"])
    return by_noise(gains_of, lambda gains: ", ".join(f"{gain:+.1f}" for gain in gains))


# The tables of a page, by the mark that each of them begins with.
TABLES = {
    "<!-- verdicts table -->": summary,
    "<!-- recall table -->": recall_summary,
    "<!-- linear table -->": linear_summary,
    "<!-- taught table -->": taught_summary,
}


if __name__ == "__main__":
    main()
