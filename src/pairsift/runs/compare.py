"""Finished runs side by side, on the pairs of a split that all of them have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from pairsift.arrays import Bools, Ints, text_numbers
from pairsift.errors import InputError
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.same_pairs import images_elsewhere, shared_pairs
from pairsift.retrieve.bootstrap import LEVEL, SEED, Estimate, draw_images, resampled_recall
from pairsift.retrieve.equal import EqualItems, EqualRanks, recall_notes
from pairsift.runs.config import flattened
from pairsift.runs.recall import pictures
from pairsift.runs.run import Run, open_run
from pairsift.source_path import require_source
from pairsift.table import detection

SAMPLES = 1000
CLEANED = 10  # suspects of the first run that another lacks, from which it is said to be cleaned
FEW_IMAGES = 30  # in simulations, 95% intervals held the truth in 91% of the cases with 12 images, in 80% with 5
MEASURES = ("auroc", "precision", "recall")  # of the detection of mismatched pairs
OF_THE_MACHINE = ("out", "device", "threads", "checkpoint_minutes", "cache", "tensorboard")


@dataclass(frozen=True)
class ComparedRun:
    """A run beside others.

    Attributes:
        run: The run's folder.
        images: Number of images in the run's own split.
        captions: Number of captions in it.
        recall: `i2t_r1` to `rsum` of the ensemble on the shared pairs, in percent.
        difference: The recall minus the first run's, on the same resamples; empty for the first run.
        noise_rate: Share of mismatched training pairs: `estimated`, the ends `low` and `high` of its 90% interval,
            and `true` where noise was planted; empty where the run has none.
        suspects: Number of flagged pairs in all splits; None where the run gives no verdicts.
        judged: Number of judged pairs; None for an imported run without an audit.
        detection: `auroc`, `precision` and `recall` over the training pairs, as far as the truth is known.
    """

    run: str
    images: int
    captions: int
    recall: dict[str, Estimate]
    difference: dict[str, Estimate]
    noise_rate: dict[str, float | None]
    suspects: int | None
    judged: int | None
    detection: dict[str, Estimate]


@dataclass(frozen=True)
class Comparison:
    """Runs side by side.

    Attributes:
        split: The split.
        images: Number of images that all runs have in it.
        captions: Number of captions that all runs have in it.
        samples: Number of resamples.
        seed: Seed of the resamples.
        level: Share of the resamples between the ends of an interval.
        notes: What to know before reading the numbers, in sentences.
        runs: The runs, in the order given.
        options: The options that differ, with their value in each run.
    """

    split: str
    images: int
    captions: int
    samples: int
    seed: int
    level: float
    notes: list[str]
    runs: list[ComparedRun]
    options: dict[str, list[Any]]

    def tree(self) -> dict[str, Any]:
        """Return the comparison as plain values, as JSON has them."""
        return asdict(self)


def compare(runs: Sequence[Run | str | Path], split: str = "test", samples: int = SAMPLES) -> Comparison:
    """Compare finished runs on the pairs of a split that all of them have.

    A pair is the same in two runs if an image of the same name has the same caption. All runs rank the shared images
    and captions alone, by their ensembles; copies of an image are one item, and so are equal captions. Intervals are
    quantiles over resamples of the pictures, each drawn with all its captions; differences to the first run are taken
    within each resample. The seed is fixed. The intervals hold the chance in the choice of images, not the chance of
    another training seed.

    Args:
        runs: At least two runs, or their folders.
        split: `train`, `dev` or `test`.
        samples: Number of resamples, at least 1.

    Raises:
        InputError: There are fewer than two runs, one of them is not finished or has lost its source, there is no such
            split, or the runs share no pair in it.
    """
    if len(runs) < 2:
        raise InputError(f"{len(runs)} run{'s' * (len(runs) != 1)} to compare: give at least two")
    if samples < 1:
        raise InputError(f"samples is {samples}: ask for at least 1")
    opened = [run if isinstance(run, Run) else open_run(run, progress=False) for run in runs]
    for run in opened:
        advice = f"put it back, or in Python compare open_run({str(run.folder)!r}, source=...) with its new place"
        require_source(run.config.source, advice, run.folder)
    collections = [run.pairs_of(split) for run in opened]
    ids = _shared(collections, split)
    images, place = np.unique(collections[0].image_of[ids[0]], return_inverse=True)
    owner = place.astype(np.int64)
    texts = text_numbers([collections[0].captions[pair] for pair in ids[0]])
    items = EqualItems.make(pictures(opened[0].prepared, opened[0].config.cache, split)[images], texts)
    ranks = [run.ranks(own, owner, items) for run, own in zip(opened, ids, strict=True)]
    recalls = [one.measures() for one in ranks]
    resampled = resampled_recall(ranks, owner, samples, picture=items.picture)
    compared = []
    for k, (run, pairs) in enumerate(zip(opened, collections, strict=True)):
        measured = {key: Estimate.make(recalls[k][key], values[k]) for key, values in resampled.items()}
        difference = {
            key: Estimate.make(recalls[k][key] - recalls[0][key], values[k] - values[0])
            for key, values in resampled.items()
            if k
        }
        rate, suspects, judged, detected = _audit(run, samples)
        sizes = len(pairs.images(split)), len(pairs.ids(split))
        compared.append(ComparedRun(str(run.folder), *sizes, measured, difference, rate, suspects, judged, detected))
    whole = [run.prepared.pairs for run in opened]  # also the other splits, where an image may have gone
    notes = _notes(compared, whole, split, len(images), len(ids[0]))
    notes += _equal_items(opened, split, ranks)
    notes += [note for run in opened[1:] if (note := _cleaning(opened[0], run)) is not None]
    notes += [note for run in opened if (note := _spot_checked(run)) is not None]
    differing = _differing([flattened(run.config.tree()) for run in opened])
    return Comparison(split, len(images), len(ids[0]), samples, SEED, LEVEL, notes, compared, differing)


def _shared(collections: Sequence[Pairs], split: str) -> list[Ints]:
    """Return the ids in each collection of the pairs of a split that all of them have.

    Raises:
        InputError: There are none.
    """
    ids = shared_pairs(collections, split)
    if not len(ids[0]):
        names = ", ".join(repr(pairs.names[pairs.images(split)[0]]) for pairs in collections)
        raise InputError(
            f"no {split} pair is in all runs: no image of the same name has the same caption there (the first images "
            f"are {names}); compare runs whose {split} splits overlap"
        )
    return ids


def _audit(run: Run, samples: int) -> tuple[dict[str, float | None], int | None, int | None, dict[str, Estimate]]:
    """Return a run's noise rate, its numbers of flagged and of judged pairs, and its detection."""
    rate = dict(run.metrics.get("noise_rate", {}))
    if "verdicts_given" not in run.metrics:
        return rate, None, None, {}
    table = run.pairs()
    flagged = int(np.count_nonzero(table["is_mismatch"].to_numpy()))
    suspects = flagged if run.metrics["verdicts_given"] else None
    return rate, suspects, len(table), detection_intervals(table, samples)


def _notes(
    runs: Sequence[ComparedRun], collections: Sequence[Pairs], split: str, n_images: int, n_captions: int
) -> list[str]:
    """Return notes on the splits of the compared runs."""
    notes = []
    if any((run.images, run.captions) != (n_images, n_captions) for run in runs):
        sizes = "; ".join(f"{run.run}: {run.images:,} images, {run.captions:,} captions" for run in runs)
        notes.append(
            f"The {split} splits differ ({sizes}): recall is that on the {n_images:,} images and {n_captions:,} "
            "captions that all runs have."
        )
    for run, pairs in zip(runs[1:], collections[1:], strict=True):
        if n_elsewhere := images_elsewhere(collections[0], pairs, split):
            notes.append(
                f"{n_elsewhere:,} {split} images of {runs[0].run} are in another split of {run.run}: `pairsift export "
                "--splits` keeps the splits of a run."
            )
    if n_images < FEW_IMAGES:
        notes.append(f"With only {n_images} images the intervals are rough, and rather too narrow.")
    return notes


def _equal_items(runs: Sequence[Run], split: str, ranks: Sequence[EqualRanks]) -> list[str]:
    """Return notes on what copies of images, equal captions and ties change in the recall of each run."""
    notes = []
    for run, one in zip(runs, ranks, strict=True):
        said = recall_notes(split, one.items, one.measures(), one.strict(), one.ties())
        notes += [f"{run.folder}: {note}" for note in said]
    return notes


def _cleaning(first: Run, other: Run) -> str | None:
    """Return a note if a run lacks mainly suspects of the first run, so that its own evidence cannot find the rest."""
    if not all(run.metrics.get("verdicts_given") for run in (first, other)):
        return None
    table, names = first.pairs(), ("image", "given_caption")
    left = set(zip(*(other.pairs()[name].to_pylist() for name in names), strict=True))
    has = np.array([pair in left for pair in zip(*(table[name].to_pylist() for name in names), strict=True)], np.bool_)
    flagged = table["is_mismatch"].to_numpy()
    lacking = int((flagged & ~has).sum())
    if not has.any() or lacking < CLEANED or lacking / (~has).sum() < 2 * flagged[has].mean():
        return None
    decided = first.decisions().table()
    kept = np.isin(table["pair"].to_numpy(), decided["pair"].to_numpy()[decided["decision"].to_numpy() == "keep"])
    doubt = np.where(kept, 0.0, 1 - table["match_probability"].to_numpy())
    return (
        f"{other.folder} lacks {lacking:,} suspects of {first.folder}: it cannot find the mismatches that are left, "
        f"and its noise rate is too low. By {first.folder} {doubt[has].mean():.1%} of the {int(has.sum()):,} pairs "
        f"that both have are mismatched. The verdicts of {first.folder} come from evidence on dev and test pairs too: "
        f"the recall of {other.folder} can be somewhat too high."
    )


def _spot_checked(run: Run) -> str | None:
    """Return a note if a spot check has changed a run's probabilities, but not its noise rate."""
    result = run.metrics.get("spot_check")
    if result is None:
        return None
    return (
        f"{run.folder} is recalibrated by a spot check of {result['answered']} pairs: by it {result['rate']:.1%} of "
        f"all judged pairs are mismatched (90% interval {result['low']:.1%} to {result['high']:.1%}). Its noise rate, "
        "of the training pairs, is from before."
    )


def _differing(options: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the options of all runs that differ between them, with the value in each run."""
    return {
        name: [values[name] for values in options]
        for name, first in options[0].items()
        if name not in OF_THE_MACHINE
        and all(name in values for values in options)
        and any(values[name] != first for values in options)
    }


def detection_intervals(table: pa.Table, samples: int) -> dict[str, Estimate]:
    """Return the detection of mismatched training pairs with intervals, where the truth is known.

    The images of the training pairs are drawn with replacement, each with all its pairs.

    Args:
        table: The judged pairs.
        samples: Number of resamples.

    Returns:
        Of `auroc`, `precision` and `recall`, as `detection` measures them, those that are defined.
    """
    values = detection(table)
    defined = {name: float(value) for name in MEASURES if (value := values[name]) is not None}
    if not defined:
        return {}
    train = table.filter(pa.compute.equal(table["split"], "train"))
    truth, flag = (train[name].to_numpy() for name in ("truly_mismatched", "is_mismatch"))
    image = np.unique(train["image"].to_pylist(), return_inverse=True)[1]
    level = np.unique(train["match_probability"].to_numpy(), return_inverse=True)[1]
    draws = draw_images(int(image.max()) + 1, samples, SEED)
    scores = np.array([_scores(level, truth, flag, drawn[image]) for drawn in draws])
    resampled = dict(zip(MEASURES, (column[np.isfinite(column)] for column in scores.T), strict=True))
    return {
        name: Estimate.make(value, resampled[name] if len(resampled[name]) else np.array([value]))
        for name, value in defined.items()
    }


def _scores(level: Ints, truth: Bools, flag: Bools, weight: Ints) -> tuple[float, float, float]:
    """Return AUROC, precision and recall of weighted pairs; NaN where a resample lacks such pairs.

    Args:
        level: Rank of the match probability of each pair; ties have one rank, (n,).
        truth: Whether each pair is mismatched, (n,).
        flag: Whether each is flagged, (n,).
        weight: How often each is drawn, (n,).
    """
    good, bad = (np.bincount(level, weight * mask) for mask in (~truth, truth))
    hits = weight[truth & flag].sum()
    with np.errstate(invalid="ignore"):
        auroc = np.divide(good @ (bad.cumsum() - bad / 2), good.sum() * bad.sum())
        return float(auroc), float(np.divide(hits, weight[flag].sum())), float(np.divide(hits, bad.sum()))
