"""Teachers that keep the vectors of all training pairs: the same similarities, without encoding them again."""

import numpy as np
import pytest
import torch
from train_helpers import SIZES, make_job, make_pairs

from pairsift.match.two_tower import TwoTower
from pairsift.steps import Network, Request
from pairsift.train.batches import Gatherer
from pairsift.train.loop import Trainer
from pairsift.train.teachers import VECTOR_BYTES, Teacher


class Counted(TwoTower):
    """Counts the batches that it encodes."""

    def encode_images(self, items):
        self.batches = getattr(self, "batches", 0) + 1
        return super().encode_images(items)


class Undivided(Counted):
    factorises = False


def made(matcher=Counted):
    pairs, features = make_pairs()
    torch.manual_seed(0)
    network = Network(matcher(20, 16, SIZES), None)
    return pairs, features, network, Gatherer(features, pairs.image_of, torch.device("cpu"))


def test_similarities_are_those_of_the_network_also_with_other_captions():
    pairs, features, network, gather = made()
    ids, rng = pairs.ids("train"), np.random.default_rng(0)
    teacher = Teacher(network)
    teacher.keep(features, ids, pairs.image_of, VECTOR_BYTES)
    encoded = network.matcher.batches
    rows, others = rng.choice(ids, 30), rng.choice(ids, 30)
    for request in (Request(rows), Request(rows, others)):
        batch = gather(request)
        similarity, scale = teacher(batch)
        assert network.matcher.batches == encoded
        expected, own_scale = network.eval()(batch)
        encoded = network.matcher.batches
        torch.testing.assert_close(similarity, expected, rtol=0, atol=1e-6)
        assert scale == own_scale and not similarity.requires_grad


@pytest.mark.parametrize(("matcher", "limit"), [(Counted, 10_000), (Undivided, VECTOR_BYTES)])
def test_nothing_is_kept_where_it_does_not_fit(matcher, limit):
    pairs, features, network, gather = made(matcher)
    teacher = Teacher(network)
    teacher.keep(features, pairs.ids("train"), pairs.image_of, limit)
    assert not hasattr(network.matcher, "batches")
    batch = gather(Request(pairs.ids("train")[:9]))
    assert torch.equal(teacher(batch)[0], network.eval()(batch)[0])


@pytest.mark.slow
def test_a_run_that_keeps_them_learns_the_same(tmp_path, monkeypatch):
    epochs = {"epochs": {"warmup": 0, "train": 1, "taught": 2}}
    losses = []
    for name, limit in (("kept", VECTOR_BYTES), ("not", 0)):
        monkeypatch.setattr("pairsift.train.loop.VECTOR_BYTES", limit)
        trainer = Trainer(make_job(tmp_path / name, "sift", **epochs))
        trainer.run()
        assert all((teacher._sides is not None) == bool(limit) for teacher in trainer.teachers)
        losses.append([line["loss"]["network_1"]["teaching"] for line in trainer.log[1:]])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
