"""What an epoch of each method costs; the costs are those beside an epoch of plain training, in every phase.

Each method's phases are run for an epoch each, with an epoch of `plain` right before and right after, all in one
process; a cost is the phase's seconds per network over the mean of plain's. Nothing else may run on the machine. Every
call adds a run to the file, and the table shows the lowest and the highest cost of a phase over the runs. `whole` is
the mean over the epochs of a training run, by the lengths that the method's preset gives its phases.

    python benchmarks/epochs.py --data ../shared/flickr8k --options precision=bf16
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from flickr8k import page
from option_names import tree
from pairsift.methods import METHODS
from pairsift.runs.config import Config, from_tree
from pairsift.runs.prepare import Prepared, matcher_factory, prepare
from pairsift.train.loop import Job, Trainer

# Those whose steps are those of plain training, and those that need verified pairs (--options verified=FILE).
PLAIN, TAUGHT = ("plain", "oracle", "crossfit", "osa"), ("mscn", "pc2_mscn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/flickr8k"))
    parser.add_argument("--methods", nargs="+", default=[name for name in METHODS if name not in (*PLAIN, *TAUGHT)])
    parser.add_argument("--matcher", default="two_tower")
    parser.add_argument("--noise", type=float, default=0.4)
    parser.add_argument("--options", nargs="*", default=[], help="further options of fit, such as precision=bf16")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/epochs.json"))
    chosen = parser.parse_args()
    shared = {"source": str(chosen.data), "matcher": chosen.matcher, "noise": chosen.noise}
    shared |= tree(chosen.options)
    rows = []
    with tempfile.TemporaryDirectory() as place:
        configs = {name: short(shared | {"method": name}) for name in ("plain", *chosen.methods)}
        prepared = prepare(configs["plain"], Path(place), progress=False)
        before = epochs(configs["plain"], prepared)
        for name in chosen.methods:
            seconds = epochs(configs[name], prepared)
            after = epochs(configs["plain"], prepared)
            plain = (before["train"] + after["train"]) / 2
            costs = {phase: round(value / plain, 2) for phase, value in seconds.items()}
            rows.append({"method": name, "costs": costs, "plain_seconds": round(plain, 2)})
            print(json.dumps(rows[-1]), flush=True)
            before = after
    facts = {
        "matcher": chosen.matcher,
        "noise": chosen.noise,
        "options": chosen.options,
        "data_hash": prepared.hash,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
    }
    runs = json.loads(chosen.json.read_text())["runs"] if chosen.json.exists() else []
    runs.append({**facts, "rows": rows})
    chosen.json.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
    chosen.json.with_suffix(".md").write_text(page(__doc__, table(runs)))


def epochs(config: Config, prepared: Prepared) -> dict[str, float]:
    """Seconds per network of one epoch of each phase."""
    method = config.method
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "model").mkdir()
        factory = matcher_factory(config, prepared)
        job = Job(prepared.pairs, prepared.features, factory, method, config.loss, config.train, folder, False)
        trainer = Trainer(job)
        trainer.run()
    return {str(line["phase"]): float(str(line["seconds"])) / method.networks for line in trainer.log}


def short(given: dict[str, Any]) -> Config:
    """The options with one epoch of each phase."""
    config = from_tree(given)
    chosen: dict[str, int] = {}
    for name, length in config.method.epochs.lengths().items():
        if length != 0:  # None is a length that is left open
            one = having(config, {name: 1})
            chosen[name] = 1 if phases(one) == phases(config) else 2  # a length may be that of two phases
    return having(config, chosen)


def having(config: Config, lengths: dict[str, int]) -> Config:
    """The options with other lengths of the method's phases."""
    method = config.method
    return replace(config, method=method.replaced(epochs=method.epochs.replaced(**lengths)))


def phases(config: Config) -> list[str]:
    """Names of the phases that have epochs."""
    return [phase.name for phase in config.method.phases() if phase.epochs]


def whole(method: str, matcher: str, costs: dict[str, float]) -> dict[str, float]:
    """The mean cost over the epochs of a training run as the preset has them; nothing where there is one phase."""
    if len(costs) == 1:
        return {}
    config = from_tree({"source": "any", "method": method, "matcher": matcher})
    lengths = [(phase.name, phase.epochs) for phase in config.method.phases() if phase.epochs]
    total = sum(length for _, length in lengths)
    return {"whole": sum(costs[name] * length for name, length in lengths) / total}


def table(runs: list[dict[str, Any]]) -> str:
    """A row for each method and phase: the costs by options, lowest to highest."""
    kinds = list(dict.fromkeys(" ".join(run["options"]) for run in runs))
    costs: dict[tuple[str, str], dict[str, list[float]]] = {}
    for run in runs:
        for row in run["rows"]:
            for phase, cost in (row["costs"] | whole(row["method"], run["matcher"], row["costs"])).items():
                here = costs.setdefault((row["method"], phase), {})
                here.setdefault(" ".join(run["options"]), []).append(cost)
    lines = [
        "| method | phase | " + " | ".join(kind or "fp32" for kind in kinds) + " |",
        "|---" * (len(kinds) + 2) + "|",
    ]
    for (method, phase), found in costs.items():
        ends = [sorted({min(found[kind]), max(found[kind])}) if kind in found else [] for kind in kinds]
        cells = [" to ".join(f"{cost:.2f}" for cost in pair) for pair in ends]
        lines.append(f"| {method} | {phase} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
