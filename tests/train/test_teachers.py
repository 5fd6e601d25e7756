"""Teachers that keep the vectors of all training pairs: the same similarities, without encoding them again."""

from io import FileIO
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from train_helpers import SIZES, make_job, make_pairs

from pairsift.errors import WriteError
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


LIMITS = [(VECTOR_BYTES, 0, 1e-6), (0, VECTOR_BYTES, 1e-3)]  # in memory, and on the disk in half precision


@pytest.mark.parametrize(("limit", "room", "atol"), LIMITS)
def test_similarities_are_those_of_the_network_also_with_other_captions(tmp_path, limit, room, atol):
    pairs, features, network, gather = made()
    ids, rng = pairs.ids("train"), np.random.default_rng(0)
    teacher = Teacher(network)
    teacher.keep(features, ids, pairs.image_of, limit, tmp_path, room)
    assert not any(tmp_path.iterdir())
    encoded = network.matcher.batches
    rows, others = rng.choice(ids, 30), rng.choice(ids, 30)
    for request in (Request(rows), Request(rows, others)):
        batch = gather(request)
        similarity, scale = teacher(batch)
        assert network.matcher.batches == encoded
        expected, own_scale = network.eval()(batch)
        encoded = network.matcher.batches
        torch.testing.assert_close(similarity, expected, rtol=0, atol=atol)
        assert similarity.dtype == expected.dtype
        assert scale == own_scale and not similarity.requires_grad


@pytest.mark.parametrize(
    ("matcher", "limit", "room"), [(Counted, 10_000, 5000), (Undivided, VECTOR_BYTES, VECTOR_BYTES)]
)
def test_nothing_is_kept_where_it_does_not_fit(tmp_path, matcher, limit, room):
    pairs, features, network, gather = made(matcher)
    teacher = Teacher(network)
    teacher.keep(features, pairs.ids("train"), pairs.image_of, limit, tmp_path, room)
    assert not hasattr(network.matcher, "batches")
    batch = gather(Request(pairs.ids("train")[:9]))
    assert torch.equal(teacher(batch)[0], network.eval()(batch)[0])


@pytest.mark.slow
def test_a_run_that_keeps_them_learns_the_same(tmp_path, monkeypatch):
    epochs = {"epochs": {"warmup": 0, "train": 1, "taught": 2}}
    losses = []
    for name, limit, free in (("kept", VECTOR_BYTES, 0), ("on disk", 0, 2**40), ("not", 0, 0)):
        monkeypatch.setattr("pairsift.train.loop.VECTOR_BYTES", limit)
        monkeypatch.setattr("pairsift.train.loop.disk_usage", lambda place, free=free: SimpleNamespace(free=free))
        trainer = Trainer(make_job(tmp_path / name, "sift", **epochs))
        trainer.run()
        assert all((teacher._sides is not None) == (name != "not") for teacher in trainer.teachers)
        losses.append([line["loss"]["network_1"]["teaching"] for line in trainer.log[1:]])
    np.testing.assert_allclose(losses[0], losses[2], rtol=1e-5)
    np.testing.assert_allclose(losses[1], losses[2], rtol=1e-3)


def test_a_disk_that_is_full_ends_in_one_line(tmp_path, monkeypatch):
    pairs, features, network, _ = made()
    monkeypatch.setattr("pairsift.train.teachers.TemporaryFile", lambda dir: FileIO("/dev/full", "r+"))
    with pytest.raises(WriteError, match="No space left"):
        Teacher(network).keep(features, pairs.ids("train"), pairs.image_of, 0, tmp_path, VECTOR_BYTES)
