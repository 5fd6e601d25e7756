"""The batch size and the epochs that are left open are settled by the number of pairs."""

from dataclasses import replace

import pytest
from train_helpers import make_job

from pairsift.errors import InputError
from pairsift.methods.crossfit import Crossfit
from pairsift.train.loop import Trainer
from pairsift.train.options import TrainOptions


@pytest.mark.parametrize(
    ("pairs", "size"),
    [(30_000, 512), (5000, 512), (4999, 256), (2000, 256), (800, 128), (200, 64), (199, 49), (9, 2), (4, 2), (0, 2)],
)
def test_fewer_pairs_have_smaller_batches(pairs, size):
    assert TrainOptions().with_batch_size(pairs).batch_size == size
    assert TrainOptions(batch_size=7).with_batch_size(pairs).batch_size == 7


def test_a_default_batch_is_no_larger_than_the_limit():
    limited = TrainOptions(batch_limit=128)
    assert [limited.with_batch_size(pairs).batch_size for pairs in (30_000, 2000, 800, 200)] == [128, 128, 128, 64]
    assert TrainOptions(batch_limit=128, batch_size=300).with_batch_size(800).batch_size == 300


def test_a_batch_of_one_pair_is_refused():
    for size in (1, -3):
        with pytest.raises(InputError, match=f"batch_size is {size}"):
            TrainOptions(batch_size=size)


def test_a_trainer_settles_both(tmp_path):
    job = make_job(tmp_path, "plain", n_images=40)  # 32 images with two training captions each
    method = Crossfit(epochs={"warmup": 0, "train": None}, networks=1)
    job = replace(job, options=TrainOptions(seed=1, device="cpu", threads=1), method=method)
    trainer = Trainer(job)
    assert trainer.job.options.batch_size == 16
    assert len(trainer.phases) == 60
