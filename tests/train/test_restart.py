"""A phase that restarts: new networks and rates, teachers that stay as they are, also over a kill."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from train_helpers import make_job

from pairsift.errors import InputError
from pairsift.steps import Phase, Prior
from pairsift.train.checkpoint import read_tensors
from pairsift.train.loop import CHECKPOINT, Trainer
from pairsift.train.schedule import network_epochs

pytestmark = pytest.mark.slow

EPOCHS = {"epochs": {"warmup": 0, "train": 2, "taught": 3}}


class CutShortError(Exception):
    pass


class Watched(Trainer):
    """Notes rates and places of its steps; dies in the step that it is told, one step after a checkpoint."""

    def __init__(self, folder, dies_at=None, **options):
        job = make_job(folder, "sift", n_images=100, **{**EPOCHS, **options})
        prior = Prior(np.random.default_rng(0).uniform(0, 1, 200).astype(np.float32), 0.4, 1.0)
        super().__init__(replace(job, options=job.options.replaced(batch_size=16), prior=prior))
        self.steps, self.dies_at, self.first_weights = [], dies_at, {}

    def _descend(self, k, terms):
        if len(self.steps) == self.dies_at:
            raise CutShortError
        at = self.position.epoch, k
        self.first_weights.setdefault(at, self.networks[k].matcher.image_head.project[2].weight.detach().clone())
        rate = self.optimizers[k].param_groups[0]["lr"]
        super()._descend(k, terms)
        self.steps.append((*at, rate, [term.name for term in terms]))
        self._saved = float("-inf") if len(self.steps) + 1 == self.dies_at else self._saved


def test_networks_rates_and_optimizers_begin_anew_and_the_old_networks_teach(tmp_path):
    trainer = Watched(tmp_path)
    trainer.run()
    names = {(epoch, tuple(said)) for epoch, _, _, said in trainer.steps}
    taught = ("correspondence", "teaching")
    assert names == {*((e, taught[:1]) for e in (0, 1)), *((e, taught) for e in (2, 3, 4))}
    rates = {epoch: [rate for e, k, rate, _ in trainer.steps if e == epoch and k == 0] for epoch in range(5)}
    assert rates[2][0] == pytest.approx(rates[0][0]) and rates[1][-1] < 0.3 * max(rates[1])
    steps = len(rates[2]) * 3
    at = (len(rates[2]) + 2) / steps  # the rate of a step in the second of three epochs, by the cosine
    assert rates[3][2] == pytest.approx(3e-3 * (0.5 + 0.5 * math.cos(math.pi * (at - 0.1) / 0.9)))
    first = [trainer.first_weights[epoch, k] for epoch in (0, 2) for k in (0, 1)]
    assert all(not torch.equal(a, b) for i, a in enumerate(first) for b in first[:i])
    assert [line["phase"] for line in trainer.log] == ["train"] * 2 + ["taught"] * 3
    assert not any(parameter.requires_grad for teacher in trainer.teachers for parameter in teacher.parameters())
    assert not any(teacher.training for teacher in trainer.teachers)


def test_teachers_are_the_networks_at_the_end_of_the_phase_before(tmp_path):
    alone = Watched(tmp_path / "alone", epochs={"warmup": 0, "train": 2, "taught": 0})
    alone.run()
    before, _ = read_tensors(tmp_path / "alone" / CHECKPOINT)
    taught = Watched(tmp_path / "taught")
    taught.run()
    after, _ = read_tensors(tmp_path / "taught" / CHECKPOINT)
    names = [name for name in before if name.startswith("network/")]
    assert names and all(torch.equal(before[name], after[name.replace("network", "teacher", 1)]) for name in names)
    assert not any(name.startswith("teacher/") for name in before)


@pytest.mark.parametrize("place", [(1, 1), (2, 0), (3, 1)])
def test_a_run_cut_short_before_or_after_the_restart_ends_with_the_same_weights(tmp_path, place):
    straight = Watched(tmp_path / "straight")
    straight.run()
    within = [at for at, (epoch, k, _, _) in enumerate(straight.steps) if (epoch, k) == place]
    with pytest.raises(CutShortError):
        Watched(tmp_path / "again", within[-1]).run()
    resumed = Watched(tmp_path / "again")
    resumed.run(resume=True)
    assert resumed.steps == straight.steps[within[-2] :]
    end, again = (load_file(tmp_path / name / CHECKPOINT) for name in ("straight", "again"))
    assert end.keys() == again.keys() and any(name.startswith("teacher/") for name in end)
    assert [key for key in end if not torch.equal(end[key], again[key])] == []


def test_a_checkpoint_of_other_phases_is_refused(tmp_path):
    with pytest.raises(CutShortError):
        Watched(tmp_path, 20, epochs={"warmup": 0, "train": 4, "taught": 1}).run()
    with pytest.raises(InputError, match="has other phases than this run"):
        Watched(tmp_path).run(resume=True)


def test_the_networks_of_an_epoch_have_a_stretch_of_epochs():
    first, other, third = Phase("a", 2), Phase("b", 1, restarts=True), Phase("b", 1, restarts=True)
    phases = [first, first, other, other, third]
    assert [network_epochs(phases, epoch) for epoch in range(5)] == [(0, 2), (0, 2), (2, 4), (2, 4), (4, 5)]
    assert [network_epochs([other, first], epoch) for epoch in range(2)] == [(0, 2), (0, 2)]
