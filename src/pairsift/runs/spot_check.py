"""The spot check of a run: its pairs, what the answers say, and the tables after recalibration."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pairsift.audit import Decisions, read_pairs
from pairsift.audit.spot_check import MIN_ANSWERS, SpotCheck, SpotResult, evaluate
from pairsift.audit.table import VAGUE
from pairsift.errors import InputError
from pairsift.runs.folder import METRICS, require_finished

PAIRS = 50  # of a spot check for which no number is given


def spot_check(folder: Path, pairs: int | None = None) -> SpotCheck:
    """Return the spot check of a run, or draw a new one: see `Run.spot_check`."""
    require_finished(folder)
    check = SpotCheck.read(folder)
    if check is not None and pairs is None:
        return check
    check = SpotCheck.draw(
        read_pairs(folder), PAIRS if pairs is None else pairs, 0 if check is None else check.seed + 1
    )
    check.write(folder)
    return check


def spot_result(folder: Path) -> SpotResult:
    """Return what the answers to the spot check of a run say: see `Run.spot_result`."""
    require_finished(folder)
    check = SpotCheck.read(folder)
    if check is None:
        raise InputError(f"{folder} has no spot check: draw one with: pairsift spot-check {folder}")
    table = read_pairs(folder)
    return evaluate(check, table, Decisions(folder, table["pair"].to_numpy()).of_sample(check.pairs))


def recalibrated_tables(folder: Path) -> tuple[SpotResult, pa.Table, dict[str, Any]]:
    """Return the result of the spot check, and the table of judged pairs and the metrics after recalibration.

    Raises:
        InputError: There is no spot check, or it has too few answers.
    """
    result, table = spot_result(folder), read_pairs(folder)
    if result.rate is None:
        raise InputError(f"{result.answered} answers are too few for a recalibration: it needs {MIN_ANSWERS}")
    metrics = dict(json.loads((folder / METRICS).read_text(encoding="utf-8")))
    probability = result.recalibrated(table["match_probability"].to_numpy())
    verdict = np.array(table["verdict"].to_pylist(), object)
    flagged = (probability < 0.5) & (verdict != VAGUE) & bool(metrics.get("verdicts_given", True))
    if metrics.get("verdicts_given", True):
        verdict[flagged & (verdict == "clean")] = "mismatched"
        verdict[~flagged & (verdict != VAGUE)] = "clean"
    columns = {"match_probability": probability, "is_mismatch": flagged, "verdict": verdict}
    for name, values in columns.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values, table.schema.field(name).type))
    rate = {"estimated": result.rate, "low": result.low, "high": result.high}
    metrics["noise_rate"] = {**(metrics.get("noise_rate") or {}), **rate}
    metrics["spot_check"] = asdict(result)
    return result, table, metrics
