"""What finished runs keep of their methods' pairs, as numbers that figures are drawn from."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray

from pairsift.errors import InputError
from pairsift.run_folder import CONFIG, LOG, METHOD_STATE, METRICS, require_finished

Values = NDArray[np.float64]
Groups = dict[str, Values]  # by `matching` and `mismatched`, or `all` where the truth is not known
NAMES = {
    "clean_probability": "clean probability",
    "cross_modal": "cross-modal label",
    "intra_modal": "intra-modal label",
    "consistency": "consistency score",
    "weight": "weight w",
}
GROUPS = ("matching", "mismatched", "all")
HISTOGRAMS = 4  # in the course of an array over the epochs
BINS = 20
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


class Lacking(Exception):
    """A run does not have what a figure shows; the message says what."""


@dataclass(frozen=True)
class FinishedRun:
    """What a finished run left for figures.

    Attributes:
        name: Of its folder; no two runs of a picture have the same.
        title: Its method, its noise and its matcher.
        epochs: The lines of its log, one for each epoch, in order.
        state: What the method thought of each training pair at the end, by column; empty where it keeps nothing.
    """

    name: str
    title: str
    epochs: list[dict[str, Any]]
    state: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Histogram:
    """How the values of an array lay in one epoch.

    Attributes:
        epoch: Counted from 1.
        edges: Of the bins, ascending.
        shares: For each group the share of its values in each bin.
    """

    epoch: int
    edges: Values
    shares: Groups


@dataclass(frozen=True)
class Course:
    """An array of the method's state over the epochs.

    Attributes:
        epochs: Those with means, counted from 1.
        means: For each group, one mean an epoch.
        histograms: Of at most `SHOWN` epochs.
    """

    epochs: list[int]
    means: Groups
    histograms: list[Histogram]


@dataclass(frozen=True)
class Bank:
    """How clean NPC's memory bank is.

    Attributes:
        reach: For each group the share of all training pairs that are in it and reach each of `THRESHOLDS`.
        epochs: Those with a bank, counted from 1.
        purity: Share of the bank's entries that match, one an epoch.
        share: Share of the training pairs that the bank takes, one an epoch.
    """

    reach: Groups
    epochs: list[int]
    purity: Values
    share: Values


def read_runs(folders: Sequence[Path]) -> list[FinishedRun]:
    """Read the runs, each with a name of its own.

    Raises:
        InputError: There is none, or a folder holds no finished run, or a file of one cannot be read.
    """
    if not folders:
        raise InputError("name at least one folder of a finished run: python benchmarks/figures.py runs/mine")
    names = [folder.resolve().name for folder in folders]
    seen: Counter[str] = Counter()
    for row, name in enumerate(names):
        seen[name] += 1
        names[row] = name if seen[name] == 1 else f"{name}-{seen[name]}"
    return [read_run(folder, name) for folder, name in zip(folders, names, strict=True)]


def read_run(folder: Path, name: str) -> FinishedRun:
    """Read one run; what it does not have is empty."""
    require_finished(folder)
    config = parsed(folder / CONFIG, yaml.safe_load)
    metrics = parsed(folder / METRICS, json.loads)
    rate = (metrics.get("noise") or {}).get("rate")
    noise = "no planted noise" if rate is None else f"{rate:.0%} noise"
    lines = parsed(folder / LOG, lambda text: {"lines": [json.loads(line) for line in text.splitlines()]})
    last = {line["epoch"]: line for line in lines.get("lines", []) if isinstance(line, dict) and "epoch" in line}
    state: dict[str, NDArray[Any]] = {}
    if (folder / METHOD_STATE).exists():
        try:
            table = pq.read_table(folder / METHOD_STATE)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{folder / METHOD_STATE}: cannot be read as Parquet; fit the run again") from error
        state = {column: table[column].to_numpy() for column in table.column_names}
    title = f"{config.get('method')}, {noise}, {config.get('matcher')}"
    return FinishedRun(name, title, [last[epoch] for epoch in sorted(last)], state)


def parsed(path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Return what a text file of a run holds; nothing where there is none.

    Raises:
        InputError: It cannot be read, or not as what it should be.
    """
    if not path.exists():
        return {}
    try:
        found = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read; it is damaged, so fit the run again") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: does not hold what a run writes there; fit the run again")
    return found


# ---------------------------------------------------------------- what is drawn


def told(summary: Mapping[str, Any]) -> bool:
    """Whether an array tells pairs apart; until it is first estimated all its values are the same."""
    return np.count_nonzero(summary["all"]["counts"]) > 1


def looked(line: Mapping[str, Any]) -> bool:
    """Whether the method had looked at its pairs."""
    return any(told(summary) for summary in line.get("state", {}).values())


def courses(run: FinishedRun) -> dict[str, Course]:
    """Every array of the method's state over the epochs, from its first estimate on.

    Raises:
        Lacking: The method keeps none, or never looked at its pairs.
    """
    found = {}
    for name in dict.fromkeys(name for line in run.epochs for name in line.get("state", {})):
        with_it = [line for line in run.epochs if name in line.get("state", {})]
        with_it = list(dropwhile(lambda line: not told(line["state"][name]), with_it))  # noqa: B023
        if not with_it:
            continue
        groups = [group for group in GROUPS if group in with_it[0]["state"][name]]
        groups = [group for group in groups if group != "all"] or ["all"]
        means = {
            group: np.array([line["state"][name][group]["mean"] for line in with_it], float)  # None becomes nan
            for group in groups
        }
        places = np.unique(np.linspace(0, len(with_it) - 1, HISTOGRAMS).round().astype(int))
        histograms = [histogram(with_it[place], name, groups) for place in places]
        found[name] = Course([line["epoch"] + 1 for line in with_it], means, histograms)
    if not found:
        raise Lacking("its log holds no values of pairs (plain and crossfit keep none, nor does a warm-up)")
    return found


def histogram(line: Mapping[str, Any], name: str, groups: Sequence[str]) -> Histogram:
    """How an array's values lay in the epoch of a line of the log."""
    summary = line["state"][name]
    counts = {group: np.array(summary[group]["counts"], float) for group in groups}
    shares = {group: count / max(1.0, count.sum()) for group, count in counts.items()}
    return Histogram(line["epoch"] + 1, np.array(summary["edges"], float), shares)


def final(run: FinishedRun, name: str) -> list[Groups]:
    """The last values of an array, for each network by group.

    Raises:
        Lacking: The run does not keep it.
    """
    networks = [column for column in run.state if column.rpartition("_")[0] == name]
    if not networks:
        raise Lacking(f"it keeps no {NAMES.get(name, name)}")
    truth = run.state.get("truly_matching")
    groups = {"all": np.ones(len(run.state[networks[0]]), bool)}
    if truth is not None:
        matched = truth.astype(bool)
        groups = {"matching": matched, "mismatched": ~matched}
    return [{group: run.state[column][rows].astype(float) for group, rows in groups.items()} for column in networks]


def spread(values: Groups, edges: Values) -> Groups:
    """For each group the share of its values in each bin."""
    return {group: np.histogram(each, edges)[0] / max(1, len(each)) for group, each in values.items()}


def bins(networks: Sequence[Groups]) -> Values:
    """Edges that hold all values: the first bin's middle is 0, the last one's 1 or the largest value."""
    largest = max((float(each.max()) for values in networks for each in values.values() if len(each)), default=1.0)
    return (np.arange(BINS + 2) - 0.5) * max(1.0, largest) / BINS


def threshold(run: FinishedRun) -> float | None:
    """PCSR's last tau, or None before there is one."""
    found = [line["tau"] for line in run.epochs if line.get("tau") is not None]
    return float(found[-1]) if found else None


def discrimination(run: FinishedRun) -> tuple[list[int], Values]:
    """Epochs, counted from 1, and in each the share of pairs on the right side, from the method's first look on.

    Raises:
        Lacking: The log does not have it.
    """
    lines = [line for line in run.epochs if "discrimination" in line and looked(line)]
    if not lines:
        raise Lacking("its log has no discrimination (that needs planted noise, and a method that judges pairs)")
    return [line["epoch"] + 1 for line in lines], np.array([line["discrimination"] for line in lines], float)


def bank(run: FinishedRun) -> Bank:
    """How clean the pairs above a threshold are at the end, and the bank in each epoch.

    Raises:
        Lacking: The run has no bank, or does not know the truth.
    """
    lines = [line for line in run.epochs if "bank_purity" in line]
    if not lines:
        raise Lacking("its log has no bank_purity (that needs npc, and planted noise)")
    networks = final(run, "clean_probability")
    total = sum(len(each) for values in networks for each in values.values())
    reach = {
        group: np.array([sum(int((v[group] >= tau).sum()) for v in networks) / total for tau in THRESHOLDS])
        for group in networks[0]
    }
    purity, share = (np.array([line[name] for line in lines], float) for name in ("bank_purity", "bank_share"))
    return Bank(reach, [line["epoch"] + 1 for line in lines], purity, share)


# ---------------------------------------------------------------- drawing
