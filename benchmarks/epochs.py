"""What an epoch of each method costs beside an epoch of plain training, in every phase.

Each method's phases are run for an epoch each, with an epoch of `plain` right before and right after, all in one
process; a cost is the phase's seconds per network over the mean of plain's. Nothing else may run on the machine.

    python benchmarks/epochs.py --data ../shared/flickr8k
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from pairsift.api.config import Config
from pairsift.api.prepare import Prepared, matcher_factory, prepare
from pairsift.methods import METHODS
from pairsift.methods.base import Phase
from pairsift.train.loop import Job, Trainer
from pairsift.train.options import TrainOptions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/flickr8k"))
    parser.add_argument("--methods", nargs="+", default=[name for name in METHODS if name not in ("plain", "oracle")])
    parser.add_argument("--matcher", default="two_tower")
    parser.add_argument("--noise", type=float, default=0.4)
    parser.add_argument("--options", nargs="*", default=[], help="further options of fit, such as precision=bf16")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/epochs.json"))
    chosen = parser.parse_args()
    shared = {"source": str(chosen.data), "matcher": chosen.matcher, "noise": chosen.noise}
    shared |= dict(option.split("=", 1) for option in chosen.options)
    rows = []
    with tempfile.TemporaryDirectory() as place:
        configs = {name: Config.resolve({**shared, "method": name}) for name in ("plain", *chosen.methods)}
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
    chosen.json.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")


def epochs(config: Config, prepared: Prepared) -> dict[str, float]:
    """Seconds per network of one epoch of each phase."""
    options = config.group(TrainOptions)
    method = config.method()
    phases = short(method.phases())
    method.phases = lambda: phases  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "model").mkdir()
        factory = matcher_factory(config, prepared)
        job = Job(prepared.pairs, prepared.features, factory, method, config.ranking(), options, folder, False)
        trainer = Trainer(job)
        trainer.run()
    return {str(line["phase"]): float(str(line["seconds"])) / method.networks for line in trainer.log}


def short(phases: Sequence[Phase]) -> tuple[Phase, ...]:
    """The phases with one epoch each."""
    return tuple(replace(phase, epochs=1) for phase in phases if phase.epochs)


if __name__ == "__main__":
    main()
