"""Runs of crossfit beside plain ones, guarded divisions, and what a run settles before it starts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from train_helpers import make_job

from pairsift.methods.crossfit import held_out_correspondence
from pairsift.steps import Prior, Request, not_negatives
from pairsift.train.batches import Likeness
from pairsift.train.checkpoint import read_tensors
from pairsift.train.loop import CHECKPOINT, Trainer
from pairsift.train.options import TrainOptions


def trained(folder, method, prior=None, **options):
    job = make_job(folder, method, n_images=40, epochs={"train": 2}, **options)
    trainer = Trainer(replace(job, prior=prior))
    trainer.run()
    return trainer, load_file(folder / CHECKPOINT)


def prior_of(rate, low=0.0):
    probability = np.random.default_rng(0).uniform(low, 1, 80).astype(np.float32)
    return Prior(probability, rate, 1.0)


def differing(left, right):
    assert left.keys() == right.keys()
    return [key for key in left if not torch.equal(left[key], right[key])]


def test_crossfit_is_plain_bit_for_bit_below_one_percent(tmp_path):
    plain, expected = trained(tmp_path / "plain", "plain")
    for name, prior in (("none", None), ("clean", prior_of(0.0099)), ("sure", prior_of(0.4, 1.0))):
        trainer, found = trained(tmp_path / name, "crossfit", prior)
        assert len(found) > 10 and differing(expected, found) == []
        assert [line["loss"] for line in trainer.log] == [line["loss"] for line in plain.log]
        assert [phase.name for phase in trainer.phases] == [phase.name for phase in plain.phases]


def test_crossfit_departs_from_plain_where_pairs_are_doubted(tmp_path):
    _, expected = trained(tmp_path / "plain", "plain")
    trainer, found = trained(tmp_path / "crossfit", "crossfit", prior_of(0.01))
    weights = [key for key in expected if "weight" in key]
    assert len(weights) >= 4 and set(weights) <= set(differing(expected, found))
    ids = [i for i in range(80) if trainer.job.pairs.split[i] == "train"]
    batch = trainer.gather(Request(np.array(ids)))
    found = held_out_correspondence(trainer.method.setting, batch)
    assert found.tolist() == trainer.job.prior.probability[ids].tolist()


@pytest.mark.parametrize("method", ["ncr", "pc2", "pcsr", "npc"])
def test_a_guard_of_zero_trains_on_clean_pairs_alone(tmp_path, method):
    names = []

    def stepped(method, updates, given):
        names.extend((name, len(batch)) for name, batch in given.batches.items())
        return updates(given)

    job = make_job(tmp_path, method, n_images=40, hooks={"updates": stepped})
    trainer = Trainer(replace(job, prior=Prior(np.ones(80, np.float32), 0.0, 0.0)))
    trainer.run()
    assert names and {name for name, _ in names} <= {"all", "clean", "bank"}
    if method != "npc":  # which divides no pairs
        assert all(len(trainer.method.subset("noisy", k)) == 0 for k in range(job.method.networks))
    assert read_tensors(tmp_path / CHECKPOINT)[1]["position"]["epoch"] == len(trainer.phases)


@pytest.mark.parametrize(
    ("pairs", "size"),
    [(100_000, 512), (5000, 512), (4999, 256), (2000, 256), (1999, 128), (800, 128), (799, 64), (200, 64), (199, 49),
     (40, 10), (9, 2), (1, 2)],
)  # fmt: skip
def test_a_batch_size_left_open_is_settled_by_the_number_of_pairs(pairs, size):
    options = TrainOptions(lr=0.5, seed=3)
    assert options.with_batch_size(pairs) == options.replaced(batch_size=size)
    fixed = TrainOptions(batch_size=33)
    assert fixed.with_batch_size(pairs) is fixed


def test_a_run_settles_batches_and_epochs_before_it_counts_them(tmp_path):
    job = make_job(tmp_path, "crossfit", n_images=100, epochs={"warmup": 2, "train": None})
    trainer = Trainer(replace(job, options=job.options.replaced(batch_size=None)))
    pairs = int((job.pairs.split == "train").sum())
    assert pairs == 160 and trainer.job.options.batch_size == 40
    assert len(trainer.phases) == 60 and [phase.warm for phase in trainer.phases[:3]] == [True, True, False]


def test_a_job_tells_its_batches_what_is_alike(tmp_path):
    job = make_job(tmp_path, "plain", n_images=40, noise=0)
    images, texts = np.arange(40), np.arange(80)
    images[7], texts[20] = 3, 2
    batch = Trainer(replace(job, likeness=Likeness(images, texts))).gather(Request(np.array([2, 6, 14, 20])))
    assert batch.image_rows.tolist() == [1, 3, 3, 10] and batch.caption_texts.tolist() == [2, 6, 14, 2]
    expected = np.eye(4, dtype=bool)
    expected[1, 2] = expected[2, 1] = expected[0, 3] = expected[3, 0] = True
    assert not_negatives(batch).tolist() == expected.tolist()
    assert torch.equal(batch.images.values, torch.from_numpy(job.features.images.values[[1, 3, 7, 10]]))
