"""Calibration against loops, and what the report says of it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from report_helpers import Page, judged, make, metrics, section, write

from pairsift.report.reliability import reliability


def drawn(n=2000):
    rng = np.random.default_rng(4)
    probability = np.concatenate([rng.random(n) ** 3, np.arange(11) / 10, [0.3, 0.7]])
    return probability, rng.random(len(probability)) < probability**1.3


def naive_bins(probability, matching, bins=10):
    for k in range(bins):
        inside = [
            (p, m)
            for p, m in zip(probability.tolist(), matching.tolist(), strict=True)
            if k / bins <= p < (k + 1) / bins or (k == bins - 1 and p == 1)
        ]
        if inside:
            yield sum(p for p, _ in inside) / len(inside), sum(m for _, m in inside) / len(inside), len(inside)


def test_bins_are_those_of_a_loop():
    probability, matching = drawn()
    found = reliability(probability, matching)
    expected = list(naive_bins(probability, matching))
    assert found.pairs.tolist() == [n for _, _, n in expected] and found.pairs.sum() == len(probability)
    np.testing.assert_allclose(found.mean, [mean for mean, _, _ in expected])
    np.testing.assert_allclose(found.share, [share for _, share, _ in expected])
    error = sum(n * abs(mean - share) for mean, share, n in expected) / len(probability)
    assert found.error == pytest.approx(error)


def test_bins_without_pairs_are_left_out():
    found = reliability(np.array([0.05, 0.95, 1.0]), np.array([False, True, True]))
    np.testing.assert_allclose(found.mean, [0.05, 0.975])
    assert found.share.tolist() == [0, 1] and found.pairs.tolist() == [1, 2]
    assert found.error == pytest.approx((0.05 + 2 * 0.025) / 3)


def test_the_order_of_pairs_does_not_matter():
    probability, matching = drawn()
    order = np.random.default_rng(0).permutation(len(probability))
    first, other = reliability(probability, matching), reliability(probability[order], matching[order])
    assert first.error == pytest.approx(other.error, abs=1e-12) and first.pairs.tolist() == other.pairs.tolist()


def test_a_published_interval():
    found = reliability(np.full(263, 0.5), np.arange(263) < 81)  # Newcombe, Statistics in Medicine 1998, Table I
    assert [round(end.item(), 4) for end in (found.low, found.high)] == [0.2553, 0.3662]


def facts(source):
    return dict(re.findall(r"<div><dt>([^<]*)</dt><dd>([^<]*)</dd></div>", section(source, "How many to drop")))


def test_the_report_measures_the_training_pairs(tmp_path, folder):
    pairs, _ = make(folder)
    pairs = replace(pairs, split=np.array(["train"] * 70 + ["dev"] * 30))
    probability = np.clip(np.random.default_rng(3).random(100), 0, 1)
    source = write(tmp_path, *judged(pairs, probability))
    matching = ~pairs.mismatched()
    error = sum(n * abs(mean - share) for mean, share, n in naive_bins(probability[:70], matching[:70])) / 70
    assert facts(source) == {"Expected calibration error": f"{error:.3f}", "Training pairs": "70"}
    assert 'id="reliability-' in source


def cells(source):
    rows = re.findall(r"<tr[^>]*>(<th scope=\"row\">.*?)</tr>", section(source, "How many to drop"))
    return [re.sub(r"<small>.*?</small>|<[^>]+>", " ", row).split() for row in rows]


def test_thresholds_count_what_goes_and_what_is_good(tmp_path, folder):
    pairs, table = make(folder)
    rows = list(zip(table["match_probability"].to_pylist(), table["truly_mismatched"].to_pylist(), strict=True))
    expected = []
    for threshold in (0.1, 0.2, 0.3, 0.5, 0.7, 0.9):
        gone = [(p, wrong) for p, wrong in rows if p < threshold]
        good, true = sum(p for p, _ in gone), sum(not wrong for _, wrong in gone)
        expected.append([str(threshold), str(len(gone)), f"{len(gone) - good:.0f}", f"{good:.0f}", str(true)])
    assert cells(write(tmp_path, pairs, table)) == expected
    known = table.drop_columns(["truly_mismatched", "true_image"])
    unknown = write(tmp_path, replace(pairs, true_image_of=None, noise=None), known)
    assert cells(unknown) == [row[:-1] for row in expected]


def test_without_the_truth_no_diagram_is_drawn(tmp_path, folder):
    pairs, table = make(folder, truth=False)
    source = write(tmp_path, pairs, table, {})
    assert "calibration cannot be measured without a spot check" in " ".join(Page(source).texts)
    assert 'id="reliability-' not in source and "calibration error" not in source
    checked = write(tmp_path, pairs, table, {"spot_check": {"answered": 50, "mismatched": 11}})
    assert "recalibrated by a spot check: 50 of its pairs were judged, and 11 of these do not match." in checked


def test_a_ranking_says_that_its_counts_are_not_calibrated(tmp_path, folder):
    pairs, table = make(folder)
    source = write(tmp_path, pairs, table, {**metrics(table), "verdicts_given": False})
    assert "They are not calibrated." in section(source, "How many to drop")
    assert "They are not calibrated." not in write(tmp_path, pairs, table, metrics(table))
    assert "How many to drop" not in write(tmp_path, pairs, table.slice(0, 0))
