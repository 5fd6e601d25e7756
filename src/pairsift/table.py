"""The table of judged pairs: a row per pair with its match probability, its flag and its verdict."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
from numpy.typing import NDArray

from pairsift.arrays import Array, Ints
from pairsift.errors import InputError, writing
from pairsift.files import make_folder, read_parquet, replacing, write_parquet
from pairsift.pairs.pairs import Pairs
from pairsift.retrieve.ranks import FloatArray
from pairsift.run_folder import PAIRS_FILE
from pairsift.spreadsheet import harmless_table, keep_filled_in

SUSPECTS_FILE = "suspects.csv"
DIVISION_FILE = "division.parquet"
JUDGEMENT_COLUMNS = (
    *("pair", "image", "given_caption", "split", "match_probability", "is_mismatch", "verdict", "suggested_caption"),
    *("suggested_from_pair", "true_image", "truly_mismatched", "suggestion_probability"),
    *("image_duplicates", "caption_duplicates"),
)  # all others are the source's
DECISION_FIELDS = ("decision", "new_caption", "from_pair", "reason")  # what a person may add to a copy of a table
VAGUE = "vague"  # the verdict on pairs that are not flagged because their caption says too little
UNKNOWN = "unknown"  # the verdict on every pair where no verdicts are given


def pair_table(
    pairs: Pairs,
    ids: Ints,
    probability: FloatArray,
    is_mismatch: NDArray[np.bool_],
    verdict: list[str] | NDArray[np.str_],
    suggested_from: Ints,
    extra: dict[str, list[Any]] | None = None,
) -> pa.Table:
    """Return a table with one row per pair of `ids`, worst first (match probability ascending, then id).

    Columns, in this order: `pair` (int64 id), `image` (its name), `given_caption`, `split`, `match_probability`,
    `is_mismatch`, `verdict`, `suggested_caption` and `suggested_from_pair` (null where there is none); where
    the truth is known `true_image` (name) and `truly_mismatched`; `extra`; then the columns of the source.
    `_given` is appended to the name of a source column if another column has the name, or if a table of decisions
    would take it for a decision.

    Args:
        pairs: All pairs.
        ids: Ids of the judged pairs, (n,), each once.
        probability: Probability that the caption belongs to its image, in [0, 1], (n,).
        is_mismatch: Whether the pair is flagged, (n,).
        verdict: The verdict on each pair, such as `clean` or `mismatched`, (n,).
        suggested_from: Id of the pair whose caption would fit the image, -1 for none, (n,).
        extra: More columns, each (n,), in the order of `ids`.
    """
    suggested = [int(pair) if pair >= 0 else None for pair in suggested_from]
    columns: dict[str, pa.Array] = {
        "pair": pa.array(ids, pa.int64()),
        "image": _texts(pairs.image_name(pair) if pairs.image_of[pair] >= 0 else None for pair in ids),
        "given_caption": _texts(pairs.captions[pair] for pair in ids),
        "split": _texts(str(pair) for pair in pairs.split[ids]),
        "match_probability": pa.array(probability, pa.float64()),
        "is_mismatch": pa.array(is_mismatch, pa.bool_()),
        "verdict": _texts(str(pair) for pair in verdict),
        "suggested_caption": _texts(None if pair is None else pairs.captions[pair] for pair in suggested),
        "suggested_from_pair": pa.array(suggested, pa.int64()),
    }
    if pairs.true_image_of is not None:
        columns["true_image"] = _texts(_name(pairs, row) for row in pairs.true_image_of[ids])
        columns["truly_mismatched"] = pa.array(pairs.mismatched()[ids])
    columns |= {name: pa.array(values) for name, values in (extra or {}).items()}
    for name, values in pairs.columns.items():
        columns[_unused_name(name, columns, pairs.columns)] = _texts(values[pair] for pair in ids)
    return pa.table(columns).take(np.lexsort((ids, probability)))


def storable(text: str) -> str:
    """Return a text as a table holds it: bytes of a file name that are not UTF-8 become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def suspects(table: pa.Table) -> pa.Table:
    """Return the flagged rows of a table of pairs, in its order."""
    return table.filter(table["is_mismatch"])


def write_tables(table: pa.Table, folder: Path) -> None:
    """Write `pairs.parquet` (all rows) and `suspects.csv` (flagged rows, worst first) into a folder.

    A failed write keeps the old file, and a `suspects.csv` that a person wrote decisions into is kept under another
    name.
    """
    make_folder(folder)
    write_parquet(folder / PAIRS_FILE, table)
    keep_filled_in(folder / SUSPECTS_FILE)
    write_csv(folder / SUSPECTS_FILE, suspects(table), marked=True)


def write_csv(path: Path, table: pa.Table, marked: bool = False) -> None:
    """Write a table as CSV, with an apostrophe before text that a spreadsheet would run as a formula.

    Args:
        path: The file.
        table: The table.
        marked: Whether a byte order mark comes first, without which Excel does not show UTF-8 as it is.

    Raises:
        WriteError: It cannot be written; what was there stays.
    """
    with writing(path), replacing(path) as part, part.open("wb") as stream:
        stream.write(codecs.BOM_UTF8 * marked)
        pyarrow.csv.write_csv(harmless_table(table), stream)


class PairRows:
    """The rows of pairs in a table, by the id of the pair.

    Args:
        ids: Id of the pair of each row, (n,), each once.

    Attributes:
        order: The rows by ascending id, (n,).
    """

    def __init__(self, ids: Ints) -> None:
        self.order: Ints = np.argsort(ids)
        self._ids = np.asarray(ids, np.int64)[self.order]

    def find(self, pairs: Sequence[int] | Ints) -> Ints:
        """Return the row of each of these pairs, -1 for a pair that the table does not have, (m,)."""
        wanted = np.asarray(pairs, np.int64)
        if not len(self._ids):
            return np.full(len(wanted), -1)
        places = np.minimum(np.searchsorted(self._ids, wanted), len(self._ids) - 1)
        return np.where(self._ids[places] == wanted, self.order[places], -1)


def read_pairs(folder: Path) -> pa.Table:
    """Return the table of a run's judged pairs, worst first.

    Raises:
        InputError: The run was imported, and its pairs have not been judged; or the file is damaged.
    """
    if not (folder / PAIRS_FILE).exists():
        raise InputError(f"{folder} holds an imported run: judge its pairs first with `pairsift audit`")
    return read_parquet(folder / PAIRS_FILE)


def write_division(ids: Ints, verdicts: list[str], folder: Path) -> None:
    """Write `division.parquet`: a method's class, `verdict`, for each training pair, `pair`."""
    table = pa.table({"pair": np.asarray(ids, np.int64), "verdict": verdicts})
    write_parquet(folder / DIVISION_FILE, table)


def verdict_names(
    ids: Ints,
    is_mismatch: NDArray[np.bool_],
    is_vague: NDArray[np.bool_],
    folder: Path,
    has_verdicts: bool = True,
) -> list[str]:
    """Return the verdict on each pair: `clean`, `mismatched`, a kind of mismatch, or `vague`.

    Where the folder holds a method's division of its training pairs, a flagged pair that is not `clean` in the
    division either gets the class of the division, such as `refinable` or `ambiguous`. The flag alone decides between
    `clean` and the other verdicts.

    Args:
        ids: Ids of the judged pairs, (n,).
        is_mismatch: Whether each is flagged, (n,).
        is_vague: Whether each pair is not flagged because its caption is vague, (n,).
        folder: The run's folder.
        has_verdicts: Whether verdicts are given; if not, every verdict is `unknown`.
    """
    if not has_verdicts:
        return [UNKNOWN] * len(ids)
    class_of: dict[int, str] = {}
    if (folder / DIVISION_FILE).exists():
        division = read_parquet(folder / DIVISION_FILE).to_pydict()
        class_of = dict(zip(division["pair"], division["verdict"], strict=True))
    kind_of = {pair: kind for pair, kind in class_of.items() if kind != "clean"}
    rows = zip(ids.tolist(), is_mismatch, is_vague, strict=True)
    return [VAGUE if vague else kind_of.get(pair, "mismatched") if flag else "clean" for pair, flag, vague in rows]


def count_verdicts(table: pa.Table) -> dict[str, int]:
    """Count the flagged pairs by verdict, the most frequent first; empty where all are just `mismatched`."""
    counts = {row["values"]: row["counts"] for row in suspects(table)["verdict"].value_counts().to_pylist()}
    return {} if counts.keys() <= {"mismatched"} else dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def detection(table: pa.Table) -> dict[str, float | int | None]:
    """Measure the detection of mismatched training pairs against the truth.

    Returns:
        `auroc` and `average_precision` of a low `match_probability` against `truly_mismatched`, `precision` and
        `recall` of the flag, and `flagged`, the number of flagged pairs; over the rows of split `train`. A value is
        None where it is not defined: the truth is unknown or has one class only, no pair is flagged, no pair is
        mismatched, or no verdicts are given.
    """
    train = table.filter(pa.compute.equal(table["split"], "train"))
    flag = train["is_mismatch"].to_numpy()
    scores: dict[str, float | int | None] = dict.fromkeys(("auroc", "average_precision", "precision", "recall"))
    scores["flagged"] = int(flag.sum())
    if "truly_mismatched" not in table.column_names:
        return scores
    truth = train["truly_mismatched"].to_numpy()
    if truth.any() and not truth.all():
        from sklearn.metrics import average_precision_score, roc_auc_score

        suspicion = -train["match_probability"].to_numpy()  # 1 - p would tie all below 1e-16
        scores["auroc"] = float(roc_auc_score(truth, suspicion))
        scores["average_precision"] = float(average_precision_score(truth, suspicion))
    if flag.any():
        scores["precision"] = float(truth[flag].mean())
    if truth.any() and UNKNOWN not in train["verdict"].to_pylist():
        scores["recall"] = float(flag[truth].mean())
    return scores


def detector_scores(table: pa.Table, detectors: Mapping[str, Array], ids: Ints) -> dict[str, dict[str, float]]:
    """Measure each detector alone, over the rows of split `train`.

    Args:
        table: The judged pairs.
        detectors: By name, the share of decoys that have no more evidence than each pair, (n,).
        ids: Id of the pair of each of these values, (n,).

    Returns:
        By name, the `auroc` against `truly_mismatched`; empty where the truth is unknown or has one class only.
    """
    train = table.filter(pa.compute.equal(table["split"], "train"))
    truth = train["truly_mismatched"].to_numpy() if "truly_mismatched" in table.column_names else np.zeros(0, np.bool_)
    if truth.all() or not truth.any():
        return {}
    from sklearn.metrics import roc_auc_score

    rows = PairRows(ids).find(train["pair"].to_numpy())
    return {name: {"auroc": float(roc_auc_score(truth, -values[rows]))} for name, values in detectors.items()}


def _name(pairs: Pairs, row: int) -> str | None:
    return pairs.names[row] if row >= 0 else None


def _texts(values: Any) -> pa.Array:
    return pa.array([None if value is None else storable(value) for value in values], type=pa.string())


def _unused_name(name: str, columns: dict[str, pa.Array], source_columns: dict[str, list[str]]) -> str:
    """Return a user's column name, with `_given` appended until no column of ours or of the user has the name."""
    unused = name
    while (
        unused in (*columns, *JUDGEMENT_COLUMNS)
        or unused.strip().lower() in DECISION_FIELDS
        or (unused != name and unused in source_columns)
    ):
        unused += "_given"
    return unused
