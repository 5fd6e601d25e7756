"""What a phase asks of the loop: pairs once, passes in turn, batches, new optimizers; and the rate of a step."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from train_helpers import make_job

from pairsift.steps import Phase
from pairsift.train.batches import steps
from pairsift.train.loop import Trainer
from pairsift.train.schedule import learning_rate


class Sets:
    """Subsets as they are given."""

    name = "sets"

    def __init__(self, **ids):
        self.ids = {name: np.asarray(rows, np.int64) for name, rows in ids.items()}

    def subset(self, name, network):
        return self.ids[name]


@pytest.mark.parametrize("size", [0, 1, 2, 19, 60, 500])
def test_pairs_that_come_along_once_are_seen_once_at_most(size):
    method = Sets(clean=range(1000), hard=range(1000, 1000 + size), noisy=range(2000, 2003))
    phase = Phase("all", 1, ("clean", "hard", "noisy"), once=("hard",))
    plan = steps(method, phase, 0, 32, (1, 2))
    seen = [i for step in plan for i in step.get("hard", [])]
    assert len(plan) == 31 and sorted(seen) == (list(range(1000, 1000 + size)) if size > 1 else [])
    assert ["hard" in step for step in plan] == sorted(("hard" in step for step in plan), reverse=True)
    assert all(len(step["noisy"]) == 3 for step in plan)  # repeated
    few = steps(Sets(clean=range(64), hard=range(100, 400), noisy=[]), phase, 0, 32, (1, 2))
    assert [len(step["hard"]) for step in few] == [32, 32]  # the others wait for another epoch


def test_in_turn_the_second_network_trains_by_the_first_as_it_has_become(tmp_path):
    events, vectors = [], []

    def observed(method, observe, seen):
        found = observe(seen)
        if events[-1:] != [("pass", seen.k)]:
            events.append(("pass", seen.k))
            vectors.append(next(seen.network.parameters()).detach().clone())
        return found

    def stepped(method, updates, step):
        if not step.phase.warm and events[-1:] != [("train", step.k)]:
            events.append(("train", step.k))
        return updates(step)

    hooks = {"observe": observed, "updates": stepped}
    trainer = Trainer(make_job(tmp_path, "mscn", n_images=100, hooks=hooks, epochs={"warmup": 1, "train": 2}))
    trainer.run()
    assert events == [("pass", 1), ("train", 0), ("pass", 0), ("train", 1)] * 2
    assert not torch.equal(vectors[1], vectors[3])


def test_a_warm_up_has_its_own_batches_and_optimizers(tmp_path):
    sizes, counts = {}, []

    def stepped(method, updates, step):
        sizes.setdefault(step.phase.name, []).append(len(step.batch))
        state = next(iter(trainer.optimizers[step.k].state.values()), {"step": torch.tensor(0.0)})
        counts.append((trainer.position.epoch, step.k, trainer.position.step, int(state["step"])))
        return updates(step)

    options = {"epochs": {"warmup": 2, "train": 2}, "warmup_batch": 64}
    trainer = Trainer(make_job(tmp_path, "mscn", hooks={"updates": stepped}, **options))
    trainer.run()
    assert max(sizes["warm-up"]) >= 64 > max(sizes["meta"]) and set(sizes["warm-up"][:2]) == {64}
    taken = {(epoch, step): already for epoch, k, step, already in counts if k == 0}
    assert taken[0, 0] == 0 < taken[1, 0] and taken[2, 0] == 0 < taken[3, 0]  # new ones in epoch 2 alone
    assert all(already == step for (epoch, step), already in taken.items() if epoch in (0, 2))


def test_a_step_knows_its_rate_as_a_share_of_the_largest(tmp_path):
    rates = {}

    def stepped(method, updates, step):
        rates[trainer.position.epoch] = step.rate
        return updates(step)

    job = make_job(tmp_path, "plain", n_images=40, hooks={"updates": stepped}, epochs={"warmup": 1, "train": 3})
    options = job.options.replaced(schedule="step", decay_epoch=1, decay_every=1)
    trainer = Trainer(replace(job, options=options))
    trainer.run()
    expected = {epoch: learning_rate(options, epoch, 0, 4, 1) / options.lr for epoch in range(4)}
    assert rates == pytest.approx(expected) and rates == pytest.approx({0: 1, 1: 1, 2: 0.1, 3: 0.01})
