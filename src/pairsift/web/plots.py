"""Points of the overview's plots, which its template draws."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pairsift.run_folder import LOG

AGREEMENT_BINS = 10


def agreement(histogram: Mapping[str, Sequence[int]]) -> list[dict[str, float]]:
    """Return how many of the decided pairs were kept, by match probability.

    Args:
        histogram: Number of pairs with each decision, `undecided` among them, in bins of equal width from 0 to 1; the
            number of bins is a multiple of 10.

    Returns:
        For each tenth with decided pairs its `middle`, the number of `decided` pairs, and the `share` that was kept.
    """
    width = len(histogram["undecided"]) // AGREEMENT_BINS
    found = []
    for place in range(AGREEMENT_BINS):
        counts = {name: sum(bins[place * width : (place + 1) * width]) for name, bins in histogram.items()}
        decided = sum(counts.values()) - counts["undecided"]
        if decided:
            middle = (place + 0.5) / AGREEMENT_BINS
            found.append({"middle": middle, "decided": decided, "share": counts.get("keep", 0) / decided})
    return found


def dev_recall(folder: Path) -> list[float]:
    """Return the rSum on dev after each epoch, [0, 600]; an empty list where the run has no log of it."""
    path = folder / LOG
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    epochs = {line["epoch"]: line for line in map(json.loads, lines) if "epoch" in line and "dev" in line}
    return [float(epochs[epoch]["dev"]["rsum"]) for epoch in sorted(epochs)]
