"""Training of a matcher whose parts learn apart, as SGRAF's SGR and SAF do in their paper."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import torch

from pairsift.arrays import Bools
from pairsift.files import write_lines
from pairsift.match.base import Matcher
from pairsift.methods.base import Method
from pairsift.progress import part_of_stage
from pairsift.run_folder import LOG
from pairsift.steps import Network
from pairsift.train.loop import Job, Position, Trainer


class Apart:
    """The trainers of a matcher's parts, which run one after the other, with the interface of one trainer.

    Each part trains with the method as a matcher of its own would: with its own networks, division and best epoch.
    After `run`, network k is the matcher whose parts are the networks k.

    Attributes:
        networks: The networks of the whole matcher; untrained before `run`.
        device: Where they are.
        log: The lines of all parts, each with its part's name.
    """

    def __init__(self, job: Job, whole: Trainer) -> None:
        self.job, self.device, self._whole = job, whole.device, whole
        self.networks = [Network(network.matcher, None) for network in whole.networks]
        self.trainers = {name: Trainer(_job_of_part(job, name)) for name in self.networks[0].matcher.apart()}
        self.log: list[dict[str, object]] = []
        self._rsum = -1.0

    @property
    def method(self) -> Method:
        """The method of the first part, with its state."""
        return next(iter(self.trainers.values())).method

    @property
    def matched(self) -> Bools | None:
        """Whether each training pair truly matches, (n,); None where it is unknown."""
        return self._whole.matched

    @property
    def fast_products(self) -> bool:
        """Whether steps multiply in bfloat16."""
        return self._whole.fast_products

    @property
    def keeps_linear(self) -> bool:
        """Whether a linear model is the best on dev: parts have none."""
        return False

    @property
    def position(self) -> Position:
        """The first part's best epoch, the rSum of all networks on dev, and the seconds of all parts."""
        positions = [trainer.position for trainer in self.trainers.values()]
        return replace(positions[0], best_rsum=self._rsum, seconds=sum(position.seconds for position in positions))

    def run(self, resume: bool = False) -> None:
        """Train every part to its end, from the start or from its checkpoint."""
        for number, (name, trainer) in enumerate(self.trainers.items()):
            with part_of_stage(number, len(self.trainers)):
                trainer.run(resume)
            for whole, network in zip(self.networks, trainer.networks, strict=True):
                whole.matcher.apart()[name].load_state_dict(network.matcher.state_dict())
            self.log += [{**line, "part": name} for line in trainer.log]
        self._rsum = self._whole.recall(self.networks)["rsum"] if self._whole.has_dev else -1.0
        if not self.job.processes.first:
            return
        write_lines(self.job.folder / LOG, self.log)

    def remove_checkpoints(self) -> None:
        """Remove what the training needed to go on."""
        for name in self.trainers:
            shutil.rmtree(part_folder(self.job.folder, name), ignore_errors=True)


def trainer_of(job: Job) -> Trainer | Apart:
    """Return the trainer of a job, or of each part where the matcher's parts train apart."""
    trainer = Trainer(job)
    return Apart(job, trainer) if trainer.networks[0].matcher.apart() else trainer


def part_folder(folder: Path, name: str) -> Path:
    """Return the folder of a part's checkpoints in a run's folder."""
    return folder / "model" / f"part_{name}"


def _job_of_part(job: Job, name: str) -> Job:
    """Return the training of one part, in a folder of its own."""
    folder = part_folder(job.folder, name)
    if job.processes.first:
        (folder / "model").mkdir(parents=True, exist_ok=True)

    def make() -> Matcher:
        state = torch.get_rng_state()
        whole = job.matcher()
        torch.set_rng_state(state)
        return whole.apart()[name]

    return replace(job, matcher=make, folder=folder)
