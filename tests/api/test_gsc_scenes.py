"""GSC on the embedded data, most of its training captions re-pointed: what its labels are worth."""

import statistics

from pairsift.api.config import Config
from pairsift.api.prepare import matcher_factory, prepare
from pairsift.train.loop import Job, Trainer
from pairsift.train.options import TrainOptions

MARGIN = 15.0  # of dev rSum, on average


def best_on_dev(folder, source, options):
    (folder / "model").mkdir(parents=True)
    config = Config.resolve({"source": str(source), **options})
    made = prepare(config, folder, progress=False)
    parts = config.method(), config.ranking(), config.group(TrainOptions)
    trainer = Trainer(Job(made.pairs, made.features, matcher_factory(config, made), *parts, folder, progress=False))
    trainer.run()
    return trainer.at.best_rsum


def test_gsc_beats_plain_where_most_captions_are_wrong(scenes, quick, tmp_path):
    gains = []
    for seed in (1, 2, 3):
        options = {
            "cache": quick["cache"],
            "batch_size": 64,
            "device": "cpu",
            "two_tower.dim": 128,
            "two_tower.hidden": 128,
        }
        options |= {"noise": 0.6, "noise_seed": seed, "seed": seed}
        found = {
            name: best_on_dev(tmp_path / f"{name}{seed}", scenes, {**options, "method": name})
            for name in ("plain", "gsc")
        }
        gains.append(found["gsc"] - found["plain"])
    print(gains)
    assert min(gains) > 0 and statistics.mean(gains) > MARGIN, gains
