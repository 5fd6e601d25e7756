"""Suspects that nobody mended stay suspects, and decisions on captions that have changed are cleared."""

import os
import shutil
import time

import numpy as np
import pytest
from test_changed_source import edit, moved  # noqa: F401

import pairsift
from pairsift.audit import Decision
from pairsift.cli import main
from pairsift.runs.mending import LAPSED, MENDED, Mending, mending
from pairsift.trust.heldout import Belief


def belief_of(probability, **more):
    n = len(probability)
    facts = {"rate": 0.0, "low": 0.0, "high": 0.04, "auroc": 0.95, "fold": np.zeros(n, np.int64), **more}
    return Belief(np.asarray(probability, float), **facts)


def test_suspects_that_are_as_they_were_keep_the_lower_probability_and_the_rate_follows():
    probability, ids = np.full(200, 0.99), np.arange(0, 400, 2)
    probability[7] = 0.1
    kept = Mending(3, np.array([10, 14]), np.array([0.2, 0.3]), np.zeros(0, np.int64))
    found = kept.applied(belief_of(probability), ids, np.arange(200) < 100)
    assert found.probability[[5, 7]].tolist() == [0.2, 0.1]
    assert np.delete(found.probability, [5, 7]).tolist() == [0.99] * 198
    assert found.rate == pytest.approx((98 * 0.01 + 0.8 + 0.9) / 100) and (found.low, found.high) == (0, 0.04)
    high = kept.applied(belief_of(probability, rate=0.3, high=0.4), ids, np.arange(200) < 100)
    assert (high.rate, high.high) == (0.3, 0.4)
    none = Mending(0, np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))
    given = belief_of(probability)
    assert none.applied(given, ids, np.ones(200, bool)) is given
    weak = belief_of(probability, auroc=0.6)
    assert kept.applied(weak, ids, np.ones(200, bool)) is weak


def test_mending_the_worst_suspects_clears_no_other(run, moved, capsys):  # noqa: F811
    folder, data = moved
    names, true = run.prepared.pairs.names, run.prepared.pairs.true_image_of
    suspects = run.suspects().to_pylist()
    mended = [row for row in suspects if row["suggested_caption"]]
    mended = [row for row in mended if names[true[row["suggested_from_pair"]]] == row["image"]][:3]
    left = [row["pair"] for row in suspects if row["pair"] not in {one["pair"] for one in mended}]
    opened = pairsift.open_run(folder, source=data, progress=False)
    assert not {MENDED, LAPSED} & set(opened.metrics)
    opened.decisions().decide([Decision(mended[0]["pair"], "drop"), Decision(left[0], "drop")], "ana")

    def change(rows):
        for row in mended:
            rows[row["pair"]][1] = row["suggested_caption"]
        return rows

    edit(data, change)
    assert main(["audit", str(folder), "--source", str(data)]) == 0
    out = capsys.readouterr().out
    assert "1 decision was on a caption that has changed since, and is cleared" in out
    assert "3 suspects were mended or removed since the fit" in out
    opened = pairsift.open_run(folder, source=data, progress=False)
    table = {row["pair"]: row for row in opened.pairs().to_pylist()}
    before = {row["pair"]: row["match_probability"] for row in suspects}
    assert all(table[pair]["is_mismatch"] and table[pair]["match_probability"] <= before[pair] for pair in left)
    assert (opened.metrics[MENDED], opened.metrics[LAPSED]) == (3, 1)
    assert [(row["pair"], row["decision"]) for row in opened.decisions().table().to_pylist()] == [(left[0], "drop")]
    opened.audit()  # once more, with nothing mended in between
    assert set(left) <= set(opened.suspects()["pair"].to_pylist())
    assert opened.metrics[MENDED] == 3 and LAPSED not in opened.metrics
    assert opened.decisions().undo("pairsift audit") == [mended[0]["pair"]]


def test_an_image_that_was_replaced_is_judged_anew_and_copies_are_not(run, moved):  # noqa: F811
    folder, data = moved
    first, second, third = (row["pair"] for row in run.suspects().to_pylist()[:3])

    def change(rows):
        rows[first][1] = "a new caption"
        return rows

    edit(data, change)
    opened = pairsift.open_run(folder, source=data, progress=False)
    pairs = opened.prepared.pairs
    later = time.time() + 100
    image = pairs.paths[pairs.image_of[second]]
    os.utime(image, (later, later))
    found = mending(folder, pairs, opened.metrics)
    own = np.flatnonzero(pairs.image_of == pairs.image_of[second])
    assert not np.isin(own, found.left).any() and third in found.left.tolist() and found.suspects == 1
    assert found.captions.tolist() == [first]
    for path in pairs.paths:
        os.utime(path, (later, later))
    copied = mending(folder, pairs, opened.metrics)
    assert {second, third} <= set(copied.left.tolist()) and len(copied.left) == len(run.suspects()) - 1


def test_nothing_was_mended_where_nothing_was_judged(run, tmp_path):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    assert mending(folder, run.prepared.pairs, run.metrics).suspects == 0
    assert not len(mending(folder, run.prepared.pairs, run.metrics).left)
    (folder / "pairs.parquet").unlink()
    assert mending(folder, run.prepared.pairs, {}).facts(folder, run.prepared.pairs.ids()) == {}
