"""New vectors in files, scored shard by shard."""

import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from vector_folder import COMMAND, vectors

import pairsift
from pairsift import find_mismatches
from pairsift.cli.main import main
from pairsift.detect import shards
from pairsift.runs import vector_check


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Small shards."""
    monkeypatch.setattr(shards, "LEARNED", 300)
    monkeypatch.setattr(vector_check, "MANY", 1000)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on vectors, with other vectors of the same world."""
    folder = tmp_path_factory.mktemp("scored")
    vectors(folder / "all", n=2700)
    rows = {"known": slice(0, 1800), "new": slice(1800, 2700)}
    for name, part in rows.items():
        (folder / name).mkdir()
        for file in ("image.npy", "text.npy"):
            np.save(folder / name / file, np.load(folder / "all" / file)[part])
        table = pq.read_table(folder / "all" / "captions.parquet")
        pq.write_table(table.slice(part.start, part.stop - part.start), folder / name / "captions.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "LEARNED", 300)
        patch.setattr(vector_check, "MANY", 1000)
        pairsift.check(folder / "known", out=folder / "run", progress=False)
    return folder


def score(run, out, *options):
    """The exit code of the command."""
    return main(["score", str(run / "run"), str(run / "new"), "--out", str(out), *options])


@pytest.mark.slow
def test_new_vectors_have_the_scores_of_arrays(run, tmp_path):
    known, new = (
        (
            np.load(run / name / "image.npy"),
            np.load(run / name / "text.npy"),
            pq.read_table(run / name / "captions.parquet"),
        )
        for name in ("known", "new")
    )
    expected = find_mismatches(*known[:2], known[2]["caption"]).score(*new[:2], new[2]["caption"])
    assert score(run, tmp_path / "scores.parquet") == 0
    table = pq.read_table(tmp_path / "scores.parquet")
    assert table["pair"].to_pylist() == list(range(900)) and set(table["split"].to_pylist()) == {"added"}
    assert table["match_probability"].to_numpy() == pytest.approx(expected.match_probability, abs=1e-12)
    moved = np.array(new[2]["caption"].to_pylist()) != np.array([f"caption {row}" for row in range(1800, 2700)])
    assert (table["is_mismatch"].to_numpy(zero_copy_only=False) == moved).mean() > 0.95
    suggested = table.filter(table["suggested_caption"].is_valid())
    assert len(suggested) and max(suggested["suggested_from_pair"].to_pylist()) < 1800
    captions = known[2]["caption"].to_pylist()
    for row in suggested.to_pylist():
        assert row["suggested_caption"] == captions[row["suggested_from_pair"]]


@pytest.mark.slow
def test_shares_and_a_killed_process_write_the_same_table(run, tmp_path):
    assert score(run, tmp_path / "whole.csv") == 0
    for share in ("1/2", "0/2"):
        assert not (tmp_path / "shares.csv").exists()
        assert score(run, tmp_path / "shares.csv", "--shard", share) == 0
    assert score(run, tmp_path / "shares.csv", "--shard", "1/2") == 0  # a process that comes late
    assert score(run, tmp_path / "shares.csv") == score(run, tmp_path / "whole.csv", "--shard", "1/2") == 2
    expected = (tmp_path / "whole.csv").read_bytes()
    assert (tmp_path / "shares.csv").read_bytes() == expected and len(
        pyarrow.csv.read_csv(tmp_path / "whole.csv")
    ) == 900
    out = tmp_path / "killed" / "scores.csv"
    command = [sys.executable, "-c", COMMAND, "score", run / "run", run / "new", "--out", out]
    process = subprocess.Popen(command)
    while process.poll() is None and not list(out.parent.glob(".*.parts/evidence-*")):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL and not out.exists()
    subprocess.run(command, check=True, timeout=200)
    assert out.read_bytes() == expected
    assert [file.name for file in out.parent.iterdir()] == ["scores.csv"]


@pytest.mark.slow
def test_new_vectors_that_cannot_be_used_are_listed_beside_the_table(run, tmp_path):
    shutil.copytree(run / "new", tmp_path / "broken")
    texts = np.load(run / "new" / "text.npy")
    texts[4] = 0
    np.save(tmp_path / "broken" / "text.npy", texts)
    words = ["score", str(run / "run"), str(tmp_path / "broken"), "--out", str(tmp_path / "scores.parquet")]
    assert main(words) == 0
    assert 4 not in pq.read_table(tmp_path / "scores.parquet")["pair"].to_pylist()
    skipped = (tmp_path / "scores.skipped.csv").read_text(encoding="utf-8-sig")
    assert skipped.count("\n") == 2 and "captions.parquet row 5" in skipped and "nothing but zeros" in skipped
    assert sorted(file.name for file in tmp_path.iterdir()) == ["broken", "scores.parquet", "scores.skipped.csv"]


@pytest.mark.slow
def test_vectors_of_other_encoders_are_one_line(run, tmp_path, capsys):
    np.save(run / "new" / "kept.npy", np.load(run / "new" / "text.npy"))
    try:
        np.save(run / "new" / "text.npy", np.load(run / "new" / "text.npy")[:, :5])
        assert score(run, tmp_path / "scores.parquet") == 2
    finally:
        (run / "new" / "kept.npy").replace(run / "new" / "text.npy")
    assert "24 and 5 values, and those of the run 24 and 16" in capsys.readouterr().err


@pytest.mark.slow
def test_parts_of_another_run_are_not_taken(run, tmp_path):
    pairsift.check(run / "known", out=tmp_path / "other", train=pairsift.TrainOptions(seed=7), progress=False)
    words = ["score", str(tmp_path / "other"), str(run / "new"), "--out"]
    assert main([*words, str(tmp_path / "clean.parquet")]) == 0
    assert score(run, tmp_path / "scores.parquet", "--shard", "0/2") == 0
    assert list(tmp_path.glob(".*.parts")) and main([*words, str(tmp_path / "scores.parquet")]) == 0
    assert pq.read_table(tmp_path / "scores.parquet").equals(pq.read_table(tmp_path / "clean.parquet"))
