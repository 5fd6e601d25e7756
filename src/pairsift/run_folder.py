"""The folder of a run: the names of its files, and whether the run is finished. Nothing slow is imported here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pairsift.errors import InputError
from pairsift.marker import MARKER, read_marker

CONFIG, METRICS, LOG, REPORT = "config.yaml", "metrics.json", "log.jsonl", "report.html"
SKIPPED, VOCABULARY, PAIRS_FILE = "skipped.csv", "vocabulary.json", "pairs.parquet"
TRUST = "trust.parquet"  # fold, match probability and detectors of each pair, by held-out evidence
METHOD_STATE = "method_state.parquet"  # the method's values for each training pair at the end
SOURCE = "source.parquet"  # the pairs that the run was made from
KNOWN = "known.parquet"  # the pairs of a source that has changed since, when they were last judged
FRONT = "model/front"  # the preprocessing of a model that reads pixels and text
NGRAMS = "model/ngrams.safetensors"  # the n-gram encoder that was fitted to the captions
SHARDS = "shards"  # the folder of the plan, the judge and the parts of a check shard by shard
CHECKPOINT = "checkpoint.safetensors"  # removed when the run is finished


def weights(folder: Path, network: int) -> Path:
    """Return the file of a network's weights."""
    return folder / "model" / f"network_{network}.safetensors"


def source_of(folder: Path) -> str:
    """Return the path of the source of a run, as it is in its options; the options are not checked."""
    import yaml

    return str(yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))["source"])


def read_metrics(folder: Path) -> dict[str, Any]:
    """Return the content of a run's `metrics.json`.

    Raises:
        InputError: It is damaged.
    """
    try:
        return dict(json.loads((folder / METRICS).read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise InputError(f"{folder / METRICS}: is damaged; take it from a copy of the run, or fit again") from error


def holds_run(folder: Path) -> bool:
    """Return whether a folder holds a run, finished or not: it has our marker and the run's options."""
    marker = read_marker(folder)
    return marker is not None and marker.kind == "run" and (folder / CONFIG).exists()


def finished(folder: Path) -> bool:
    """Return whether the run of a folder is finished or was imported."""
    if not (folder / METRICS).exists():  # the tables of an unfinished run are there before it trains
        return False
    if (folder / PAIRS_FILE).exists():
        return not (folder / CHECKPOINT).exists()
    return "imported" in read_metrics(folder)


def require_finished(folder: Path) -> None:
    """Raise an error if the folder holds no finished run.

    Raises:
        InputError: The folder holds no finished run.
    """
    if not holds_run(folder):
        lacks = MARKER if read_marker(folder) is None else CONFIG
        raise InputError(
            f"{folder} holds no run: there is no {lacks}; make a run with `pairsift check` or `pairsift fit`"
        )
    if not finished(folder):
        raise InputError(f"{folder} holds an unfinished run: continue it with `pairsift fit ... --resume`")
