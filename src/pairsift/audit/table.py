"""The table of judged pairs: one row per pair with a score in [0, 1], where low is bad, a flag and a verdict."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from pairsift.audit.spreadsheet import harmless_table
from pairsift.errors import writing
from pairsift.pairs.pairs import Ints, Pairs
from pairsift.retrieve.ranks import FloatArray

PAIRS_FILE = "pairs.parquet"
ISSUES_FILE = "issues.csv"
DIVISION_FILE = "division.parquet"
UNKNOWN = "unknown"  # the verdict on each pair where there are too few for verdicts


def issue_table(
    pairs: Pairs,
    ids: Ints,
    score: FloatArray,
    is_mismatch: NDArray[np.bool_],
    verdict: list[str] | NDArray[np.str_],
    suggested_from: Ints,
    extra: dict[str, list[Any]] | None = None,
) -> pa.Table:
    """Return a table with one row per pair of `ids`, worst first (score ascending, then id).

    The columns are, in this order: `pair` (int64 id), `image` (its name), `given_caption`, `split`, `mismatch_score`,
    `is_mismatch`, `verdict`, `suggested_caption` and `suggested_from_pair` (null where there is none). Where the truth
    is known, `true_image` (name) and `truly_mismatched` follow. Then come the columns of `extra` and the columns of the
    source. `_given` is appended to the name of a source column if the name is taken.

    Args:
        pairs: All pairs.
        ids: Ids of the judged pairs, (n,), each once.
        score: Fit of the caption to its image, in [0, 1], low is bad, (n,).
        is_mismatch: Whether the pair is flagged, (n,).
        verdict: Verdict on each pair, such as `clean` or `mismatched`, (n,).
        suggested_from: Id of the pair whose caption is suggested for the image, -1 for none, (n,).
        extra: Additional columns, each (n,), in the order of `ids`.

    Raises:
        ValueError: Lengths differ, an id is unknown or occurs twice, a suggestion comes from an unknown pair, a score
            is outside [0, 1], or a name in `extra` is taken.
    """
    ids, suggested_from = np.asarray(ids, dtype=np.int64), np.asarray(suggested_from, dtype=np.int64)
    score, extra = np.asarray(score, dtype=np.float64), extra or {}
    given: dict[str, Any] = {
        "score": score,
        "is_mismatch": is_mismatch,
        "verdict": verdict,
        "suggested_from": suggested_from,
    }
    _check(pairs, ids, {**given, **extra})
    columns = _columns(pairs, ids, given)
    if taken := sorted(columns.keys() & extra.keys()):
        raise ValueError(f"extra column {taken[0]} has the name of a column of the table")
    columns.update({name: pa.array(values) for name, values in extra.items()})
    for name, values in pairs.columns.items():
        columns[_free(name, columns, pairs.columns)] = _texts(values[one] for one in ids)
    return pa.table(columns).take(np.lexsort((ids, score)))


def drop_same_text(pairs: Pairs, ids: Ints, suggested_from: Ints) -> Ints:
    """Remove suggestions whose text is the same as the given caption.

    Captions count as the same if they differ only in upper and lower case or in white space.

    Args:
        pairs: All pairs.
        ids: Ids of the judged pairs, (n,).
        suggested_from: Id of the pair whose caption is suggested, -1 for none, (n,).

    Returns:
        `suggested_from` with -1 in place of the removed suggestions, (n,).
    """

    def said(pair: int) -> str:
        return " ".join(pairs.captions[pair].split()).casefold()

    rows = zip(ids.tolist(), suggested_from.tolist(), strict=True)
    return np.array([-1 if other < 0 or said(other) == said(pair) else other for pair, other in rows], np.int64)


def write_issues(table: pa.Table, folder: Path) -> None:
    """Write `pairs.parquet` (all rows) and `issues.csv` (flagged rows, worst first) into a folder.

    Each file is written either completely or not at all. In the CSV, an apostrophe is put before text that a
    spreadsheet would run as a formula.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    issues = harmless_table(table.filter(table["is_mismatch"]))
    _atomically(folder / PAIRS_FILE, lambda path: pyarrow.parquet.write_table(table, path))
    _atomically(folder / ISSUES_FILE, lambda path: pyarrow.csv.write_csv(issues, path))


def write_division(ids: Ints, verdicts: list[str], folder: Path) -> None:
    """Write `division.parquet`: the columns `pair` and `verdict`, the class that a method gave each training pair."""
    table = pa.table({"pair": np.asarray(ids, np.int64), "verdict": verdicts})
    _atomically(folder / DIVISION_FILE, lambda path: pyarrow.parquet.write_table(table, path))


def worded(ids: Ints, is_mismatch: NDArray[np.bool_], folder: Path, given: bool = True) -> list[str]:
    """Return the verdict on each pair: `clean`, `mismatched`, or a kind of mismatch.

    The flag alone decides whether a pair is `clean`. If the folder contains the division of the training pairs by a
    method, a flagged pair that this division does not call `clean` gets the class of the division, such as `refinable`
    or `ambiguous`. The other flagged pairs are `mismatched`.

    Args:
        ids: Ids of the judged pairs, (n,).
        is_mismatch: Whether each pair is flagged, (n,).
        folder: Folder of the run.
        given: Whether there are verdicts; if False, each verdict is `unknown`.
    """
    if not given:
        return [UNKNOWN] * len(ids)
    own: dict[int, str] = {}
    if (folder / DIVISION_FILE).exists():
        division = pyarrow.parquet.read_table(folder / DIVISION_FILE).to_pydict()
        own = dict(zip(division["pair"], division["verdict"], strict=True))
    kinds = (own.get(int(one), "clean") for one in ids)
    named = ("mismatched" if kind == "clean" else kind for kind in kinds)
    return [word if flag else "clean" for word, flag in zip(named, is_mismatch, strict=True)]


def kinds(table: pa.Table) -> dict[str, int]:
    """Count the flagged pairs of each verdict, the most frequent first; empty if all are `mismatched`."""
    counts = Counter(table.filter(table["is_mismatch"])["verdict"].to_pylist())
    return {} if counts.keys() <= {"mismatched"} else dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def detection(table: pa.Table) -> dict[str, float | int | None]:
    """Measure how well the mismatched training pairs are detected, against the truth.

    Returns:
        `auroc` and `average_precision` of `1 - mismatch_score` against `truly_mismatched`, `precision` and `recall` of
        the flag, and `flagged`, the number of flagged pairs. All are computed over the rows of split `train`. A value
        is None where it is not defined: the truth is unknown or has one class, no pair is flagged, no pair is
        mismatched, or there are no verdicts.
    """
    train = table.filter(pa.compute.equal(table["split"], "train"))
    flag = _booleans(train, "is_mismatch")
    found: dict[str, float | int | None] = dict.fromkeys(("auroc", "average_precision", "precision", "recall"))
    found["flagged"] = int(flag.sum())
    if "truly_mismatched" not in table.column_names:
        return found
    truth = _booleans(train, "truly_mismatched")
    if truth.any() and not truth.all():
        from sklearn.metrics import average_precision_score, roc_auc_score

        suspicion = 1 - train["mismatch_score"].to_numpy()
        found["auroc"] = float(roc_auc_score(truth, suspicion))
        found["average_precision"] = float(average_precision_score(truth, suspicion))
    if flag.any():
        found["precision"] = float(truth[flag].mean())
    if truth.any() and UNKNOWN not in train["verdict"].to_pylist():
        found["recall"] = float(flag[truth].mean())
    return found


def detector_scores(
    table: pa.Table, detectors: Mapping[str, NDArray[np.float64]], ids: Ints
) -> dict[str, dict[str, float]]:
    """Measure each detector alone, over the rows of split `train`.

    Args:
        table: Table of the judged pairs.
        detectors: Name to the share of known mismatches that have no more evidence than each pair, (n,).
        ids: Id of the pair of each value, (n,).

    Returns:
        Name to `separation` and `auroc`. `separation` is the mean of the values: how often a given pair has more
        evidence than a known mismatch. Mismatched pairs lower it. `auroc` is measured against `truly_mismatched`, and
        only where the truth is known and has both classes.
    """
    train = table.filter(pa.compute.equal(table["split"], "train"))
    place = np.full(int(ids.max(initial=-1)) + 1, -1)
    place[ids] = np.arange(len(ids))
    rows = place[train["pair"].to_numpy()]
    truth = _booleans(train, "truly_mismatched") if "truly_mismatched" in table.column_names else np.zeros(0, np.bool_)
    found: dict[str, dict[str, float]] = {}
    for name, values in detectors.items() if len(rows) else ():
        found[name] = {"separation": float(values[rows].mean())}
        if truth.any() and not truth.all():
            from sklearn.metrics import roc_auc_score

            found[name]["auroc"] = float(roc_auc_score(truth, -values[rows]))
    return found


def _columns(pairs: Pairs, ids: Ints, given: dict[str, Any]) -> dict[str, pa.Array]:
    """Return the standard columns of the table, in the order of `ids`."""
    suggested = [int(one) if one >= 0 else None for one in given["suggested_from"]]
    columns: dict[str, pa.Array] = {
        "pair": pa.array(ids),
        "image": _texts(_name(pairs, pairs.image_of[one]) for one in ids),
        "given_caption": _texts(pairs.captions[one] for one in ids),
        "split": _texts(str(one) for one in pairs.split[ids]),
        "mismatch_score": pa.array(given["score"]),
        "is_mismatch": pa.array(np.asarray(given["is_mismatch"], dtype=np.bool_)),
        "verdict": _texts(str(one) for one in given["verdict"]),
        "suggested_caption": _texts(None if one is None else pairs.captions[one] for one in suggested),
        "suggested_from_pair": pa.array(suggested, type=pa.int64()),
    }
    if pairs.true_image_of is not None:
        columns["true_image"] = _texts(_name(pairs, row) for row in pairs.true_image_of[ids])
        columns["truly_mismatched"] = pa.array(pairs.mismatched()[ids])
    return columns


def _check(pairs: Pairs, ids: Ints, given: dict[str, Any]) -> None:
    for name, values in given.items():
        if len(values) != len(ids):
            raise ValueError(f"{name} has {len(values)} values for {len(ids)} pairs")
    if len(ids) and not (ids.min() >= 0 and ids.max() < len(pairs)):
        raise ValueError(f"ids run from {ids.min()} to {ids.max()}, of {len(pairs)} pairs")
    if len(np.unique(ids)) != len(ids):
        raise ValueError("an id is given twice")
    if len(ids) and given["suggested_from"].max() >= len(pairs):
        raise ValueError(f"a suggestion comes from pair {given['suggested_from'].max()} of {len(pairs)}")
    inside = (given["score"] >= 0) & (given["score"] <= 1)
    if not inside.all():
        worst = int(np.flatnonzero(~inside)[0])
        raise ValueError(f"pair {ids[worst]} has score {given['score'][worst]}: scores lie in [0, 1]")


def _name(pairs: Pairs, row: int) -> str | None:
    return pairs.names[row] if row >= 0 else None


def _texts(values: Any) -> pa.Array:
    """Make a column of strings or nulls; bytes of a file name that are not UTF-8 become U+FFFD."""
    clean = [
        one if one is None else one.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for one in values
    ]
    return pa.array(clean, type=pa.string())


def _free(name: str, columns: dict[str, pa.Array], own: dict[str, list[str]]) -> str:
    """Return a free name for a source column: `name`, with `_given` appended as often as needed."""
    free = name
    while free in columns or (free != name and free in own):
        free += "_given"
    return free


def _booleans(table: pa.Table, name: str) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = table[name].to_numpy().astype(np.bool_)
    return found


def _atomically(path: Path, write: Callable[[Path], None]) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        try:
            write(part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
