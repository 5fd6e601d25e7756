"""Suspects that nobody mended stay suspects, and decisions on captions that have changed are cleared."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from test_changed_source import edit, moved  # noqa: F401

import pairsift
from pairsift.cli import main
from pairsift.detect.judgement import Judgement
from pairsift.review import Decision
from pairsift.runs.source_changes import (
    FIRST,
    LAPSED,
    MENDED,
    MendedSuspects,
    clear_lapsed_decisions,
    mended_suspects,
)

pytestmark = pytest.mark.slow


def judgement_of(probability, **more):
    n = len(probability)
    facts = {"rate": 0.0, "low": 0.0, "high": 0.04, "auroc": 0.95, "fold": np.zeros(n, np.int64), **more}
    return Judgement(np.asarray(probability, float), **facts)


def test_suspects_that_are_as_they_were_keep_the_lower_probability_and_the_rate_follows():
    probability, ids = np.full(200, 0.99), np.arange(0, 400, 2)
    probability[7] = 0.1
    kept = MendedSuspects(3, np.array([10, 14]), np.array([0.2, 0.3]))
    found = kept.applied(judgement_of(probability), ids, np.arange(200) < 100)
    assert found.probability[[5, 7]].tolist() == [0.2, 0.1]
    assert np.delete(found.probability, [5, 7]).tolist() == [0.99] * 198
    assert found.rate == pytest.approx((98 * 0.01 + 0.8 + 0.9) / 100) and (found.low, found.high) == (0, 0.04)
    high = kept.applied(judgement_of(probability, rate=0.3, high=0.4), ids, np.arange(200) < 100)
    assert (high.rate, high.high) == (0.3, 0.4)
    none = MendedSuspects(0, np.zeros(0, np.int64), np.zeros(0))
    given = judgement_of(probability)
    assert none.applied(given, ids, np.ones(200, bool)) is given
    doubtful = kept.applied(judgement_of(np.full(200, 0.05), rate=0.1, high=0.2), ids, np.ones(200, bool))
    assert doubtful.verdicts and (doubtful.rate, doubtful.high) == (0.1, 0.2)  # 95% would leave no verdicts
    weak = judgement_of(probability, auroc=0.6)
    assert kept.applied(weak, ids, np.ones(200, bool)) is weak


def test_mending_the_worst_suspects_clears_no_other(run, moved, capsys):  # noqa: F811
    folder, data = moved
    names, true = run.prepared.pairs.names, run.prepared.pairs.true_image_of
    suspects = run.suspects().to_pylist()
    mended = [row for row in suspects if row["suggested_caption"]]
    mended = [row for row in mended if names[true[row["suggested_from_pair"]]] == row["image"]]
    mended = list({true[row["pair"]]: row for row in reversed(mended)}.values())[-3:]  # one caption of an image
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
    assert "cleared 1 decision on captions that have changed since" in out
    assert "3 suspects were mended or removed." in out
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


def test_an_image_that_was_replaced_is_mended_whatever_its_time_and_a_copy_is_not(run, moved):  # noqa: F811
    folder, data = moved
    first, second, third = (row["pair"] for row in run.suspects().to_pylist()[:3])
    opened = pairsift.open_run(folder, source=data, progress=False)
    pairs = opened.prepared.pairs
    assert mended_suspects(folder, pairs).count == 0  # the copied images are the same
    image, other = (pairs.paths[pairs.image_of[pair]] for pair in (second, third))
    shutil.copy2(other, image)
    found = mended_suspects(folder, pairs)
    own = np.flatnonzero(pairs.image_of == pairs.image_of[second])
    assert not np.isin(own, found.left).any() and {first, third} <= set(found.left.tolist())
    assert found.count == len(run.suspects()) - len(found.left)
    opened.decisions().decide([Decision(first, "keep")])
    assert first not in mended_suspects(folder, pairs).left.tolist()


def test_a_pair_that_cannot_be_used_now_is_not_mended_and_comes_back_as_it_was(run, moved):  # noqa: F811
    folder, data = moved
    first, second = (row["pair"] for row in run.suspects().to_pylist()[:2])

    def change(rows):
        rows[first][1] = "a new caption"
        return rows

    edit(data, change)
    pairs = pairsift.open_run(folder, source=data, progress=False).prepared.pairs
    split = pairs.split.copy()
    split[second] = "skipped"
    away = mended_suspects(folder, replace(pairs, split=split))
    assert away.count == 1 and second not in away.left.tolist()
    back = mended_suspects(folder, pairs)
    assert back.count == 1 and second in back.left.tolist()


def test_recalibrated_probabilities_are_not_kept(run, moved):  # noqa: F811
    folder, data = moved
    before = {row["pair"]: row["match_probability"] for row in run.suspects().to_pylist()}
    opened = pairsift.open_run(folder, source=data, progress=False)
    decisions, check = opened.decisions(), opened.spot_check(40)
    decisions.decide([Decision(pair, "drop") for pair in check.pairs])
    opened.recalibrate()
    assert len(opened.suspects()) > len(before)
    mended = next(pair for pair in before if pair not in check.pairs)

    def change(rows):
        rows[mended][1] = "a new caption"
        return rows

    edit(data, change)
    opened = pairsift.open_run(folder, source=data, progress=False)
    found = mended_suspects(folder, opened.prepared.pairs)
    assert set(found.left.tolist()) == set(before) - {mended}
    assert found.probability.tolist() == [before[pair] for pair in found.left.tolist()]
    opened.audit()
    assert opened.metrics["verdicts_given"] and set(before) - {mended} <= set(opened.suspects()["pair"].to_pylist())


def test_nothing_was_mended_where_nothing_was_judged(run, tmp_path):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    assert mended_suspects(folder, run.prepared.pairs).count == 0
    assert not len(mended_suspects(folder, run.prepared.pairs).left)
    for name in ("pairs.parquet", FIRST):
        (folder / name).unlink()
    assert mended_suspects(folder, run.prepared.pairs).count == clear_lapsed_decisions(folder, run.prepared.pairs) == 0
