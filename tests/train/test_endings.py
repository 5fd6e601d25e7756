"""Stages that come to their end when recall on dev makes no more progress."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from train_helpers import dying, make_job

from pairsift.methods.oracle import Oracle
from pairsift.methods.plain import Plain, TrainEpochs
from pairsift.methods.sift import Sift, SiftEpochs
from pairsift.train import schedule
from pairsift.train.checkpoint import read_tensors
from pairsift.train.loop import CHECKPOINT, Trainer
from pairsift.train.options import TrainOptions
from pairsift.train.schedule import PATIENCE, Ending, ending, learning_rate

RISING = [100 * 1.01**epoch for epoch in range(30)]
FLAT = {"epochs": {"warmup": 0, "train": None}}


def test_a_stage_goes_on_while_it_makes_progress():
    assert all(ending(RISING[:count], 3, 40, PATIENCE) is None for count in range(1, 31))


def test_a_stage_ends_after_steps_without_progress_in_as_many_epochs():
    for steps in (1, 7, PATIENCE, 500):
        patience = -(-PATIENCE // steps)
        rsums = [*RISING[:20], *[RISING[19] * 1.004] * patience]
        plan = 2 * len(rsums) + 1
        assert ending(rsums[:-1], 3, plan, steps) is None
        begin = 3 + len(rsums)
        assert ending(rsums, 3, plan, steps) == Ending(3, begin, begin + len(rsums), plan)


def test_a_stage_does_not_end_while_its_rate_rises():
    assert ending([1.0] * 10, 0, 100, PATIENCE) is None  # the first tenth
    assert ending([1.0] * 11, 0, 100, PATIENCE) == Ending(0, 11, 22, 100)


def test_slow_progress_counts_when_it_has_added_up():
    rsums = [100 * 1.002**epoch for epoch in range(60)]
    assert all(ending(rsums[:count], 0, 100, PATIENCE / 4) is None for count in range(1, 61))


def test_a_stage_ends_at_once_where_no_progress_is_possible():
    assert ending([598.0], 0, 40, 1) == Ending(0, 1, 2, 40)
    assert ending([596.0], 0, 40, 1) is None


def test_an_end_is_never_longer_than_the_plan():
    rsums = [100.0] * 8
    assert ending(rsums, 0, 16, PATIENCE) is None
    assert ending(rsums, 0, 17, PATIENCE) == Ending(0, 8, 16, 17)
    assert ending(rsums, 0, 8, PATIENCE) is None


def test_the_rate_goes_on_from_where_it_is_and_falls_to_the_end_of_its_schedule():
    options, end = TrainOptions(lr=1.0), Ending(4, 14, 19, 40)
    planned = [learning_rate(options, epoch, part, 40, 0) for epoch in range(10) for part in (0, 0.5)]
    rates = [learning_rate(options, epoch, part, 40, 0, 1, end) for epoch in range(10, 15) for part in (0, 0.5)]
    assert rates[0] == pytest.approx(learning_rate(options, 10, 0, 40, 0))
    assert rates == sorted(rates, reverse=True) and rates[0] < planned[-1]
    assert learning_rate(options, 15, 0, 40, 0, 1, end) == pytest.approx(learning_rate(options, 40, 0, 40, 0))
    whole = [learning_rate(options, 10 + 6 * (epoch - 10), 0, 40, 0) for epoch in range(10, 15)]
    assert rates[::2] == pytest.approx(whole)  # every epoch of the end stands for six


class Noted(Trainer):
    """A trainer that notes the learning rate of every step of the first network."""

    def __init__(self, job):
        super().__init__(job)
        self.rates = []

    def _descend(self, k, terms):
        if k == 0:
            self.rates.append(self.optimizers[0].param_groups[0]["lr"])
        super()._descend(k, terms)


def easy(folder, **options):
    """Pairs that are soon known, in epochs of 16 steps."""
    job = make_job(folder, options.pop("method", "plain"), noise=0.0, **{**FLAT, **options})
    return replace(job, options=job.options.replaced(batch_size=24))


@pytest.mark.parametrize("method", ["plain", "crossfit"])
def test_easy_data_take_fewer_epochs_and_the_rate_falls_to_its_end(tmp_path, method):
    trainer = Noted(easy(tmp_path, method=method))
    planned = len(trainer.phases)
    trainer.run()
    assert len(trainer.log) == len(trainer.phases) <= 0.8 * planned
    assert trainer.rates[-1] < 0.01 * trainer.job.options.lr < trainer.rates[len(trainer.rates) // 4]
    assert trainer.position.best_rsum == max(line["dev"]["rsum"] for line in trainer.log)


def test_a_length_that_is_named_is_kept(tmp_path):
    for phases in (
        TrainEpochs(warmup=0, train=9),
        SiftEpochs(warmup=0, train=9, taught=0),
        SiftEpochs(warmup=0, train=None, taught=0, total=9),
    ):
        job = easy(tmp_path)
        kind = Sift if isinstance(phases, SiftEpochs) else Plain
        trainer = Trainer(replace(job, method=kind(epochs=phases)))
        trainer.run()
        assert len(trainer.log) == 9


def test_every_open_length_may_end_and_no_other(tmp_path):
    job = easy(tmp_path)

    def may_end(method):
        return {phase.name: phase.may_end for phase in Trainer(replace(job, method=method)).phases}

    assert may_end(Plain(epochs=TrainEpochs(warmup=1, train=None))) == {"warm-up": False, "train": True}
    assert may_end(Sift(epochs=SiftEpochs(warmup=0, train=None, taught=4))) == {"train": True, "taught": False}
    assert may_end(Sift(epochs=SiftEpochs(warmup=0, train=4, taught=4))) == {"train": False, "taught": False}
    assert may_end(Oracle(epochs=TrainEpochs(warmup=1, train=None)))["train"]


def test_without_dev_and_with_another_schedule_the_plan_stands(tmp_path):
    job = easy(tmp_path)
    split = np.where(job.pairs.split == "dev", "test", job.pairs.split)
    for other in (
        replace(job, pairs=replace(job.pairs, split=split)),
        replace(job, options=job.options.replaced(schedule="constant")),
    ):
        trainer = Trainer(other)
        planned = len(trainer.phases)
        assert planned > 10
        trainer.phases[12:] = []
        trainer.run()
        assert len(trainer.log) == 12 and not trainer.position.endings


def test_a_stage_of_new_networks_has_an_end_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("pairsift.methods.sift.TAUGHT_FROM", 1)
    trainer = Noted(easy(tmp_path, method="sift", epochs={"warmup": 0, "train": None, "taught": None}))
    trainer.run()
    (end,) = trainer.position.endings  # half as long as usual, the first stage has no room for one
    names = [line["phase"] for line in trainer.log]
    assert names == ["train"] * end.first + ["taught"] * (end.end - end.first)
    epoch = len(trainer.rates) // len(trainer.log)
    for last in (end.first, end.end):
        assert trainer.rates[last * epoch - 1] < 0.01 * trainer.job.options.lr
    assert max(trainer.rates[end.first * epoch :]) == pytest.approx(trainer.job.options.lr, rel=0.05)


@pytest.mark.parametrize("part", [0.3, 0.8])
def test_a_killed_run_ends_with_the_same_weights(tmp_path, part):
    whole = Noted(easy(tmp_path / "whole"))
    whole.run()
    steps = 2 * len(whole.rates)

    def die():
        raise KeyboardInterrupt

    (end,) = whole.position.endings
    assert 0.3 < end.begin / end.end < 0.8  # once before the end, once within it
    job = easy(tmp_path / "killed")
    with pytest.raises(KeyboardInterrupt):
        dying(round(part * steps), die)(job).run()
    again = Noted(job)
    again.run(resume=True)
    assert again.position.endings == whole.position.endings and again.phases == whole.phases
    assert [line["dev"] for line in again.log] == [line["dev"] for line in whole.log]
    one, other = (read_tensors(folder / CHECKPOINT)[0] for folder in (job.folder, whole.job.folder))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_numbers_are_those_of_the_documentation():
    assert (schedule.LEAST_GAIN, schedule.PATIENCE, schedule.TAIL) == (0.005, 60, 1.0)
