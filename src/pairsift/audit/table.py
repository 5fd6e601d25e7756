"""The report as a contract: one row per pair, its match probability, a flag, a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from pairsift.arrays import Ints
from pairsift.audit.spreadsheet import harmless_table
from pairsift.errors import writing
from pairsift.files import replacing, write_parquet
from pairsift.pairs.pairs import Pairs
from pairsift.retrieve.ranks import FloatArray

PAIRS_FILE = "pairs.parquet"
SUSPECTS_FILE = "suspects.csv"
DIVISION_FILE = "division.parquet"
UNKNOWN = "unknown"  # the verdict on each pair where there are too few for verdicts


def pair_table(
    pairs: Pairs,
    ids: Ints,
    probability: FloatArray,
    is_mismatch: NDArray[np.bool_],
    verdict: list[str] | NDArray[np.str_],
    suggested_from: Ints,
    extra: dict[str, list[Any]] | None = None,
) -> pa.Table:
    """Return one row per pair of `ids`, worst first (match probability ascending, then id).

    Columns, in this order: `pair` (int64 id), `image` (its name), `given_caption`, `split`, `match_probability`,
    `is_mismatch`, `verdict`, `suggested_caption` and `suggested_from_pair` (null where there is none); where
    the truth is known `true_image` (name) and `truly_mismatched`; `extra`; then the source's own columns,
    with `_given` behind a name that is taken.

    Args:
        pairs: All pairs.
        ids: Ids of the judged pairs, (n,), each once.
        probability: That the caption belongs to its image, in [0, 1], (n,).
        is_mismatch: Whether the pair is flagged, (n,).
        verdict: The word for each pair, such as `clean` or `mismatched`, (n,).
        suggested_from: Id of the pair whose caption would fit the image, -1 for none, (n,).
        extra: More columns, each (n,), in the order of `ids`.

    Raises:
        ValueError: Lengths differ, an id is unknown or given twice, a probability is outside [0, 1], or a
            name in `extra` is taken.
    """
    ids, suggested_from = np.asarray(ids, dtype=np.int64), np.asarray(suggested_from, dtype=np.int64)
    probability, extra = np.asarray(probability, dtype=np.float64), extra or {}
    given: dict[str, Any] = {
        "probability": probability,
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
    return pa.table(columns).take(np.lexsort((ids, probability)))


def drop_same_text(pairs: Pairs, ids: Ints, suggested_from: Ints) -> Ints:
    """Remove suggestions that say what the given caption says already.

    Captions count as the same where only upper and lower case or white space differ.

    Args:
        pairs: All pairs.
        ids: Ids of the judged pairs, (n,).
        suggested_from: Id of the pair whose caption is suggested, -1 for none, (n,).

    Returns:
        `suggested_from` with -1 in place of such suggestions, (n,).
    """

    def said(pair: int) -> str:
        return " ".join(pairs.captions[pair].split()).casefold()

    rows = zip(ids.tolist(), suggested_from.tolist(), strict=True)
    return np.array([-1 if other < 0 or said(other) == said(pair) else other for pair, other in rows], np.int64)


def suspects(table: pa.Table) -> pa.Table:
    """Return the flagged rows of a table of pairs, in its order."""
    return table.filter(table["is_mismatch"])


def write_tables(table: pa.Table, folder: Path) -> None:
    """Write `pairs.parquet` (all rows) and `suspects.csv` (flagged rows, worst first) into a folder.

    Each file appears whole or not at all. In the CSV an apostrophe goes before text that a spreadsheet would run as a
    formula.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    flagged = harmless_table(suspects(table))
    write_parquet(folder / PAIRS_FILE, table)
    path = folder / SUSPECTS_FILE
    with writing(path), replacing(path) as part:
        pyarrow.csv.write_csv(flagged, part)


def write_division(ids: Ints, verdicts: list[str], folder: Path) -> None:
    """Write `division.parquet`: the class, `verdict`, that a method put each training pair, `pair`, into."""
    table = pa.table({"pair": np.asarray(ids, np.int64), "verdict": verdicts})
    write_parquet(folder / DIVISION_FILE, table)


def worded(ids: Ints, is_mismatch: NDArray[np.bool_], folder: Path, given: bool = True) -> list[str]:
    """Name the verdict on each pair: `clean` or `mismatched`, as flagged; or a kind of mismatch.

    Where the folder holds a method's own division of its training pairs, a flagged pair that the method too held for
    mismatched has the method's word for it, such as `refinable` or `ambiguous`. The flag alone decides between `clean`
    and the rest.

    Args:
        ids: Ids of the judged pairs, (n,).
        is_mismatch: Whether each is flagged, (n,).
        folder: The run's folder.
        given: Whether verdicts are given; each is `unknown` elsewhere.
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
    """How many flagged pairs have each verdict, the commonest first; empty where all are just `mismatched`."""
    counts = Counter(suspects(table)["verdict"].to_pylist())
    return {} if counts.keys() <= {"mismatched"} else dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def detection(table: pa.Table) -> dict[str, float | int | None]:
    """Measure how well the mismatched training pairs were found, against the truth.

    Returns:
        `auroc` and `average_precision` of `1 - match_probability` against `truly_mismatched`, `precision` and
        `recall` of the flag, and `flagged`, their number; over the rows of split `train`. None where a value is not
        defined: the truth is unknown or of one class, nothing is flagged, nothing is mismatched, no verdicts are given.
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

        suspicion = 1 - train["match_probability"].to_numpy()
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
    """Measure what each detector tells by itself, over the rows of split `train`.

    Args:
        table: The judged pairs.
        detectors: By name the share of known mismatches that have no more evidence than each pair, (n,).
        ids: The pair of each of these values, (n,).

    Returns:
        By name `separation`, their mean: how often a pair as given has more evidence than a known mismatch (mismatched
        pairs lower it); and `auroc` against `truly_mismatched`, where the truth is known and of both kinds.
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
    """Return the columns that pairsift adds, in the order of `ids`."""
    suggested = [int(one) if one >= 0 else None for one in given["suggested_from"]]
    columns: dict[str, pa.Array] = {
        "pair": pa.array(ids),
        "image": _texts(_name(pairs, pairs.image_of[one]) for one in ids),
        "given_caption": _texts(pairs.captions[one] for one in ids),
        "split": _texts(str(one) for one in pairs.split[ids]),
        "match_probability": pa.array(given["probability"]),
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
    probability = given["probability"]
    inside = (probability >= 0) & (probability <= 1)
    if not inside.all():
        first = int(np.flatnonzero(~inside)[0])
        raise ValueError(f"pair {ids[first]} has match probability {probability[first]}: it lies in [0, 1]")


def _name(pairs: Pairs, row: int) -> str | None:
    return pairs.names[row] if row >= 0 else None


def _texts(values: Any) -> pa.Array:
    """Strings or None; bytes of a file name that are no UTF-8 become U+FFFD."""
    clean = [
        one if one is None else one.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for one in values
    ]
    return pa.array(clean, type=pa.string())


def _free(name: str, columns: dict[str, pa.Array], own: dict[str, list[str]]) -> str:
    """Return a user's column name, with `_given` appended until no other column has the name."""
    free = name
    while free in columns or (free != name and free in own):
        free += "_given"
    return free


def _booleans(table: pa.Table, name: str) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = table[name].to_numpy().astype(np.bool_)
    return found
