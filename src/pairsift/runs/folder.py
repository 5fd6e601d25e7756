"""A run's folder: the names of its files, and whether its run is over. Nothing heavy is imported here."""

from __future__ import annotations

import json
from pathlib import Path

from pairsift.errors import InputError

CONFIG, METRICS, LOG, REPORT = "config.yaml", "metrics.json", "log.jsonl", "report.html"
SKIPPED, VOCABULARY, PAIRS_FILE = "skipped.csv", "vocabulary.json", "pairs.parquet"
TRUST = "trust.parquet"  # what held-out evidence says of each pair, and the fold that it was held out in
METHOD_STATE = "method_state.parquet"  # what the method thought of each training pair at the end
SOURCE = "source.parquet"  # what the run was made of
FRONT = "model/front"  # what stands before a model of pixels and text
NGRAMS = "model/ngrams.safetensors"  # what a text encoder was fitted to the captions as
CHECKPOINT = "checkpoint.safetensors"  # which goes last of all


def weights(folder: Path, network: int) -> Path:
    """Return the file of a network's weights."""
    return folder / "model" / f"network_{network}.safetensors"


def finished(folder: Path) -> bool:
    """Return whether a folder's run came to its end, or was imported."""
    if (folder / PAIRS_FILE).exists():
        return not (folder / CHECKPOINT).exists()
    metrics = folder / METRICS
    return metrics.exists() and "imported" in json.loads(metrics.read_text(encoding="utf-8"))


def demand_finished(folder: Path) -> None:
    """Refuse a folder that holds no finished run.

    Raises:
        InputError: It holds none.
    """
    if not (folder / CONFIG).exists():
        raise InputError(f"{folder} holds no run: there is no {CONFIG}; make one with `pairsift fit`")
    if not finished(folder):
        raise InputError(f"{folder} holds an unfinished run: go on with `pairsift fit ... --resume`")
