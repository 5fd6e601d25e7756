"""Intervals of the detection of mismatched pairs, by the bootstrap over images."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pairsift.arrays import Bools, Ints, Reals
from pairsift.audit.table import detection
from pairsift.retrieve.bootstrap import SEED, Estimate, draw_images

MEASURES = ("auroc", "precision", "recall")


def detection_intervals(table: pa.Table, samples: int, seed: int = SEED) -> dict[str, Estimate]:
    """Return the detection of mismatched training pairs with intervals, where the truth is known.

    The images of the training pairs are drawn with replacement, each with all its pairs.

    Args:
        table: The judged pairs.
        samples: Number of resamples.
        seed: Seed of the resamples.

    Returns:
        Of `auroc`, `precision` and `recall`, as `detection` measures them, those that are defined.
    """
    values = detection(table)
    defined = {name: float(value) for name in MEASURES if (value := values[name]) is not None}
    if not defined:
        return {}
    train = table.filter(pa.compute.equal(table["split"], "train"))
    truth, flag = (train[name].to_numpy().astype(np.bool_) for name in ("truly_mismatched", "is_mismatch"))
    _, image = np.unique(train["image"].to_pylist(), return_inverse=True)
    level = np.unique(train["match_probability"].to_numpy(), return_inverse=True)[1].astype(np.int64)
    resampled: dict[str, list[float]] = {name: [] for name in defined}
    for drawn in draw_images(int(image.max()) + 1, samples, seed):
        scores = _weighted(drawn[image].astype(np.float64), truth, flag, level)
        for name, kept in resampled.items():
            kept += [scores[name]] if np.isfinite(scores[name]) else []
    return {name: Estimate.make(value, np.array(resampled[name] or [value])) for name, value in defined.items()}


def _weighted(weight: Reals, truth: Bools, flag: Bools, level: Ints) -> dict[str, float]:
    """Return the measures for weighted pairs; NaN where a measure is not defined.

    Args:
        weight: Weight of each pair, (n,).
        truth: Whether each pair is mismatched, (n,).
        flag: Whether each pair is flagged, (n,).
        level: Rank of the match probability of each pair among the different ones, (n,).
    """
    size = int(level.max()) + 1
    bad, good = np.bincount(level[truth], weight[truth], size), np.bincount(level[~truth], weight[~truth], size)
    above = good.sum() - np.cumsum(good) + good / 2  # matching pairs with a higher probability; half of the equal ones
    found = float(weight[truth & flag].sum())
    with np.errstate(invalid="ignore"):
        return {
            "auroc": float(bad @ above / np.float64(bad.sum() * good.sum())),
            "precision": float(found / np.float64(weight[flag].sum())),
            "recall": float(found / np.float64(bad.sum())),
        }
