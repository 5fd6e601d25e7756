"""Judgements kept in the cache, so that a fit goes on from a check, and a run from where it was stopped."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import pairsift.detect
from pairsift.cache_folder import default_cache
from pairsift.detect import DetectOptions, JudgedPairs, Judgement
from pairsift.encode.encoder import digest
from pairsift.errors import WriteError
from pairsift.files import write_parquet

DETECTOR = "detector."  # before the name of each kind of evidence
COLUMNS = ("probability", "fold", "group")
NUMBERS = ("rate", "low", "high", "auroc", "rate_outside_train", "near_auroc", "below_near")


def judgement_file(judged: JudgedPairs, seed: int, options: DetectOptions, cache: Path | None) -> Path:
    """Return the file of a judgement, by all that it follows from: pairs, seed, options, and the detector itself."""
    arrays = {field.name: getattr(judged, field.name) for field in fields(judged) if field.name != "aligned"}
    arrays |= dict(zip(("aligned_images", "aligned_captions"), judged.aligned or (), strict=False))
    code = [file.read_text(encoding="utf-8") for file in sorted(Path(pairsift.detect.__path__[0]).glob("*.py"))]
    parts = [str(seed), json.dumps(options.changes(), sort_keys=True), *code]
    name = digest(parts, {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()})
    return (default_cache() if cache is None else cache) / f"judgement-{name}.parquet"


def read_judgement(file: Path, options: DetectOptions) -> Judgement | None:
    """Return a judgement that was kept; None if there is none that can be read."""
    try:
        table = pq.read_table(file)
        numbers: dict[str, Any] = json.loads(table.schema.metadata[b"judgement"])
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return None
    columns: dict[str, Any] = {name: np.array(table[name].to_numpy()) for name in table.column_names}
    detectors = {name.removeprefix(DETECTOR): columns[name] for name in columns if name.startswith(DETECTOR)}
    arrays = {name: columns[name] for name in COLUMNS}
    placeholder = columns.get("placeholder", np.zeros(0, np.int64))
    return Judgement(**arrays, **numbers, detectors=detectors, placeholder=placeholder, limits=options.verdicts)


def keep_judgement(file: Path, judgement: Judgement) -> None:
    """Write a judgement into the cache; where this is full or closed, nothing is kept."""
    columns = {name: getattr(judgement, name) for name in COLUMNS}
    columns |= {f"{DETECTOR}{name}": values for name, values in judgement.detectors.items()}
    if len(judgement.placeholder):
        columns["placeholder"] = judgement.placeholder
    numbers = json.dumps({name: getattr(judgement, name) for name in NUMBERS})
    table = pa.table(columns).replace_schema_metadata({"judgement": numbers})
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_parquet(file, table)
    except (OSError, WriteError):
        return
