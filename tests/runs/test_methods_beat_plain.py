"""Methods on the embedded data, most of its training captions re-pointed: what they are worth."""

import statistics

import pytest
from flat_options import configured

from pairsift.runs.prepare import matcher_factory, prepare
from pairsift.scenes import write_scenes
from pairsift.train.loop import Job, Trainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # whole fits, on slow cores

MARGINS = {"pc2": 10.0, "gsc": 20.0}  # of dev rSum, on average over two seeds
SEEDS = (1, 2)
EPOCHS = {"plain": {"plain.epochs.train": 7}}  # as many in all as the others have


@pytest.fixture(scope="module")
def best(tmp_path_factory):
    """Best dev rSum of a method and a seed."""
    place = tmp_path_factory.mktemp("beat")
    write_scenes(place / "scenes", 300, 2)
    options = {"source": str(place / "scenes"), "cache": str(place / "cache"), "batch_size": 128, "device": "cpu"}
    options |= {"two_tower.dim": 128, "two_tower.hidden": 128, "noise": 0.6}

    def train(method, seed):
        folder = place / f"{method}{seed}"
        (folder / "model").mkdir(parents=True)
        config = configured({**options, "method": method, "noise_seed": seed, "seed": seed, **EPOCHS.get(method, {})})
        made = prepare(config, folder, progress=False)
        parts = config.method, config.loss, config.train
        trainer = Trainer(Job(made.pairs, made.features, matcher_factory(config, made), *parts, folder, progress=False))
        trainer.run()
        return trainer.position.best_rsum

    return train


@pytest.fixture(scope="module")
def plain(best):
    return [best("plain", seed) for seed in SEEDS]


@pytest.mark.parametrize(("method", "margin"), MARGINS.items())
def test_a_method_beats_plain_where_most_captions_are_wrong(best, plain, method, margin):
    gains = [best(method, seed) - without for seed, without in zip(SEEDS, plain, strict=True)]
    assert min(gains) > margin / 2 and statistics.mean(gains) > margin, gains
