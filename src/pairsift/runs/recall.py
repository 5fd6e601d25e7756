"""The recall of a run: which of its images are copies of each other, and what `metrics.json` keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from pairsift.arrays import Ints
from pairsift.encode.features import Table
from pairsift.match.base import Matcher
from pairsift.pairs.pairs import SKIPPED, Pairs
from pairsift.retrieve.equal import Recall
from pairsift.retrieve.gallery import evaluate_equal
from pairsift.runs.prepare import Prepared
from pairsift.runs.thumbnails import find_copies

SAME = 0.999  # smallest correlation of the thumbnails of one picture; frames of a film were seen with up to 0.998
ROWS = 1024  # features read at once


def pictures(prepared: Prepared, cache: Path | None, *splits: str) -> Ints:
    """Return the number of the picture of each image, the same for copies in these splits, (n_images,).

    Images are one picture if their thumbnails are the same or nearly so: the file was copied, resized or compressed.
    Where the source has features in the place of images, equal features are one picture, unless they are constant.

    Args:
        prepared: The run's pairs and features.
        cache: Folder of the feature cache, where the thumbnails are kept.
        splits: Splits whose images are compared.
    """
    pairs = prepared.pairs
    rows, number = pairs.images(*splits), np.arange(pairs.n_images)
    if not len(rows):
        return number
    if pairs.features is not None:
        place = _equal_features(prepared.features.images, rows)
    else:
        split = np.where(np.isin(pairs.source_image_of, rows), pairs.split, SKIPPED)
        place = find_copies(replace(pairs, split=split), rows, np.arange(len(rows)), cache, SAME)
    number[rows] = pairs.n_images + place
    return number


def _equal_features(table: Table, rows: Ints) -> Ints:
    """Return the number of the features of each of these images, the same for equal ones, (n,)."""
    known: dict[bytes, int] = {}
    numbers: list[int] = []
    for start in range(0, len(rows), ROWS):
        for values in table.batch(rows[start : start + ROWS]).values.numpy():
            key = blake2b(values.tobytes()).digest()
            constant = values.min() == values.max()  # such as zeros in the place of an image that could not be read
            numbers.append(len(numbers) if constant else known.setdefault(key, len(numbers)))
    return np.array(numbers, np.int64)


def recall_metrics(matchers: Sequence[Matcher], prepared: Prepared, picture: Ints) -> dict[str, Any]:
    """Return the recall on test and dev, and on the truly matching test pairs where noise was planted there.

    `strict` has the same by the papers' protocol, and `recall_notes` what the difference comes from.

    Args:
        matchers: The trained matchers.
        prepared: The run's pairs and features.
        picture: Number of the picture of each image, see `pictures`.
    """
    pairs = prepared.pairs
    found = {name: evaluate_equal(matchers, prepared.features, pairs, name, picture) for name in ("test", "dev")}
    if (matching := _matching_test(pairs)) is not None:
        found["test_matching"] = evaluate_equal(matchers, prepared.features, matching, "test", picture)
    return {
        **{name: recall.views for name, recall in found.items()},
        "strict": {name: recall.strict for name, recall in found.items()},
        "recall_notes": {name: recall.notes for name, recall in found.items()},
    }


def _matching_test(pairs: Pairs) -> Pairs | None:
    """Return the pairs with only the truly matching ones in test. None if there are none, or no noise in test."""
    if pairs.noise is None or pairs.noise.splits == "train":
        return None
    split = pairs.split.astype("<U7")
    split[pairs.mismatched() & (split == "test")] = "unused"
    return replace(pairs, split=split) if "test" in split else None


def recall_of(
    matchers: Sequence[Matcher], prepared: Prepared, cache: Path | None, split: str, folds: int = 1
) -> Recall:
    """Return the recall of matchers on a split of a run, by both protocols."""
    picture = pictures(prepared, cache, split)
    return evaluate_equal(matchers, prepared.features, prepared.pairs, split, picture, folds)
