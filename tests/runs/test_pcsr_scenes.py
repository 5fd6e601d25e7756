"""PCSR on the embedded scenes, three fifths of the training captions re-pointed: recall, and its kinds of mismatch."""

import json
import shutil

import numpy as np
import pyarrow.parquet
import pytest
from flat_options import fit
from light_evidence import LIGHT

import pairsift
from pairsift.cli import main
from pairsift.scenes import write_scenes
from pairsift.table import verdict_names, write_division

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # whole fits, on slow cores

SEED = 1
MARGIN = 10.0  # of test rSum
SMALL = {"batch_size": 64, "two_tower.dim": 128, "two_tower.hidden": 128, "device": "cpu", "threads": 1}
SMALL |= {"detect": LIGHT}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """By method."""
    place = tmp_path_factory.mktemp("pcsr")
    write_scenes(place / "scenes", 300, 2)
    found = {}
    for method in ("plain", "pcsr"):
        options = {"method": method, "noise": 0.6, "noise_seed": SEED, "seed": SEED, "cache": str(place / "cache")}
        options |= {"plain.epochs.warmup": 1, "plain.epochs.train": 7} if method == "plain" else {}
        found[method] = fit(place / "scenes", {**SMALL, **options, "out": str(place / method)}, progress=False)
    return found


def test_pcsr_beats_plain_where_most_captions_are_wrong(runs):
    plain, pcsr = (runs[method].metrics for method in ("plain", "pcsr"))
    assert pcsr["detection"]["auroc"] == plain["detection"]["auroc"]  # verdicts come before the training
    assert pcsr["test"]["ensemble"]["rsum"] - plain["test"]["ensemble"]["rsum"] > MARGIN


def test_verdicts_name_the_kinds_of_mismatch_and_leave_flag_and_score_alone(runs):
    run = runs["pcsr"]
    division = pyarrow.parquet.read_table(run.folder / "division.parquet").to_pydict()
    own = dict(zip(division["pair"], division["verdict"], strict=True))
    assert sorted(own) == run.prepared.pairs.ids("train").tolist()
    rows = run.pairs().to_pylist()
    for row in rows:
        assert row["is_mismatch"] == (row["match_probability"] < 0.5) == (row["verdict"] != "clean")
        if row["is_mismatch"]:
            kind = own.get(row["pair"], "clean")
            assert row["verdict"] == ("mismatched" if kind == "clean" else kind)
    found = run.metrics["verdicts"]
    assert "refinable" in found and found.keys() <= {"refinable", "ambiguous", "mismatched"}
    assert sum(found.values()) == sum(row["is_mismatch"] for row in rows)
    report = (run.folder / "report.html").read_text(encoding="utf-8")
    assert all(f" · {n:,} {name}" in report for name, n in found.items())


def test_a_method_without_classes_leaves_no_division(runs):
    run = runs["plain"]
    assert not (run.folder / "division.parquet").exists() and "verdicts" not in run.metrics
    assert set(run.pairs()["verdict"].to_pylist()) == {"clean", "mismatched"}


def test_an_opened_run_is_judged_the_same_and_the_command_line_says_the_kinds(runs, tmp_path, capsys):
    folder = shutil.copytree(runs["pcsr"].folder, tmp_path / "copy")
    before = runs["pcsr"].pairs()
    assert pairsift.open_run(folder, progress=False).audit().equals(before)
    assert main(["audit", str(folder)]) == 0
    found = json.loads((folder / "metrics.json").read_text())["verdicts"]
    assert (
        f"kinds of mismatch, all splits: {', '.join(f'{n} {name}' for name, n in found.items())}"
        in capsys.readouterr().out
    )


def test_words_come_from_flag_and_division(tmp_path):
    flags = np.array([True, True, True, True, False, False])
    ids = np.array([7, 3, 5, 9, 4, 6])
    assert verdict_names(ids, flags, np.zeros(6, bool), tmp_path) == ["mismatched"] * 4 + ["clean"] * 2
    write_division(np.array([3, 4, 5, 7]), ["ambiguous", "refinable", "clean", "refinable"], tmp_path)
    assert verdict_names(ids, flags, np.zeros(6, bool), tmp_path) == [
        "refinable",
        "ambiguous",
        "mismatched",
        "mismatched",
        "clean",
        "clean",
    ]
