"""Figures of the page on kinds of noise: which detector finds which kind, and the worst errors on drawn scenes.

- noise-detectors.png: AUROC of the detectors on each collection and kind, from benchmarks/results/detection.json, with
  the mean of the seeds' 90% intervals over images.
- noise-errors.png: for each kind, the mismatched training pairs with the highest match probability, and the matching
  ones with the lowest, on 1,600 drawn scenes with 40% of noise. At most one pair an image.

    python benchmarks/noise_figures.py --out docs
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from PIL import Image

from detection import KINDS, PLANTED, source_of
from pairsift.runs.config import from_tree
from pairsift.runs.judge import Judge
from pairsift.runs.prepare import prepare
from rows import Row, parser, read_rows, select

NOISE, SEED, SHOWN = 0.4, 1, 4
COLOURS = {
    "ours": "#d55e00",
    "ours_near": "#e69f00",
    "cosine": "#0072b2",
    "contrast": "#56b4e9",
    "lemon": "#009e73",
    "cca": "#cc79a7",
    "knn": "#999999",
}
GREEN, RED = "#00795a", "#b03a00"


def main() -> None:
    options = parser(__doc__, "detection.json")
    options.add_argument("--out", type=Path, default=Path("docs"))
    options.add_argument("--cache", default=None, help="folder of the feature cache")
    chosen = options.parse_args()
    rows = read_rows(chosen.json)
    plain = {"Software": None}  # no word of what drew it
    detectors(rows).savefig(chosen.out / "noise-detectors.png", dpi=110, bbox_inches="tight", metadata=plain)
    drawn = chosen.out / "noise-errors.png"
    errors(chosen.cache).savefig(drawn, dpi=90, bbox_inches="tight")
    with Image.open(drawn) as opened:
        small = opened.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    small.save(drawn, optimize=True)


def detectors(rows: list[Row]) -> Figure:
    """Draw the AUROC of each detector, a panel for each collection."""
    measured = select(rows, {"noise": NOISE})
    collections = list(dict.fromkeys(row["collection"] for row in measured))
    figure = Figure(figsize=(4.6 * len(collections), 3.4))
    for panel, collection in enumerate(collections):
        axes = figure.add_subplot(1, len(collections), panel + 1)
        for place, kind in enumerate(PLANTED):
            group = select(measured, {"collection": collection, "kind": kind})
            for k, (name, colour) in enumerate(COLOURS.items()):
                detectors = [row["detectors"][name] for row in group if name in row["detectors"]]
                if not detectors:
                    continue
                auroc = float(np.mean([detector["auroc"] for detector in detectors]))
                x = place + (k - (len(COLOURS) - 1) / 2) * 0.12
                axes.bar(x, auroc - 0.5, 0.11, 0.5, color=colour)
                ends = [float(np.mean([detector[end] for detector in detectors])) for end in ("low", "high")]
                axes.plot([x, x], ends, color="black", linewidth=0.8)
        axes.set_xticks(range(len(PLANTED)), PLANTED)
        axes.set_ylim(0.25, 1.0)
        axes.axhline(0.5, color="black", linewidth=0.5)  # chance
        axes.set_title(collection, fontsize=10)
        axes.set_ylabel("AUROC" if panel == 0 else "")
        axes.spines[["top", "right"]].set_visible(False)
        if panel == len(collections) - 1:
            handles = [Patch(color=colour) for colour in COLOURS.values()]
            names = [name.replace("ours_near", "ours, near expected") for name in COLOURS]
            axes.legend(handles, names, fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def errors(cache: str | None) -> Figure:
    """Draw the worst errors of the match probability for each kind."""
    figure = Figure(figsize=(2 * SHOWN * 1.75, len(KINDS) * 2.55))
    for row, kind in enumerate(KINDS):
        with tempfile.TemporaryDirectory() as name:
            wanted = {"collection": "scenes-1600", "kind": kind, "noise": NOISE, "seed": SEED}
            config = from_tree(
                {
                    "source": str(source_of(wanted, Path(), Path(name))),
                    "out": str(Path(name) / "run"),
                    "cache": cache,
                    "noise": NOISE,
                    "noise_kind": kind,
                    "noise_seed": SEED,
                    "seed": SEED,
                    "method": "plain",
                }
            )
            (config.folder / "model").mkdir(parents=True)
            prepared = prepare(config, config.folder, progress=False)
            judge = Judge(prepared, config.folder, config, False)
            judgement = judge.judge()
            train = judge.judged.in_train
            ids, probability, pairs = judge.ids[train], judgement.probability[train], prepared.pairs
            wrong = pairs.mismatched()[ids]
            for side, order in enumerate((np.argsort(-probability), np.argsort(probability))):
                shown = first_of_images(order[wrong[order] == (side == 0)], pairs.image_of[ids])
                for k, place in enumerate(shown):
                    axes = figure.add_subplot(len(KINDS), 2 * SHOWN, row * 2 * SHOWN + side * SHOWN + k + 1)
                    image, caption = pairs.paths[pairs.image_of[ids[place]]], pairs.captions[ids[place]]
                    draw(axes, image, caption, float(probability[place]), bool(wrong[place]))
                    if k == 0:
                        believed = "mismatched, highest" if side == 0 else "matching, lowest"
                        axes.set_title(f"{kind}: {believed}", fontsize=9, loc="left", fontweight="bold")
    figure.subplots_adjust(wspace=0.25, hspace=0.75)
    return figure


def first_of_images(order: np.ndarray, image: np.ndarray) -> list[int]:
    """Return the first places in this order, at most one of an image."""
    return [int(order[place]) for place in np.sort(np.unique(image[order], return_index=True)[1])[:SHOWN]]


def draw(axes: Axes, image: Path, caption: str, probability: float, wrong: bool) -> None:
    """Draw an image with its given caption and the match probability."""
    with Image.open(image) as opened:
        axes.imshow(np.asarray(opened.convert("RGB")))
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(RED if wrong else GREEN)
        spine.set_linewidth(2)
    axes.set_xlabel(f"{probability:.2f}\n{fill(caption, 24)}", fontsize=7)


if __name__ == "__main__":
    main()
