"""Small trainings in float64 whose losses, gradients and state are recorded, by one process or by several.

As a script it is one of several processes. Arguments: the folder of the results, and what happens.

- `cases`: all cases train, and what is recorded is written.
- `KILL`, `STOP`: the last process gets this signal in a step, a checkpoint behind it.
- `fail`: an error ends the last process.
- `resume`: the training in the folder goes on to its end.
"""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from test_every_matcher import CONCEPTS, REGIONS, WIDTH, concepts, features_for
from train_helpers import dying, make_pairs, over

from pairsift import processes as processes_module
from pairsift.detect.options import DetectOptions
from pairsift.encode import features as features_module
from pairsift.errors import InputError, ToldElsewhereError
from pairsift.loss import RANKING_LOSSES
from pairsift.loss.ranking import Hinge, InfoNCE
from pairsift.match import MATCHERS
from pairsift.match.base import Matcher
from pairsift.match.vsrn import Captioner
from pairsift.methods import METHODS
from pairsift.processes import ALONE, Processes, joined
from pairsift.steps import Prior
from pairsift.train.loop import Job, Trainer
from pairsift.train.options import TrainOptions

BATCH = 21  # two and four processes share it unevenly
RESUMED, DEATH = "ncr", 4  # the case that dies and goes on, and in which step
DIVIDED = {"epochs": {"warmup": 1, "clean": 1, "all": 1}}
CLASSES = {"classifier": {"classes": 8}}
META = {"meta": {"groups": 4, "hidden": 8}}
USUAL: dict[str, Any] = {"epochs": {"warmup": 1, "train": 1}}
SHORT: dict[str, dict[str, Any]] = {
    "ncr": DIVIDED,
    "bicro": DIVIDED,
    "pc2": {**DIVIDED, **CLASSES},
    "pc2_mscn": {**DIVIDED, **CLASSES, **META},
    "pcsr": {"epochs": {"warmup": 1, "clean": 1, "refine": 1, "all": 1}, **CLASSES},
    "cream": {"epochs": {"warmup": 1, "clean": 1, "hard": 1, "all": 1}},
    "crcl": {"epochs": {"first": 1, "second": 0, "third": 0, "last": 1}, "frozen": 1},
    "gsc": {"epochs": {"warmup": 1, "train": 2}},
    "mscn": {**USUAL, **META},
    "sift": {"epochs": {"warmup": 0, "train": 1, "taught": 1}},
    "osa": {"epochs": {"train": 2}},
    "linear": {},
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "pc2, captions of all pairs": ("pc2", {"captions": {"search": "epoch", "compare": "embedding"}}),
    "pc2, captions of alike vectors": ("pc2", {"captions": {"compare": "embedding"}}),
    "pc2, own captions": ("pc2", {"noisy_captions": "own"}),
    "pcsr, captions of all pairs": ("pcsr", {"captions": {"search": "epoch"}, "noisy": {"entropy_by_pair": True}}),
    "npc, with a full bank": ("npc", {"bank": {"least": 0.3, "refresh": True}}),
    "l2rm, by distances": ("l2rm", {"rematching": {"cost": "distance", "steps": 10}}),
}
# Of the matchers beside `two_tower`, each with methods that read it in different ways.
TOKENS = {
    "vse": ("plain", "pc2"),
    "vsrn": ("plain",),
    "scan": ("ncr", "gsc"),
    "sgr": ("decl", "plain"),
    "saf": ("gsc", "mscn"),
    "sgraf": ("plain",),
    "imram": ("npc",),
    "pau": ("plain",),
    "pcme": ("plain",),
    "pcmepp": ("plain", "npc"),
}


def cases(variants: bool = True) -> dict[str, Callable[[Path, Processes], Job]]:
    """The trainings by name: every method, with other options too, and every matcher."""
    methods: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in METHODS}
    methods |= VARIANTS if variants else {}
    made = {name: _vectors(method, options) for name, (method, options) in methods.items()}
    for matcher, names in TOKENS.items():
        made |= {f"{matcher} with {method}": _tokens(matcher, method) for method in names}
    return made


def _vectors(method: str, options: dict[str, Any]) -> Callable[[Path, Processes], Job]:
    def make(folder: Path, processes: Processes) -> Job:
        pairs, features = make_pairs(18)
        probability = np.linspace(0.1, 1, len(pairs.image_of)).astype(np.float32)
        matcher = MATCHERS["two_tower"]
        job = _job(folder, pairs, features, method, options, processes)
        sizes = matcher.options(dim=16, hidden=16, dropout=0.0)
        prior = Prior(probability, 0.4, 0.9)
        job = replace(job, matcher=lambda: matcher(20, 16, options=sizes).double(), ranking=InfoNCE(), prior=prior)
        return replace(job, linear=partial(_start, pairs, features)) if method == "sift" else job

    return make


def _start(pairs, features, matcher: Matcher) -> None:
    ids = pairs.ids("train")
    sides = np.asarray(features.images.values)[pairs.image_of[ids]], np.asarray(features.texts.values)[ids]
    matcher.start_linear(*sides, np.ones(len(ids)), DetectOptions())


def _tokens(name: str, method: str) -> Callable[[Path, Processes], Job]:
    def make(folder: Path, processes: Processes) -> Job:
        pairs, features = concepts(26, 0.4)
        job = _job(folder, pairs, features_for(name, features), method, {"networks": 1}, processes)
        own = MATCHERS[name].loss
        ranking = Hinge(negatives="mean", reduction="sum") if own is None else RANKING_LOSSES[own]()
        return replace(job, matcher=lambda: small(name).double(), ranking=ranking)

    return make


def small(name: str) -> Matcher:
    """A small matcher without dropout."""
    matcher, sizes = MATCHERS[name], {"dim": 8, "word_dim": 6}
    if matcher.text_kind == "vector":
        return matcher(WIDTH, CONCEPTS, options=matcher.options(dim=8, hidden=8, dropout=0.0))
    if name in ("saf", "sgr", "sgraf"):
        more: dict[str, Any] = {"apart": False} if name == "sgraf" else {}
        options = matcher.options(**sizes, **more, similarity_dim=8, dropout=0.0)
        return matcher(WIDTH, CONCEPTS + 4, regions=REGIONS if name == "saf" else None, options=options)
    more = {"drop": 0.0} if name == "vse" else {"caption_weight": 1.0} if name == "vsrn" else {}
    made = matcher(WIDTH, CONCEPTS + 4, options=matcher.options(**sizes, **more))
    if name == "vsrn":
        made.captioner = Captioner(8, CONCEPTS + 4, 6, hidden=8, dropout=0.0)
    return made


def _job(folder, pairs, features, method: str, options: dict[str, Any], processes: Processes) -> Job:
    (folder / "model").mkdir(parents=True, exist_ok=True)
    train = TrainOptions(batch_size=BATCH, lr=3e-3, seed=5, device="cpu", threads=1, precision="fp32")
    networks = {} if method in ("osa", "linear") else {"networks": 2}
    made = METHODS[method](**over({**SHORT.get(method, USUAL), **networks}, options))
    matcher: Any = None
    return Job(pairs, features, matcher, made, InfoNCE(), train, folder, progress=False, processes=processes)


class Recorded(Trainer):
    """A trainer that keeps the losses, the gradients and the running statistics after every optimizer step."""

    def __init__(self, job: Job) -> None:
        self.record: list[dict[str, torch.Tensor]] = []
        super().__init__(job)

    def _network(self, k, epoch=0):
        network = super()._network(k, epoch)
        return network if network.head is None else network.double()

    def _descend(self, k, terms):
        losses = {f"loss {term.name}": term.reduced().detach().double() for term in terms}
        super()._descend(k, terms)
        network = self.networks[k]
        grads = {f"grad {n}": p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}
        statistics = {f"running {n}": value.clone() for n, value in network.named_buffers()}
        self.record.append({**losses, **grads, **statistics})


def train(name: str, folder: Path, processes: Processes = ALONE) -> dict[str, Any]:
    """Train a case, and return what is recorded."""
    torch.set_default_dtype(torch.float32)
    trainer = Recorded(cases()[name](folder, processes))
    trainer.run()
    state = {name: torch.from_numpy(array.copy()) for name, array in trainer.method.arrays().items()}
    weights = {f"{k}.{n}": v for k, net in enumerate(trainer.networks) for n, v in net.state_dict().items()}
    log = [{key: line[key] for key in ("epoch", "phase", "dev")} for line in trainer.log]
    return {"steps": trainer.record, "state": state, "weights": weights, "log": log}


def in_double() -> None:
    """Let features be float64, and sampled noise be 0, in this process."""
    features_module._standard = lambda values: np.ascontiguousarray(
        values, dtype=np.int64 if values.dtype.kind in "iu" else np.float64
    )
    torch.randn = torch.zeros


def resumed(folder: Path, processes: Processes = ALONE) -> dict[str, torch.Tensor]:
    """Go on with the training in the folder, or begin it, and return the weights at its end."""
    trainer = Recorded(cases()[RESUMED](folder, processes))
    trainer.run(resume=True)
    return {f"{k}.{n}": v for k, net in enumerate(trainer.networks) for n, v in net.state_dict().items()}


def fail() -> None:
    """Raise an error for a person."""
    raise InputError("image 3 is gone")


def main(folder: Path, event: str) -> None:
    """Be one of several processes."""
    with joined("cpu") as processes:
        processes.may_resume()
        last = processes.rank == processes.count - 1
        if event == "cases":
            for name in cases(processes.count == 2):
                torch.save(train(name, folder / name, processes), folder / f"{name}.{processes.rank}.pt")
        elif event == "resume":
            torch.save(resumed(folder, processes), folder / f"end.{processes.rank}.pt")
        else:
            signals = partial(os.kill, os.getpid(), getattr(signal, f"SIG{event}", 0))
            happens = (fail if event == "fail" else signals) if last else lambda: None
            dying(DEATH, happens)(cases()[RESUMED](folder, processes)).run()


if __name__ == "__main__":
    torch.set_num_threads(1)
    in_double()
    processes_module.LOST_AFTER = 4.0
    try:
        main(Path(sys.argv[1]), sys.argv[2])
    except ToldElsewhereError:
        sys.exit(2)
    except InputError as error:
        print(f"pairsift: {error}", file=sys.stderr)
        sys.exit(2)
