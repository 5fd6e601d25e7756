"""Intervals of the detection of mismatched pairs, by the bootstrap over images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pairsift.arrays import Bools, Ints, Reals
from pairsift.retrieve.bootstrap import SEED, Estimate, draw_images
from pairsift.table import detection

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
    image = np.unique(train["image"].to_pylist(), return_inverse=True)[1].astype(np.int64)
    auroc = _Auroc.make(train["match_probability"].to_numpy(), truth, image)
    counts = np.stack([np.bincount(image, mask) for mask in (truth & flag, flag, truth)], 1)
    resampled: dict[str, list[float]] = {name: [] for name in defined}
    for drawn in draw_images(len(counts), samples, seed):
        found, flagged, mismatched = (drawn @ counts).tolist()
        shares = {"precision": (found, flagged), "recall": (found, mismatched), "auroc": auroc.of(drawn)}
        for name, kept in resampled.items():
            part, whole = shares[name]
            kept += [part / whole] if whole else []  # a resample without such pairs does not count
    return {name: Estimate.make(value, np.array(resampled[name] or [value])) for name, value in defined.items()}


@dataclass(frozen=True)
class _Auroc:
    """The AUROC of resamples, from one sorting of the pairs.

    Attributes:
        image_of_good: Image of each matching pair, ascending by match probability, (n_good,).
        image_of_bad: Image of each mismatched pair, (n_bad,).
        below: Number of matching pairs with a smaller probability than each mismatched pair, (n_bad,).
        up_to: Number of matching pairs with at most its probability, (n_bad,).
    """

    image_of_good: Ints
    image_of_bad: Ints
    below: Ints
    up_to: Ints

    @staticmethod
    def make(probability: Reals, truth: Bools, image: Ints) -> _Auroc:
        order = np.argsort(probability[~truth])
        good, bad = probability[~truth][order], probability[truth]
        below, up_to = (np.searchsorted(good, bad, side).astype(np.int64) for side in ("left", "right"))
        return _Auroc(image[~truth][order], image[truth], below, up_to)

    def of(self, drawn: Ints) -> tuple[float, float]:
        """Return the number of matching pairs above mismatched ones, ties as one half, and the number of all such twos.

        `drawn` is the number of times that each image is drawn, (n_images,).
        """
        good, bad = np.concatenate([[0], np.cumsum(drawn[self.image_of_good])]), drawn[self.image_of_bad]
        n_good = int(good[-1])
        twice_not_above = good[self.below] + good[self.up_to]
        return n_good * int(bad.sum()) - float(bad @ twice_not_above) / 2, n_good * int(bad.sum())
