"""A linear model competes with the networks on dev, and is kept only where it is better."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from train_helpers import make_job

from pairsift.detect.linear import canonical
from pairsift.detect.options import LinearOptions
from pairsift.match.heads import normalised
from pairsift.retrieve.gallery import evaluate
from pairsift.runs.features import rows_of
from pairsift.train.loop import CHECKPOINT, Trainer

FAST = {"epochs": {"warmup": 0, "train": 3}}


def linear_of(job, good=True):
    """A function that makes a matcher ridge canonical correlation of the true training pairs, or of wrong ones."""
    ids = job.pairs.ids("train")
    rows = job.pairs.true_image_of[ids] if good else job.pairs.image_of[ids[::-1]]
    images, texts = (
        normalised(torch.from_numpy(rows_of(table, of))).numpy()
        for table, of in ((job.features.images, rows), (job.features.texts, ids))
    )
    model = canonical(images, texts, torch.ones(len(ids)).double().numpy(), LinearOptions())

    def start(matcher):
        matcher.image_head.start_linear(model.image_mean, model.image_map)
        matcher.text_head.start_linear(model.caption_mean, model.caption_map)

    return start


def trainer_of(folder, good=True, lr=3e-3, method="crossfit", **options):
    job = make_job(folder, method, **{**FAST, **options})
    return Trainer(replace(job, linear=linear_of(job, good), options=job.options.replaced(lr=lr)))


def test_it_is_kept_where_no_epoch_is_better(tmp_path):
    trainer = trainer_of(tmp_path, lr=1e-7)  # the networks stay as they start, at random
    trainer.run()
    assert trainer.position.best_epoch == -1
    one, other = (network.matcher for network in trainer.networks)
    alone = trainer.linear[0].matcher.state_dict()
    assert all(torch.equal(alone[name], matcher.state_dict()[name]) for matcher in (one, other) for name in alone)
    dev = evaluate([one], trainer.job.features, trainer.job.pairs, "dev")["network_0"]["rsum"]
    assert dev == trainer.position.best_rsum > max(line["dev"]["rsum"] for line in trainer.log)


def test_the_networks_start_at_random_and_are_kept_where_they_are_better(tmp_path):
    trainer, alone = trainer_of(tmp_path / "bad", good=False), make_job(tmp_path / "alone", "crossfit", **FAST)
    trainer.run()
    without = Trainer(alone)
    without.run()
    assert trainer.position.best_epoch == without.position.best_epoch >= 0
    pairs = zip(trainer.networks, without.networks, strict=True)
    states = [(one.state_dict(), other.state_dict()) for one, other in pairs]
    assert all(torch.equal(one[name], other[name]) for one, other in states for name in one)


@pytest.mark.parametrize("method", ["crossfit", "sift"])
def test_a_run_cut_short_ends_with_the_same_weights(tmp_path, method):
    options = {"epochs": {"warmup": 0, "train": 2, "taught": 2}} if method == "sift" else FAST

    class Cut(Trainer):
        def _finish(self, epoch, *rest):
            super()._finish(epoch, *rest)
            if epoch == 1:
                raise KeyboardInterrupt

    straight = trainer_of(tmp_path / "straight", method=method, **options)
    straight.run()
    whole = trainer_of(tmp_path / "cut", method=method, **options)
    with pytest.raises(KeyboardInterrupt):
        Cut(whole.job).run()
    again = Trainer(whole.job)
    again.run(resume=True)
    end, resumed = (load_file(tmp_path / name / CHECKPOINT) for name in ("straight", "cut"))
    assert end.keys() == resumed.keys() and all(torch.equal(end[name], resumed[name]) for name in end)
    assert again.position.best_epoch == straight.position.best_epoch
    assert again.position.best_rsum == straight.position.best_rsum


def test_without_dev_the_last_epoch_is_kept(tmp_path):
    trainer = trainer_of(tmp_path)
    split = trainer.job.pairs.split.copy()
    split[split == "dev"] = "test"
    trainer = Trainer(replace(trainer.job, pairs=replace(trainer.job.pairs, split=split)))
    trainer.run()
    assert trainer.position.best_epoch == 2


@pytest.mark.parametrize(("good", "teachers"), [(True, 1), (False, 2)])
def test_it_teaches_where_it_is_better_than_the_networks(tmp_path, good, teachers):
    trainer = trainer_of(tmp_path, good, 1e-7 if good else 3e-3, "sift", epochs={"warmup": 0, "train": 2, "taught": 1})
    trainer.run()
    assert len(trainer.teachers) == teachers
    assert (trainer.teachers[0].matcher is trainer.linear[0].matcher) is good
    assert trainer.log[-1]["loss"]["network_0"]["teaching"] > 0
