"""Steps whose products have factors in bfloat16."""

import pytest
import torch
from train_helpers import make_job

from pairsift.match import MATCHERS
from pairsift.match.two_tower import TwoTower
from pairsift.train import precision
from pairsift.train.loop import Trainer
from pairsift.train.options import TrainOptions
from pairsift.train.precision import fast_products, takes_fast_products

PRODUCTS = torch.backends.mkldnn.matmul
CPU = torch.device("cpu")


@pytest.mark.parametrize("pays", [False, True])
def test_auto_takes_them_on_a_cpu_alone(monkeypatch, pays):
    monkeypatch.setattr(precision, "bfloat16_pays", lambda: pays)
    assert {name for name, kind in MATCHERS.items() if takes_fast_products(CPU, TrainOptions(), kind)} == (
        {"two_tower"} if pays else set()
    )
    assert not takes_fast_products(torch.device("cuda"), TrainOptions(), TwoTower)
    assert not any(takes_fast_products(CPU, TrainOptions(precision=name), TwoTower) for name in ("fp32", "bf16"))


def test_steps_take_them_and_recall_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "bfloat16_pays", lambda: True)
    trainer = Trainer(make_job(tmp_path, "plain", epochs={"warmup": 0, "train": 1}))
    seen = []
    matcher = type(trainer.networks[0].matcher)
    encode = matcher.encode_images

    def noted(self, items):
        seen.append((self.training, PRODUCTS.fp32_precision))
        return encode(self, items)

    monkeypatch.setattr(matcher, "encode_images", noted)
    trainer.run()
    assert set(seen) == {(True, "bf16"), (False, "none")}


def test_a_resumed_run_goes_on_in_the_precision_of_its_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "bfloat16_pays", lambda: True)
    job = make_job(tmp_path, "plain", epochs={"warmup": 0, "train": 1})
    Trainer(job).run()
    monkeypatch.setattr(precision, "bfloat16_pays", lambda: False)
    resumed = Trainer(job)
    assert not resumed.fast_products
    resumed.run(resume=True)
    assert resumed.fast_products


def test_the_context_ends_with_an_error():
    with pytest.raises(RuntimeError, match="within"), fast_products(True):
        assert PRODUCTS.fp32_precision == "bf16"
        raise RuntimeError("within")
    assert PRODUCTS.fp32_precision == "none"
