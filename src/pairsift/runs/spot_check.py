"""The spot check of a run: its pairs, its result, and the tables after recalibration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from pairsift.arrays import Bools
from pairsift.errors import InputError
from pairsift.review import Decisions
from pairsift.review.spot_check import MIN_ANSWERS, MIN_PAIRS, SpotCheck, SpotResult, evaluate
from pairsift.run_folder import read_metrics, require_finished
from pairsift.suggest.table import fitting_captions
from pairsift.table import VAGUE, count_verdicts, detection, read_pairs

PAIRS = 50  # of a spot check for which no number is given
APPLIED = b"spot_check"  # metadata of a recalibrated table: the result that it was made by


def spot_check(folder: Path, pairs: int | None = None) -> SpotCheck:
    """Return the spot check of a run, or draw a new one: see `Run.spot_check`."""
    require_finished(folder)
    check = SpotCheck.read(folder)
    if check is not None and pairs is None:
        return check
    _refuse_recalibrated(folder, read_metrics(folder))
    table, seed = read_pairs(folder), 0 if check is None else check.seed + 1
    check = SpotCheck.draw(table, max(MIN_PAIRS, min(PAIRS, len(table))) if pairs is None else pairs, seed)
    check.write(folder)
    return check


def spot_result(folder: Path) -> SpotResult:
    """Return the result of the answers to the spot check of a run; see `Run.spot_result`.

    After a recalibration, this is the result that it was made by.
    """
    require_finished(folder)
    table = read_pairs(folder)
    result = current_result(folder, table, Decisions(folder, table["pair"].to_numpy()))
    if result is None:
        raise InputError(f"{folder} has no spot check: draw one with: pairsift spot-check {folder}")
    return result


def current_result(folder: Path, table: pa.Table, decisions: Decisions) -> SpotResult | None:
    """Return the result of the answers to a spot check, as `spot_result` does. None if there is no spot check.

    Args:
        folder: The run's folder.
        table: The table of judged pairs.
        decisions: The decisions about them.
    """
    check = SpotCheck.read(folder)
    if check is None:
        return None
    if (applied := read_metrics(folder).get("spot_check")) is not None:
        return SpotResult(**applied)
    return evaluate(check, table, decisions.of_sample(check.pairs))


def recalibrated_tables(folder: Path) -> tuple[SpotResult, pa.Table, dict[str, Any]]:
    """Return the result of the spot check, and the table of judged pairs and the metrics after recalibration.

    A table that is recalibrated already, because the process was killed before it wrote the metrics, stays as it is.

    Raises:
        InputError: There is no spot check, it has too few answers, or the run is recalibrated already.
    """
    result, table, metrics = spot_result(folder), read_pairs(folder), read_metrics(folder)
    _refuse_recalibrated(folder, metrics)
    if (applied := (table.schema.metadata or {}).get(APPLIED)) is not None:
        result = SpotResult(**json.loads(applied))
    else:
        table = _recalibrated(folder, table, result, bool(metrics["verdicts_given"]))
    metrics.pop("verdicts", None)
    if counts := count_verdicts(table):
        metrics["verdicts"] = counts
    if metrics["noise"] is not None:
        metrics["detection"] = detection(table)
    return result, table, {**metrics, "spot_check": asdict(result)}


def _recalibrated(folder: Path, table: pa.Table, result: SpotResult, verdicts_given: bool) -> pa.Table:
    """Return the table of judged pairs after recalibration, with the result in its metadata."""
    if result.rate is None:
        raise InputError(f"{result.answered} answers are too few for a recalibration: it needs {MIN_ANSWERS}")
    probability = result.recalibrated(table["match_probability"].to_numpy())
    verdict = np.array(table["verdict"].to_pylist(), object)
    flagged = (probability < 0.5) & (verdict != VAGUE) & verdicts_given
    if verdicts_given:
        verdict[flagged & (verdict == "clean")] = "mismatched"
        verdict[~flagged & (verdict != VAGUE)] = "clean"
    columns: dict[str, Any] = {"match_probability": probability, "is_mismatch": flagged, "verdict": verdict}
    columns |= _suggestions(folder, table, flagged)
    for name, values in columns.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values, table.schema.field(name).type))
    return table.replace_schema_metadata({APPLIED: json.dumps(asdict(result))})


def _suggestions(folder: Path, table: pa.Table, flagged: Bools) -> dict[str, Any]:
    """Return the columns of the suggestions for flagged pairs, from the suggestions' file."""
    fitting, pairs = fitting_captions(folder), table["pair"].to_pylist()
    caption_of = dict(zip(pairs, table["given_caption"].to_pylist(), strict=True))
    found = [fitting.get(pair) if flag else None for pair, flag in zip(pairs, flagged, strict=True)]
    return {
        "suggested_caption": [None if one is None else caption_of.get(one[0]) for one in found],
        "suggested_from_pair": [None if one is None else one[0] for one in found],
        "suggestion_probability": [None if one is None else one[1] for one in found],
    }


def is_recalibrated(folder: Path) -> bool:
    """Return whether a spot check has changed the run's probabilities. No other one can change them again."""
    return "spot_check" in read_metrics(folder)


def _refuse_recalibrated(folder: Path, metrics: Mapping[str, Any]) -> None:
    """Raise InputError if a spot check has already changed the run's probabilities."""
    if "spot_check" in metrics:
        raise InputError(
            f"{folder} is recalibrated already: judge its pairs again first, with: pairsift audit {folder}"
        )
