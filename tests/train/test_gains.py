"""Methods on pairs of which three in five are mismatched: what they are worth beside plain training."""

from dataclasses import replace

import pytest
from train_helpers import make_job

from pairsift.train.loop import Trainer

pytestmark = pytest.mark.slow

SEEDS = (1, 2, 3)
PLAIN = {"epochs": {"warmup": 0, "train": 10}}
# Options with ten epochs, and by how much the best dev rSum shall be above that of plain, on average over the seeds.
GAINS = {
    "rcl": ({**PLAIN, "tau": 0.1}, 10.0),
    "rince": ({**PLAIN, "tau": 0.1, "density": 0.0}, 5.0),
    "crcl": ({"epochs": {"first": 4, "second": 0, "third": 0, "last": 6}, "tau": 0.1}, 20.0),
    "bicro": ({"epochs": {"warmup": 2, "clean": 4, "all": 4}, "warmup_share": 1.0}, 5.0),
    "cream": ({"epochs": {"warmup": 2, "clean": 3, "hard": 1, "all": 4}}, 5.0),
    "l2rm": ({"epochs": {"warmup": 2, "train": 8}, "rematching": {"temperature": 0.0}}, 5.0),
}


@pytest.fixture(scope="module")
def best(tmp_path_factory):
    """Best dev rSum of a method with a seed."""

    def train(method, seed, options):
        folder = tmp_path_factory.mktemp(method)
        job = make_job(folder, method, noise=0.6, n_images=500, networks=1, **options)
        trainer = Trainer(replace(job, options=job.options.replaced(seed=seed)))
        trainer.run()
        return trainer.position.best_rsum

    return train


@pytest.fixture(scope="module")
def plain(best):
    return [best("plain", seed, PLAIN) for seed in SEEDS]


@pytest.mark.parametrize("method", GAINS)
def test_a_method_beats_plain_where_most_captions_are_wrong(best, plain, method):
    options, margin = GAINS[method]
    gains = [best(method, seed, options) - without for seed, without in zip(SEEDS, plain, strict=True)]
    assert min(gains) > 0 and sum(gains) / len(gains) > margin, gains


def test_decl_tells_matching_from_mismatched_pairs(tmp_path):
    """Its division; its short training on cosines gains nothing over plain here."""
    options = {"epochs": {"warmup": 2, "train": 8}, "division": {"block": 32, "scale": 1.0}, "dynamic": {"anneal": 0.1}}
    trainer = Trainer(make_job(tmp_path, "decl", noise=0.6, n_images=500, networks=1, **options))
    trainer.run()
    assert trainer.log[-1]["discrimination"] > 0.85
    assert abs(trainer.log[-1]["noise_rate"] - 0.6) < 0.1
