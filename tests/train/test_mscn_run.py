"""MSCN in the loop: it tells matching from mismatched pairs, and a run cut short ends with the same weights."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from train_helpers import make_job

from pairsift.train.loop import CHECKPOINT, Trainer

OPTIONS = {"epochs": {"warmup": 2, "train": 5}, "meta": {"groups": 8, "hidden": 16}, "networks": 1}


def test_it_tells_matching_from_mismatched_pairs_of_which_few_are_verified(tmp_path):
    trainer = Trainer(make_job(tmp_path, "mscn", noise=0.6, n_images=300, **OPTIONS))
    verified = trainer.method.setting.verified
    assert 10 < len(verified) < 0.06 * len(trainer.method.setting.ids)
    trainer.run()
    assert trainer.log[-1]["discrimination"] > 0.85
    assert abs(trainer.log[-1]["noise_rate"] - 0.6) < 0.1
    assert trainer.log[-1]["loss"]["network_0"]["meta"] < 0.9 * trainer.log[2]["loss"]["network_0"]["meta"]
    assert trainer.position.best_epoch >= 2


class CutShortError(Exception):
    pass


def test_a_run_cut_short_within_an_epoch_ends_with_the_same_weights_and_trust(tmp_path):
    def trainer(folder, dies_at=None):
        job = make_job(tmp_path / folder, "mscn", n_images=60, minutes=0, epochs={"warmup": 1, "train": 2}, networks=2)
        made = Trainer(replace(job, options=job.options.replaced(batch_size=16)))
        descend, steps = made._descend, []

        def counted(k, terms):
            if len(steps) == dies_at:
                raise CutShortError
            steps.append(k)
            descend(k, terms)

        made._descend = counted
        return made, steps

    straight, steps = trainer("straight")
    straight.run()
    dies_at = len(steps) - 3
    with pytest.raises(CutShortError):
        trainer("short", dies_at)[0].run()
    resumed, rest = trainer("short")
    resumed.run(resume=True)
    assert len(rest) == 3
    end, again = (load_file(tmp_path / folder / CHECKPOINT) for folder in ("straight", "short"))
    assert any("head.meta" in name for name in end) and "state/division.clean_probability" in end
    assert [name for name in end if not torch.equal(end[name], again[name])] == []
