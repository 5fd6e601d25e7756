"""Batches are gathered while the ones before them are worked on."""

import threading
from dataclasses import replace

import pytest
from train_helpers import make_job

from pairsift.match.two_tower import TwoTower, TwoTowerOptions
from pairsift.train.loop import Trainer

PATIENCE = 20.0  # seconds until a batch that is not being gathered counts as missing


class Costly(TwoTower):
    """Observed in small blocks, so that a pass has several."""

    factorises = False


@pytest.mark.parametrize("work", ["observe", "updates"])
def test_the_next_batch_is_gathered_while_one_is_worked_on(tmp_path, work):
    news = threading.Condition()
    gathered, waited = [], []

    def gathering(request):
        with news:
            gathered.append((tuple(request.ids), threading.current_thread()))
            news.notify_all()
        return gather(request)

    def working(method, do, given):
        batch = given.batch
        with news:
            at = [ids for ids, _ in gathered].index(tuple(batch.ids))
            if len(waited) < batches - 1:
                assert news.wait_for(lambda: len(gathered) > at + 1, PATIENCE), "nobody gathers the next batch"
                assert gathered[at + 1][1] is not threading.current_thread()
            waited.append(at)
        return do(given)

    hooks = {work: working, "subset": lambda method, subset, name, network: method.setting.ids}
    job = make_job(tmp_path, "ncr", n_images=100, hooks=hooks, networks=1, epochs={"warmup": 0, "all": 0})
    sizes = TwoTowerOptions(dim=16, hidden=16)
    trainer = Trainer(replace(job, matcher=lambda: Costly(20, 16, sizes)))
    gather, trainer.gather = trainer.gather, gathering
    batches = 5
    if work == "observe":
        trainer._observe(0)
    else:
        trainer.position.sums = [{}]
        trainer._train(0, 0, trainer.phases[0])
    assert waited == list(range(batches))
