"""Intervals of the detection against a naive loop that copies the pairs of every drawn image."""

import numpy as np
import pyarrow as pa
import pytest

from pairsift.retrieve.bootstrap import draw_images
from pairsift.runs.compare import detection_intervals
from pairsift.table import detection

N, SAMPLES = 60, 50


@pytest.fixture
def table():
    rng = np.random.default_rng(4)
    truth = rng.random(N) < 0.4
    probability = np.round(np.clip(np.where(truth, 0.35, 0.65) + rng.normal(0, 0.25, N), 0, 1), 1)  # with ties
    return pa.table(
        {
            "image": [f"{number:03}.jpg" for number in rng.integers(0, 15, N)],
            "split": ["test"] * 6 + ["train"] * (N - 6),
            "match_probability": probability,
            "is_mismatch": probability < 0.5,
            "verdict": np.where(probability < 0.5, "mismatched", "clean"),
            "truly_mismatched": truth,
        }
    )


def test_intervals_are_quantiles_over_copied_pairs(table):
    train = table.slice(6)
    names = sorted(set(train["image"].to_pylist()))
    scores = []
    for drawn in draw_images(len(names), SAMPLES):
        rows = [
            row
            for name, count in zip(names, drawn, strict=True)
            for _ in range(count)
            for row, image in enumerate(train["image"].to_pylist())
            if image == name
        ]
        scores.append(detection(train.take(rows)))
    for name, found in detection_intervals(table, SAMPLES).items():
        expected = np.quantile([one[name] for one in scores], [0.025, 0.975])
        assert found.value == pytest.approx(detection(table)[name])
        assert [found.low, found.high] == pytest.approx(expected.tolist())


def test_only_what_is_defined_has_an_interval(table):
    assert set(detection_intervals(table, 5)) == {"auroc", "precision", "recall"}
    assert detection_intervals(table.drop_columns(["truly_mismatched"]), 5) == {}
    unknown = table.set_column(4, "verdict", pa.array(["unknown"] * N))
    unknown = unknown.set_column(3, "is_mismatch", pa.array([False] * N))
    assert set(detection_intervals(unknown, 5)) == {"auroc"}


def test_resamples_without_a_flagged_pair_do_not_count(table):
    flag = np.zeros(N, np.bool_)
    flag[np.flatnonzero(table["truly_mismatched"].to_numpy())[-1]] = True
    rare = table.set_column(3, "is_mismatch", pa.array(flag))
    one = detection_intervals(rare, SAMPLES)["precision"]
    assert (one.value, one.low, one.high) == (1.0, 1.0, 1.0)
