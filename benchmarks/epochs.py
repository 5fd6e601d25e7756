"""What an epoch of each method costs; the costs are those beside an epoch of plain training, in every phase.

Each method's phases are run for an epoch each, with an epoch of `plain` right before and right after, all in one
process; a cost is the phase's seconds per network over the mean of plain's. Nothing else may run on the machine. Every
call adds rows to the file, and the table shows the lowest and the highest cost of a phase. Where teachers encode all
pairs once, when a phase begins, its second epoch is measured. `whole` is the mean over the epochs of a training run, by
the lengths that the method's preset gives its phases.

    python benchmarks/epochs.py --data ../shared/flickr8k --options precision=bf16
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pairsift.methods import METHODS
from pairsift.processes import ALONE, Processes
from pairsift.runs.config import Config, from_tree
from pairsift.runs.prepare import Prepared, matcher_factory, prepare
from pairsift.train.loop import Job, Trainer
from rows import Row, markdown, option_tree, page, parser, read_rows, versions, write_rows

# Methods whose steps are plain training's, and methods that need verified pairs (--options verified=FILE).
PLAIN, TAUGHT = ("plain", "oracle", "crossfit", "osa"), ("mscn", "pc2_mscn")


def main() -> None:
    options = parser(__doc__, "epochs.json")
    options.add_argument("--data", type=Path, default=Path("../shared/flickr8k"))
    options.add_argument("--methods", nargs="+", default=[name for name in METHODS if name not in (*PLAIN, *TAUGHT)])
    options.add_argument("--matcher", default="two_tower")
    options.add_argument("--noise", type=float, default=0.4)
    options.add_argument("--options", nargs="*", default=[], help="further options of fit, such as precision=bf16")
    chosen = options.parse_args()
    shared = {"source": str(chosen.data), "matcher": chosen.matcher, "noise": chosen.noise}
    shared |= option_tree(chosen.options)
    rows = read_rows(chosen.json)
    with tempfile.TemporaryDirectory() as place:
        configs = {name: short(shared | {"method": name}) for name in ("plain", *chosen.methods)}
        prepared = prepare(configs["plain"], Path(place), progress=False)
        facts = {
            "matcher": chosen.matcher,
            "noise": chosen.noise,
            "options": chosen.options,
            "data_hash": prepared.hash,
            "versions": versions("torch"),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        }
        before = epochs(configs["plain"], prepared)
        for name in chosen.methods:
            seconds = epochs(configs[name], prepared)
            after = epochs(configs["plain"], prepared)
            plain = (before["train"] + after["train"]) / 2
            costs = {phase: round(value / plain, 2) for phase, value in seconds.items()}
            rows.append({"method": name, "costs": costs, "plain_seconds": round(plain, 2), **facts})
            print(json.dumps(rows[-1]), flush=True)
            write_rows(chosen.json, rows)
            before = after
    chosen.json.with_suffix(".md").write_text(page(__doc__, table(rows)))


def epochs(config: Config, prepared: Prepared, processes: Processes = ALONE) -> dict[str, float]:
    """Seconds per network of one epoch of each phase."""
    method = config.method
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "model").mkdir()
        factory = matcher_factory(config, prepared)
        job = Job(prepared.pairs, prepared.features, factory, method, config.loss, config.train, folder, False)
        trainer = Trainer(replace(job, processes=processes))
        trainer.run()
    return {str(line["phase"]): float(str(line["seconds"])) / method.networks for line in trainer.log}


def short(given: dict[str, Any]) -> Config:
    """The options with one epoch of each phase, and two where teachers encode first."""
    config = from_tree(given)
    chosen: dict[str, int] = {}
    for name, length in config.method.epochs.lengths().items():
        if length != 0:  # None is a length that is left open
            one = with_lengths(config, {name: 1})
            chosen[name] = 1 if phases(one) == phases(config) else 2  # two phases may share a length
    taught = {phase.name: 2 for phase in config.method.phases() if phase.restarts and phase.teachers}
    return with_lengths(config, chosen | taught)


def with_lengths(config: Config, lengths: dict[str, int]) -> Config:
    """The options with other lengths of the method's phases."""
    method = config.method
    return replace(config, method=method.replaced(epochs=method.epochs.replaced(**lengths)))


def phases(config: Config) -> list[str]:
    """Names of the phases that have epochs."""
    return [phase.name for phase in config.method.phases() if phase.epochs]


def costs_of(row: Row) -> dict[str, float]:
    """The cost of each phase, and of several as `whole` the mean over a training run as the preset has it."""
    costs: dict[str, float] = row["costs"]
    if len(costs) == 1:
        return costs
    config = from_tree({"source": "any", "method": row["method"], "matcher": row["matcher"]})
    lengths = [(phase.name, phase.epochs) for phase in config.method.phases() if phase.epochs]
    total = sum(length for _, length in lengths)
    return costs | {"whole": sum(costs[name] * length for name, length in lengths) / total}


def span(costs: list[float]) -> str:
    """The lowest and the highest of costs as text; nothing for none."""
    return " to ".join(f"{cost:.2f}" for cost in sorted({min(costs), max(costs)})) if costs else ""


def table(rows: list[Row]) -> str:
    """A row for each method and phase: the costs by options, lowest to highest."""
    kinds = list(dict.fromkeys(" ".join(row["options"]) for row in rows))
    costs: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        for phase, cost in costs_of(row).items():
            here = costs.setdefault((row["method"], phase), {kind: [] for kind in kinds})
            here[" ".join(row["options"])].append(cost)
    lines = [[*place, *map(span, found.values())] for place, found in costs.items()]
    return markdown(["method", "phase", *(kind or "fp32" for kind in kinds)], lines)


if __name__ == "__main__":
    main()
