"""Pairs are judged before training by models that did not see them; the folder keeps what opened runs need of it."""

import csv
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from flat_options import fit
from light_evidence import LIGHT

import pairsift
from pairsift.encode.features import Items, Table
from pairsift.errors import InputError
from pairsift.match.two_tower import TwoTower, TwoTowerOptions
from pairsift.methods import plain
from pairsift.runs import fold_networks as module
from pairsift.runs.fold_networks import FoldNetworks
from pairsift.runs.judge import Judge, of_training
from pairsift.train.loop import Trainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # whole fits, on slow cores

SHORT = {"method": "crossfit", "crossfit.networks": 1, "crossfit.epochs.train": 1, "noise": 0.4, "noise_seed": 1}
FOLDS = ["fold_0.safetensors", "fold_1.safetensors", "fold_2.safetensors"]


def stop(*args, **kwargs):
    raise KeyboardInterrupt


def trust_columns(run):
    """The columns of `trust.parquet`."""
    return pyarrow.parquet.read_table(run.folder / "trust.parquet").to_pydict()


def probabilities(table):
    """Return the match probability of each pair."""
    return dict(zip(table["pair"].to_pylist(), table["match_probability"].to_pylist(), strict=True))


@pytest.fixture(scope="module", autouse=True)
def _short_networks():
    """Let the networks on folds take as few epochs as they can."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "STEPS", 40)
        yield


@pytest.fixture(scope="module")
def options(quick):
    shared = {name: value for name, value in quick.items() if not name.startswith("pc2")}
    return {**shared, **SHORT, "threads": 1, "detect": {**LIGHT, "networks": {"min_pairs": 100}}, "batch_size": 256}


@pytest.fixture(scope="module")
def folded(place, scenes, options):
    """A run with the evidence of networks too, and what each of these learned from."""
    learned = {}

    class Watched(Trainer):
        def __init__(self, job):
            super().__init__(job)
            learned[int(job.folder.name)] = self.job.pairs.ids("train")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "Trainer", Watched)
        run = fit(scenes, {**options, "out": str(place / "folded")}, progress=False)
    return run, learned


def test_no_pair_is_judged_by_a_network_that_learned_from_it(folded):
    run, learned = folded
    known, train = trust_columns(run), set(run.prepared.pairs.ids("train").tolist())
    fold = np.full(len(run.prepared.pairs), -1)
    fold[known["pair"]] = known["fold"]
    assert sorted(learned) == [0, 1, 2]
    for number, ids in learned.items():
        held_out = {pair for pair in known["pair"] if fold[pair] == number}
        assert held_out and not held_out & set(ids.tolist())
        assert set(ids.tolist()) == train - held_out
        seen = set(run.prepared.pairs.image_of[ids].tolist())
        assert not seen & {int(run.prepared.pairs.image_of[pair]) for pair in held_out}


def test_the_weights_of_training_pairs_depend_on_no_other_pair(run, tmp_path):
    pairs = run.prepared.pairs
    image_of, rng = pairs.image_of.copy(), np.random.default_rng(0)
    others = np.setdiff1d(pairs.ids(), pairs.ids("train"))
    image_of[others] = image_of[rng.permutation(others)]
    mixed = replace(run.prepared, pairs=replace(pairs, image_of=image_of))

    def weights(prepared):
        judge = Judge(prepared, tmp_path, run.config, False)
        return judge.prior(judge.judge()).probability[pairs.ids("train")]

    assert np.array_equal(weights(of_training(run.prepared)), weights(of_training(mixed)))
    assert not np.array_equal(weights(run.prepared), weights(mixed))


def test_codes_of_a_fold_are_those_of_its_own_network():
    rng = np.random.default_rng(0)
    images, captions = (Table(rng.normal(size=(6, 5)).astype(np.float32)) for _ in range(2))
    matchers = [TwoTower(5, 5, TwoTowerOptions(dim=4, hidden=4)).eval() for _ in range(3)]
    judged = SimpleNamespace(image_of=np.array([3, 0, 1, 5]))
    told = SimpleNamespace(vectors=SimpleNamespace(images=images, captions=captions), judged=judged)
    told.ids = np.array([0, 2, 3, 5])
    for fold, matcher in enumerate(matchers):
        left, right = FoldNetworks._encoder(told, matchers, told.ids, judged.image_of)(fold, np.array([1, 3]))
        with torch.no_grad():
            expected = matcher.encode_images(Items(torch.from_numpy(images.values[[0, 5]]))).vectors
            assert torch.allclose(left, expected)
            expected = matcher.encode_texts(Items(torch.from_numpy(captions.values[[2, 5]]))).vectors
            assert torch.allclose(right, expected)


def test_scores_are_match_probabilities_of_held_out_evidence(folded, run):
    for one in (folded[0], run):
        known = trust_columns(one)
        assert known["pair"] == one.prepared.pairs.ids().tolist()
        assert probabilities(one.pairs()) == dict(zip(known["pair"], known["match_probability"], strict=True))
    assert sorted(path.name for path in (folded[0].folder / "model").glob("fold_*")) == FOLDS
    assert not list((run.folder / "model").glob("fold_*"))  # fewer pairs than networks on folds are worth
    assert folded[0].metrics["detection"]["auroc"] > 0.8


def test_networks_on_folds_that_are_there_are_not_trained_again(place, scenes, options, folded, monkeypatch):
    out, begun = place / "folds-stopped", []

    class Stopped(Trainer):
        def __init__(self, job):
            begun.append(job.folder.name)
            super().__init__(job)

        def _finish(self, *args):
            super()._finish(*args)
            if begun[-1] == "1":
                raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "Trainer", Stopped)
        fit(scenes, {**options, "out": str(out)}, progress=False)
    assert begun == ["0", "1"] and [path.name for path in (out / "model").glob("fold_*")] == FOLDS[:1]
    kept, begun[:] = (out / "model" / FOLDS[0]).read_bytes(), []
    with monkeypatch.context() as patch:
        patch.setattr(module, "Trainer", lambda job: begun.append(job.folder.name) or Trainer(job))
        again = fit(scenes, {**options, "out": str(out), "resume": True}, progress=False)
    assert begun == ["1", "2"] and (out / "model" / FOLDS[0]).read_bytes() == kept
    assert not (out / "folds").exists()
    straight, resumed = trust_columns(folded[0]), trust_columns(again)
    assert straight["fold"] == resumed["fold"]
    np.testing.assert_allclose(resumed["match_probability"], straight["match_probability"], atol=1e-4)


def test_there_are_fewer_networks_where_one_image_would_fill_a_fold(run, tmp_path, monkeypatch):
    monkeypatch.setattr(FoldNetworks, "_trained", lambda self, *args: self._matcher())
    (tmp_path / "model").mkdir()
    pairs = run.prepared.pairs
    image_of, ids = pairs.image_of.copy(), pairs.ids()
    image_of[ids[: len(ids) * 36 // 100]] = image_of[ids[0]]
    config = replace(run.config, detect=run.config.detect.changed({"networks": {"min_pairs": 100}}))
    judge = Judge(replace(run.prepared, pairs=replace(pairs, image_of=image_of)), tmp_path, config, False)
    fold = judge.judge().fold
    assert sorted(path.name for path in (tmp_path / "model").glob("fold_*")) == FOLDS[:2] and set(fold) == {0, 1}
    assert np.array_equal(judge.judge_again().fold, fold)


def test_an_opened_run_judges_by_the_networks_and_folds_that_it_keeps(folded, scenes, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "Trainer", stop)
    folder, data = tmp_path / "run", tmp_path / "data"
    shutil.copytree(folded[0].folder, folder)
    shutil.copytree(scenes, data)
    before, folds = probabilities(folded[0].pairs()), trust_columns(folded[0])["fold"]

    def audited():
        opened = pairsift.open_run(folder, source=data, progress=False)
        table = opened.audit()
        assert trust_columns(opened)["fold"] == folds
        return opened, probabilities(table)

    _, same = audited()
    np.testing.assert_allclose([same[pair] for pair in before], list(before.values()), atol=1e-5)
    text = (data / "captions.csv").read_text()
    rows = list(csv.reader(text.splitlines()))
    worst = next(row for row in folded[0].pairs().to_pylist() if row["suggested_caption"] is not None)
    rows[1 + worst["pair"]][1] = worst["suggested_caption"]
    with (data / "captions.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    opened, edited = audited()
    assert opened.prepared.changes is not None and edited[worst["pair"]] > before[worst["pair"]]
    (data / "captions.csv").write_text(text)
    _, restored = audited()
    np.testing.assert_allclose([restored[pair] for pair in before], list(before.values()), atol=1e-5)


def test_new_pairs_take_the_fold_of_their_image_and_known_ones_keep_theirs(tmp_path):
    """Pair 4 is new and of pair 3's image; 5 is new and alone; 0 and 2, of two folds, have become near-duplicates."""
    table = pa.table({"pair": [0, 1, 2, 3, 9], "fold": [0, 1, 2, 2, 1], "match_probability": [1.0] * 5})
    pyarrow.parquet.write_table(table, tmp_path / "trust.parquet")
    told = SimpleNamespace(folder=tmp_path, pairs=range(6), ids=np.arange(6), seed=0)
    told._units = lambda: (np.array([0, 1, 0, 2, 2, 3]), 3)
    fold = Judge._saved_folds(told)
    assert fold[:5].tolist() == [0, 1, 2, 2, 2] and 0 <= fold[5] < 3
    (tmp_path / "trust.parquet").write_bytes(b"no table")
    with pytest.raises(InputError, match=r"trust\.parquet: cannot be read .*; take it from a copy of the run"):
        Judge._saved_folds(told)
    (tmp_path / "trust.parquet").unlink()
    with pytest.raises(InputError, match=r"trust\.parquet: cannot be read"):
        Judge._saved_folds(told)
