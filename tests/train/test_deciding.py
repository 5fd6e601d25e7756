"""Dev pairs that held-out evidence does not believe do not decide which networks are kept."""

from dataclasses import replace

import numpy as np
import pytest
from train_helpers import make_job, make_pairs

from pairsift.retrieve.codes import evaluate
from pairsift.steps import Prior
from pairsift.train.loop import Trainer
from pairsift.train.phases import deciding_pairs

EPOCHS = {"epochs": {"warmup": 0, "train": 3}}


def doubting(pairs, share):
    """A prior that doubts the first of the dev pairs, and believes all other pairs."""
    probability, dev = np.ones(len(pairs), np.float32), pairs.ids("dev")
    probability[dev[: round(share * len(dev))]] = 0.49
    return Prior(probability, 0.3, 1.0)


@pytest.mark.parametrize(("doubted", "left"), [(0.0, 48), (0.5, 24), (0.8, 48)])  # 9 of 48 would be left at 0.8
def test_doubted_dev_pairs_are_left_out_while_ten_are_left(doubted, left):
    pairs, _ = make_pairs()
    assert len(pairs.ids("dev")) == 48
    few = doubted == 0.8
    prior = doubting(pairs, 39 / 48 if few else doubted)
    found = deciding_pairs(pairs, prior)
    assert len(found.ids("dev")) == left
    assert np.array_equal(found.ids("train"), pairs.ids("train"))
    assert np.array_equal(found.ids("test"), pairs.ids("test"))
    if left < 48:
        assert (prior.probability[found.ids("dev")] >= 0.5).all()
    assert deciding_pairs(pairs, None) is pairs


@pytest.mark.parametrize(("method", "guided"), [("crossfit", True), ("sift", True), ("plain", False), ("ncr", False)])
def test_only_methods_that_evidence_guides_choose_by_believed_pairs(tmp_path, method, guided):
    options = {"sift": {"epochs": {"warmup": 0, "train": 2, "taught": 1}}, "ncr": {}}.get(method, EPOCHS)
    job = make_job(tmp_path, method, **options)
    trainer = Trainer(replace(job, prior=doubting(job.pairs, 0.5)))
    trainer.run()
    all_of = [line["dev"]["rsum"] for line in trainer.log]
    assert all(("dev_believed" in line) is guided for line in trainer.log)
    if not guided:
        assert trainer.position.best_rsum == max(all_of[-2:] if method == "ncr" else all_of)
        return
    believed = [line["dev_believed"]["rsum"] for line in trainer.log]
    assert believed != all_of and trainer.position.best_rsum == max(believed)
    assert trainer.position.best_epoch == int(np.argmax(believed))
    kept = evaluate([n.matcher for n in trainer.networks], job.features, trainer.deciding, "dev")["ensemble"]["rsum"]
    assert kept == max(believed)
