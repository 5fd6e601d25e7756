"""The table is a contract: columns, order, flags, and the numbers taken from it."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from pairsift.errors import WriteError
from pairsift.pairs.pairs import Pairs
from pairsift.spreadsheet import harmless, harmless_table
from pairsift.table import detection, detector_scores, pair_table, verdict_names, write_division, write_tables

BASE = [
    "pair",
    "image",
    "given_caption",
    "split",
    "match_probability",
    "is_mismatch",
    "verdict",
    "suggested_caption",
    "suggested_from_pair",
]


def pairs(n=6, truth=True, columns=None):
    image_of = np.arange(n) // 2
    return Pairs(
        source="captions.csv",
        names=[f"{row}.jpg" for row in range(n // 2)],
        paths=[Path(f"{row}.jpg") for row in range(n // 2)],
        captions=[f"caption {one}" for one in range(n)],
        image_of=image_of[::-1].copy() if truth else image_of,
        split=np.array(["train"] * (n - 2) + ["dev", "test"]),
        columns=columns or {},
        true_image_of=image_of if truth else None,
    )


def table(given, score, flag=None, suggested=None, **more):
    n = len(score)
    flag = np.array(score) < 0.5 if flag is None else np.array(flag, dtype=bool)
    verdict = ["mismatched" if one else "clean" for one in flag]
    suggested = np.full(n, -1) if suggested is None else np.array(suggested)
    return pair_table(given, np.arange(n), np.array(score), flag, verdict, suggested, **more)


def test_columns_rows_and_order():
    found = table(pairs(), [0.9, 0.2, 0.5, 0.2, 0.1, 1], suggested=[-1, 3, -1, 0, -1, -1])
    assert found.column_names == [*BASE, "true_image", "truly_mismatched"]
    assert found["pair"].to_pylist() == [4, 1, 3, 2, 0, 5]
    assert found.to_pylist()[1] == {
        "pair": 1,
        "image": "2.jpg",
        "given_caption": "caption 1",
        "split": "train",
        "match_probability": 0.2,
        "is_mismatch": True,
        "verdict": "mismatched",
        "suggested_caption": "caption 3",
        "suggested_from_pair": 3,
        "true_image": "0.jpg",
        "truly_mismatched": True,
    }
    assert found["suggested_caption"].null_count == found["suggested_from_pair"].null_count == 4
    assert found["truly_mismatched"].to_pylist() == [True, True, False, False, True, True]


def test_without_the_truth_the_columns_are_the_same_but_two():
    found = table(pairs(truth=False), [0.5] * 6)
    assert found.column_names == BASE
    assert found["pair"].to_pylist() == list(range(6))


def test_a_subset_in_any_order_keeps_its_ids():
    ids = np.array([5, 2, 3])
    found = pair_table(pairs(), ids, np.array([0.3, 0.2, 0.1]), ids > 2, ["a", "b", "c"], ids - 6)
    assert found["pair"].to_pylist() == [3, 2, 5]
    assert found["verdict"].to_pylist() == ["c", "b", "a"]
    assert found["given_caption"].to_pylist() == ["caption 3", "caption 2", "caption 5"]


def test_own_columns_keep_their_names_unless_taken():
    own = {"price": list("abcdef"), "image": list("ghijkl"), "image_given": list("mnopqr"), "trust": ["x"] * 6}
    found = table(pairs(columns=own), np.linspace(0, 1, 6), extra={"trust": [6, 5, 4, 3, 2, 1]})
    assert found.column_names[9:] == [
        *("true_image", "truly_mismatched", "trust"),
        *("price", "image_given_given", "image_given", "trust_given"),
    ]
    assert found["trust"].to_pylist() == [6, 5, 4, 3, 2, 1]
    assert found["image_given_given"].to_pylist() == list("ghijkl")


def test_without_verdicts_every_word_is_unknown(tmp_path):
    flag = np.zeros(3, bool)
    write_division(np.arange(3), ["refinable", "clean", "ambiguous"], tmp_path)
    assert verdict_names(np.arange(3), flag, flag, tmp_path, has_verdicts=False) == ["unknown"] * 3
    assert verdict_names(np.arange(3), flag, flag, tmp_path) == ["clean"] * 3


def test_files_hold_all_rows_and_the_flagged_ones(tmp_path):
    given = pairs()
    given.captions[1] = '=SUM(A1) "quoted", \n é'
    given.captions[2] = "broken \udcff name"
    found = table(given, [0.9, 0.2, 0.5, 0.2, 0.1, 1])
    write_tables(found, tmp_path / "run")
    write_tables(found, tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["pairs.parquet", "suspects.csv"]
    assert pyarrow.parquet.read_table(tmp_path / "run" / "pairs.parquet").equals(found)
    with (tmp_path / "run" / "suspects.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == found.column_names
    assert [row["pair"] for row in rows] == ["4", "1", "3"]
    assert rows[1]["given_caption"] == "'" + given.captions[1]
    assert found["given_caption"].to_pylist()[3] == "broken \ufffd name"


FORMULAS = ["=1+2", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "+49 30 123", "- a dash"]
FIGURES = ["-3.5", "+7", "-.5", "-1e-3", "=", "a=b", "'=1", ""]


def test_formulas_are_text_in_the_csv_and_untouched_in_parquet(tmp_path):
    given = pairs(16, truth=False, columns={"note": [*FORMULAS, *FIGURES], "=name": ["x"] * 16})
    given = replace(given, captions=[f"{text} caption" for text in [*FORMULAS, *FIGURES]])
    write_tables(table(given, np.linspace(0, 0.4, 16)), tmp_path)
    with (tmp_path / "suspects.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["note"] for row in rows] == [*(f"'{text}" for text in FORMULAS), *FIGURES[:4], "'=", *FIGURES[5:]]
    assert [row["given_caption"][0] for row in rows[:8]] == ["'"] * 8
    assert "'=name" in rows[0]
    assert [float(row["match_probability"]) for row in rows] == pytest.approx(np.linspace(0, 0.4, 16).tolist())
    kept = pyarrow.parquet.read_table(tmp_path / "pairs.parquet")
    assert kept["note"].to_pylist() == given.columns["note"]
    assert kept["given_caption"].to_pylist() == given.captions
    assert "=name" in kept.column_names


@drawn(st.text())
def test_text_in_a_csv_is_a_number_or_starts_harmlessly(text):
    safe = harmless(text)
    assert safe in (text, f"'{text}")
    if safe[:1] in tuple("=+-@\t\r"):
        float(safe)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    found = table(pairs(), [0.0] * 6)
    write_tables(found, tmp_path)
    before = (tmp_path / "pairs.parquet").read_bytes()

    def fail(table, path):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("pyarrow.parquet.write_table", fail)
    with pytest.raises(WriteError, match="disk full"):
        write_tables(found, tmp_path)
    assert (tmp_path / "pairs.parquet").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs.parquet", "suspects.csv"]


def auroc(score, truth):
    """Share of (mismatched, clean) couples in the right order; a tie counts half."""
    couples = [(s, c) for s, bad in zip(score, truth, strict=True) if bad for c in couples_clean(score, truth)]
    return sum(1.0 if s < c else 0.5 if s == c else 0.0 for s, c in couples) / len(couples)


def couples_clean(score, truth):
    return [s for s, bad in zip(score, truth, strict=True) if not bad]


def average_precision(score, truth):
    """Precision at each level of the score, weighted by the recall it adds."""
    total, seen = 0.0, 0.0
    for level in sorted(set(score)):
        taken = [bad for s, bad in zip(score, truth, strict=True) if s <= level]
        recall = sum(taken) / sum(truth)
        total += (recall - seen) * sum(taken) / len(taken)
        seen = recall
    return total


@pytest.mark.parametrize("seed", range(4))
def test_detection_over_training_pairs_by_hand(seed):
    rng = np.random.default_rng(seed)
    n = 60
    given = replace(pairs(n), true_image_of=rng.permutation(np.arange(n) // 2))
    given = replace(given, split=np.array(["train"] * 40 + ["dev"] * 20))
    given = replace(given, true_image_of=np.where(rng.random(n) < 0.5, given.image_of, given.true_image_of))
    score, flag = rng.integers(0, 6, n) / 5, rng.random(n) < 0.5
    found = detection(table(given, score, flag))
    truth = given.mismatched()[:40]
    assert found["auroc"] == pytest.approx(auroc(score[:40].tolist(), truth.tolist()))
    assert found["average_precision"] == pytest.approx(average_precision(score[:40].tolist(), truth.tolist()))
    assert found["flagged"] == flag[:40].sum()
    assert found["precision"] == pytest.approx((flag[:40] & truth).sum() / flag[:40].sum())
    assert found["recall"] == pytest.approx((flag[:40] & truth).sum() / truth.sum())


def test_tiny_probabilities_are_told_apart():
    given = replace(
        pairs(), split=np.array(["train"] * 4 + ["dev", "test"]), true_image_of=np.array([0, 2, 1, 1, 0, 0])
    )
    assert given.mismatched().tolist()[:4] == [True, False, False, False]
    found = detection(table(given, [1e-20, 1e-18, 0.9, 0.8, 1, 1]))
    assert found["auroc"] == found["average_precision"] == 1.0


def test_detection_is_none_where_it_is_not_defined():
    nothing = dict.fromkeys(["auroc", "average_precision", "precision", "recall"])
    assert detection(table(pairs(truth=False), [0.0, 1, 1, 0, 0, 0])) == {**nothing, "flagged": 2}
    clean = replace(pairs(truth=False), true_image_of=np.arange(6) // 2)
    assert detection(table(clean, [1.0] * 6)) == {**nothing, "flagged": 0}
    assert detection(table(clean, [0.0] * 6)) == {**nothing, "flagged": 4, "precision": 0.0}
    unknown = pair_table(pairs(), np.arange(6), np.arange(6) / 5, np.zeros(6, bool), ["unknown"] * 6, np.full(6, -1))
    assert detection(unknown)["recall"] is None and detection(unknown)["auroc"] is not None
    assert detection(table(pairs(), [])) == {**nothing, "flagged": 0}


def test_detectors_are_measured_over_training_pairs_by_hand():
    given = replace(
        pairs(8), split=np.array(["train"] * 6 + ["dev"] * 2), true_image_of=np.array([0, 0, 1, 2, 2, 0, 3, 3])
    )
    ids = np.array([7, 5, 3, 1, 0, 2, 4, 6])
    values = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    known = pair_table(given, ids, values, np.zeros(8, bool), ["clean"] * 8, np.full(8, -1))
    found = detector_scores(known, {"linear": values, "networks": 1 - values}, ids)
    own = {int(pair): float(value) for pair, value in zip(ids, values, strict=True)}
    score = [own[pair] for pair in range(6)]
    truth = given.mismatched()[:6].tolist()
    assert 0 < sum(truth) < 6
    assert found["linear"]["auroc"] == pytest.approx(auroc(score, truth))
    assert found["networks"]["auroc"] == pytest.approx(1 - found["linear"]["auroc"])
    blind = replace(given, true_image_of=None)
    unknown = detector_scores(
        pair_table(blind, ids, values, np.zeros(8, bool), ["clean"] * 8, np.full(8, -1)), {"linear": values}, ids
    )
    assert unknown == {}
    assert detector_scores(table(pairs(), []), {"linear": np.zeros(0)}, np.zeros(0, np.int64)) == {}


def test_all_kinds_of_texts_start_harmlessly_and_lists_are_json():
    kinds = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()))
    columns = [pa.array(["=1", None]).cast(kind) for kind in kinds]
    found = harmless_table(pa.table([*columns, pa.array([["=1", "ü"], None]), pa.array([-1, 2])], names=list("abcdef")))
    assert [column.to_pylist() for column in found.columns] == [["'=1", None]] * 4 + [['["=1", "ü"]', None], [-1, 2]]
