"""Constants of held-out evidence, each chosen on two kinds of collections and reported on the third.

The kinds are photographs with one caption (Flickr8k), small pictures with names and keywords (emoji) and drawn scenes,
at two sizes each, with 0, 10, 30 and 60% of the captions shuffled. One constant is moved at a time. A value costs one
less the AUROC, and the error of the estimated rate; means over the collections and ratios of a kind. Rows of
`rate.STEEPNESS` (now `calibration.steepness_mean`) and `rate.TAIL` (now left out) are of an earlier calibration.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

import verdicts as bench
from pairsift.detect.folds import make_folds
from pairsift.detect.judged_pairs import JudgedPairs
from pairsift.detect.judgement import Folding, judge_foldings
from pairsift.detect.options import DetectOptions
from pairsift.encode.options import EncodeOptions
from pairsift.runs.config import configure
from pairsift.runs.judge import Judge
from pairsift.runs.prepare import prepare
from pairsift.train.options import TrainOptions
from rows import Row, markdown, page, parser, select, versions, write_rows

KINDS = {
    "photographs": ("flickr-200", "flickr-800"),
    "emoji": ("emoji-200", "emoji-800"),
    "scenes": ("scenes-60", "scenes-200"),
}
NOISE = (0.0, 0.1, 0.3, 0.6)
GRID: dict[str, tuple[float, ...]] = {
    "neighbours.count": (10, 30, 60),
    "neighbours.sharpness": (0.0, 5.0, 10.0, 20.0),
    "linear.ridge": (0.03, 0.1, 0.3),
    "linear.directions": (64, 128, 256),
    "contrast.scale": (10.0, 20.0, 40.0),
}


def main() -> None:
    options = parser(__doc__, "constants.json")
    options.add_argument("--data", type=Path, default=Path("../shared"), help="folder of flickr8k and emoji")
    options.add_argument("--seeds", nargs="+", type=int, default=[1])
    options.add_argument("--cache", default=None, help="folder of the feature cache")
    chosen = options.parse_args()
    rows: list[Row] = []
    for kind, collections in KINDS.items():
        for collection in collections:
            for noise in NOISE:
                for seed in chosen.seeds:
                    rows += measure(kind, collection, noise, seed, chosen.data.resolve(), chosen.cache)
                    print(kind, collection, noise, seed, flush=True)
                    write_rows(chosen.json, rows, {"versions": versions()})
    chosen.json.with_suffix(".md").write_text(page(__doc__, table(rows)))


def measure(kind: str, collection: str, noise: float, seed: int, data: Path, cache: str | None) -> list[Row]:
    """Measure a row for every value of every option."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        given, wrong = bench.shuffled(bench.records(collection, data, seed, place), noise, seed, "all")
        source = bench.write_source(given, place)
        config = configure(source, encode=EncodeOptions(cache=cache), train=TrainOptions(seed=seed))
        (place / "run" / "model").mkdir(parents=True)
        prepared = prepare(config, place / "run", progress=False)
        judge = Judge(prepared, place / "run", config, False)
        truth = wrong[judge.ids]
        rows = []
        for constant, values in GRID.items():
            group, _, option = constant.partition(".")
            usual = getattr(getattr(DetectOptions(), group), option)
            for value in values:
                cost = costs(judge.judged, truth, seed, DetectOptions().changed({group: {option: value}}))
                rows.append({"constant": constant, "value": value, "usual": usual, "kind": kind, **cost})
                rows[-1] |= {"collection": collection, "noise": noise, "seed": seed}
        return rows


def costs(judged: JudgedPairs, wrong: np.ndarray, seed: int, options: DetectOptions) -> Row:
    """Return 1 - AUROC and the error of the rate, by one division into five folds."""
    folding = Folding(make_folds(judged.group_of, 5, seed), seed, 0)
    [(judgement, _)] = judge_foldings(judged, [folding], options)
    auroc = float(roc_auc_score(wrong, -judgement.probability)) if wrong.any() else None
    return {"missed": auroc and 1 - auroc, "error": abs(judgement.rate - float(wrong.mean()))}


def table(rows: list[Row]) -> str:
    """Write, for each constant and kind, the value that the other kinds choose and what it costs on this one."""
    heads = ("constant", "kind left out", "the others choose", "1 - AUROC + error with it", "with ours", "at best")
    lines = []
    for constant in dict.fromkeys(row["constant"] for row in rows):
        own = select(rows, {"constant": constant})
        for kind in KINDS:
            there = select(own, {"kind": kind})
            elsewhere = [row for row in own if row["kind"] != kind]
            values = sorted({row["value"] for row in own})
            chosen = min(values, key=lambda value: cost(elsewhere, value))
            cells = [f"`{constant}`", kind, f"{chosen:g}", f"{cost(there, chosen):.3f}"]
            cells += [f"{cost(there, own[0]['usual']):.3f} ({own[0]['usual']:g})"]
            cells += [f"{min(cost(there, value) for value in values):.3f}"]
            lines.append(cells)
    return markdown(heads, lines)


def cost(rows: list[Row], value: float) -> float:
    """Sum the mean miss and the mean error of the rows with a value."""
    own = select(rows, {"value": value})
    missed = [row["missed"] for row in own if row["missed"] is not None]
    return float(np.mean(missed) + np.mean([row["error"] for row in own]))


if __name__ == "__main__":
    main()
