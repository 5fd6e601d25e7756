"""Rows measured side by side are those of whole fits, and their columns what they say."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import side_by_side
from pairsift.bench.measure import own_caption, trust_auroc
from pairsift.loss.ranking import InfoNCE
from pairsift.methods import GSC, NCR, PC2, Plain
from pairsift.pairs.pairs import Pairs
from pairsift.runs.belief import Believer, of_training
from pairsift.runs.config import from_tree
from pairsift.runs.fit import fit_config
from pairsift.runs.prepare import prepare
from pairsift.scenes import write_scenes
from pairsift.steps import Setting

IMAGE_OF = np.array([0, 0, 1, 1, 2, 2])
TRUE = np.array([0, 1, 1, 1, 0, 2])
EPOCHS = {
    "plain": {"warmup": 1, "train": 1},
    "pc2": {"warmup": 1, "clean": 1, "all": 1},
    "mscn": {"warmup": 1, "train": 1},  # needs verified pairs
}


def begun(method, matched=TRUE == IMAGE_OF):
    method = method.begin(Setting(np.arange(6), IMAGE_OF, 3, matched, InfoNCE(), 0, method.networks))
    return method


def naive_auroc(trust, matched):
    """The share of (matching, mismatched) couples in which the matching pair is believed more; half for a tie."""
    wins = [(a > b) + 0.5 * (a == b) for a in trust[matched] for b in trust[~matched]]
    return sum(wins) / len(wins)


def test_the_auroc_is_of_the_methods_own_trust():
    matched, rng = TRUE == IMAGE_OF, np.random.default_rng(0)
    divided, labelled = begun(NCR()), begun(GSC())
    divided.division.state["clean_probability"][:] = rng.random((2, 6))
    mean = divided.division.state["clean_probability"].mean(0)
    assert trust_auroc(divided) == pytest.approx(naive_auroc(mean, matched))
    for name in ("cross_modal", "intra_modal"):
        labelled.indicators.state[name][:] = rng.random((2, 6))
    least = np.minimum(labelled.indicators.state["cross_modal"], labelled.indicators.state["intra_modal"]).mean(0)
    assert trust_auroc(labelled) == pytest.approx(naive_auroc(least, matched))
    assert trust_auroc(begun(Plain())) is None
    assert trust_auroc(begun(NCR(), np.ones(6, bool))) is None


def test_own_captions_are_counted_by_the_image_that_they_truly_belong_to():
    method = begun(PC2(captions={"search": "epoch"}))
    method.division.state["clean_probability"][:] = [1, 0, 1, 1, 0, 1]  # pairs 1 and 4 are noisy for both networks
    method.captions.state["pseudo_caption"][0, [1, 4]] = [0, 5]  # captions of the images 0 and 2: both their own
    method.captions.state["pseudo_caption"][1, [1, 4]] = [2, 5]
    names = [f"{i}.jpg" for i in range(3)]
    split = np.full(6, "train")
    pairs = Pairs("made", names, [Path(n) for n in names], list("abcdef"), IMAGE_OF, split, true_image_of=TRUE)
    assert own_caption(method, pairs) == pytest.approx(3 / 4)
    assert own_caption(begun(PC2()), pairs) is None


def test_a_row_is_what_a_whole_fit_gives(tmp_path, monkeypatch):
    monkeypatch.setattr(side_by_side, "VERIFIED", 5)
    write_scenes(tmp_path / "scenes", 60, 1)
    common = {"matcher": "two_tower", "division.loss": "infonce", "noise": 0.4, "seed": 1, "images": None}
    wanted = [common | {"method": method} for method in EPOCHS]

    def typed(row):
        return row["method"], [f"{row['method']}.epochs.{name}={n}" for name, n in EPOCHS[row["method"]].items()]

    cache = tmp_path / "cache"
    rows = list(side_by_side.measured(tmp_path / "scenes", cache, wanted, typed, "wordllama"))
    assert [row["method"] for row in rows] == list(EPOCHS) and len({row["rsum"] for row in rows}) == 3
    options = {"source": str(tmp_path / "scenes"), "out": str(tmp_path / "run"), "cache": str(cache), "noise": 0.4}
    options |= {"text_encoder": "wordllama", "noise_seed": 1, "seed": 1, "division.loss": "infonce"}
    run = fit_config(from_tree({**options, "method": "pc2", "pc2": {"epochs": EPOCHS["pc2"]}}), progress=False)
    assert run.metrics["test"]["ensemble"] == rows[1]["recall"]
    best = {"epoch": rows[1]["best_epoch"], "dev_rsum": rows[1]["dev_rsum"], "model": "networks"}
    assert run.metrics["best"] == best
    assert run.metrics["noise"]["index_hash"] == rows[1]["index_hash"]
    known = Believer(of_training(run.prepared), run.folder, run.config, False).judge()  # what it was trained by
    assert known.rate == pytest.approx(rows[1]["estimated_rate"], abs=1e-6)


def test_a_share_of_the_training_pairs_is_declared_and_those_that_moved_do_not_count(tmp_path):
    write_scenes(tmp_path / "scenes", 300, 1)
    options = {"source": str(tmp_path / "scenes"), "out": str(tmp_path / "run"), "noise": 0.4, "noise_seed": 1}
    prepared = side_by_side.with_verified(prepare(from_tree(options), tmp_path, progress=False))
    pairs = prepared.pairs
    train, verified = pairs.ids("train"), pairs.verified_ids()
    assert 0 < len(verified) < len(train) / 60
    assert set(verified) == set(train[::60]) - set(np.flatnonzero(pairs.mismatched()))
