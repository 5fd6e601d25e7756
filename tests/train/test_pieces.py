"""CRCL through the loop: a restart drops the networks and keeps what is known of the pairs."""

import numpy as np
import torch
from safetensors.torch import load_file
from train_helpers import make_job

from pairsift.train.loop import CHECKPOINT, Trainer


def test_networks_restart_without_teachers_and_correspondences_stay(tmp_path):
    seen = []

    def stepped(method, step, given):
        weights = given.network.matcher.image_head.project[2].weight.detach().clone()
        known = method.correspondence.state["correspondence"].copy()
        seen.append((trainer.position.epoch, given.k, weights, known))
        return step(given)

    trainer = Trainer(make_job(tmp_path, "crcl", n_images=100, hooks={"step": stepped}))
    trainer.run()
    assert [line["phase"] for line in trainer.log] == ["first frozen", "first", "last frozen", "last"]
    assert trainer.teachers == [] and trainer.position.best_epoch == 3
    assert not any(name.startswith("teacher/") for name in load_file(tmp_path / CHECKPOINT))
    begins = {(epoch, k): weights for epoch, k, weights, _ in reversed(seen)}
    known = {epoch: y for epoch, _, _, y in reversed(seen)}
    assert not torch.equal(begins[0, 0], begins[2, 0]) and not torch.equal(begins[2, 0], begins[2, 1])
    assert (known[0] == 1).all() and np.array_equal(known[1], known[2]) and not np.array_equal(known[2], known[3])


def test_correspondences_tell_mismatched_pairs(tmp_path):
    options = {"epochs": {"first": 6, "second": 0, "third": 0, "last": 6}, "correspondence": {"block": 32}}
    job = make_job(tmp_path, "crcl", noise=0.4, tau=0.1, **options)
    trainer = Trainer(job)
    trainer.run()
    y = trainer.method.correspondence.state["correspondence"][:, trainer.method.setting.ids].mean(0)
    wrong = ~trainer.matched
    assert 0.3 < wrong.mean() < 0.5
    order = np.argsort(y)
    assert wrong[order[: len(y) // 4]].mean() > 0.75 and wrong[order[-len(y) // 4 :]].mean() < 0.1
