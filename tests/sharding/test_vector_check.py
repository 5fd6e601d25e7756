"""The check of vectors in files, shard by shard."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from vector_folder import COMMAND, vectors

import pairsift
from pairsift import InputError, find_mismatches
from pairsift.cli.main import main
from pairsift.detect import shards
from pairsift.match.two_tower import LINEAR
from pairsift.review import Decision
from pairsift.runs import vector_check
from pairsift.runs.config import configure
from pairsift.runs.vector_check import check_share
from pairsift.sharding import tables
from pairsift.sharding.parts import Share


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A folder of vectors, and whose caption each pair has."""
    folder = tmp_path_factory.mktemp("vectors")
    return folder, vectors(folder)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Small shards."""
    monkeypatch.setattr(shards, "LEARNED", 300)
    monkeypatch.setattr(vector_check, "MANY", 1000)


def parts(run):
    """The bytes of the parts of a run's shards, by name."""
    return {file.name: file.read_bytes() for file in sorted((run / "shards").glob("evidence-*"))}


@pytest.fixture(scope="module")
def whole(source, tmp_path_factory):
    """A run that one process made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "LEARNED", 300)
        patch.setattr(vector_check, "MANY", 1000)
        out = tmp_path_factory.mktemp("runs") / "whole"
        pairsift.check(source[0], out=out, progress=False)
    return out


@pytest.mark.slow
def test_vectors_in_files_have_the_verdicts_of_the_same_vectors_in_arrays(source, whole):
    folder, right = source
    captions = pq.read_table(folder / "captions.parquet")["caption"]
    expected = find_mismatches(np.load(folder / "image.npy"), np.load(folder / "text.npy"), captions)
    table = pairsift.open_run(whole).pairs().sort_by("pair")
    assert len(parts(whole)) == 5 and expected.judge.evidence
    assert table["match_probability"].to_numpy() == pytest.approx(expected.match_probability, abs=1e-12)
    flagged = table["is_mismatch"].to_numpy(zero_copy_only=False)
    assert (flagged == (right != np.arange(1800))).mean() > 0.95
    assert pairsift.open_run(whole).metrics["noise_rate"]["estimated"] == pytest.approx(0.3, abs=0.05)


@pytest.mark.slow
def test_few_pairs_have_all_suggestions_of_the_same_vectors_in_arrays(source, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "LEARNED", 1800)
    monkeypatch.setattr(tables, "SUGGESTED", 10)
    folder, out = source[0], tmp_path / "run"
    captions = pq.read_table(folder / "captions.parquet")["caption"]
    expected = find_mismatches(np.load(folder / "image.npy"), np.load(folder / "text.npy"), captions).to_arrow()
    assert check_share(configure(folder, method="linear", matcher=LINEAR, out=out), Share())
    found = pairsift.open_run(out).pairs().sort_by("pair")
    assert found["suggested_from_pair"].to_pylist() == expected["suggested_from_pair"].to_pylist()
    assert len(found) - found["suggested_from_pair"].null_count > 400


@pytest.mark.slow
def test_shares_in_any_order_write_the_same_parts(source, whole, tmp_path):
    for share in ("2/3", "0/3", "1/3"):
        assert not (tmp_path / "shares" / "pairs.parquet").exists()
        assert main(["check", str(source[0]), "--out", str(tmp_path / "shares"), "--shard", share, "--quiet"]) == 0
    assert parts(tmp_path / "shares") == parts(whole)
    assert pq.read_table(tmp_path / "shares" / "pairs.parquet").equals(pq.read_table(whole / "pairs.parquet"))


@pytest.mark.slow
def test_a_killed_process_costs_its_shard(source, whole, tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-c", COMMAND, "check", source[0], "--out", out, "--shard", "0/1", "--quiet"]
    for wanted in (1, 3):
        process = subprocess.Popen(command)
        while process.poll() is None and len(parts(out)) < wanted:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    kept = {name: os.stat(out / "shards" / name).st_mtime_ns for name in parts(out)}
    assert 3 <= len(kept) < 5
    subprocess.run(command, check=True, timeout=200)
    assert parts(out) == parts(whole)
    assert all(os.stat(out / "shards" / name).st_mtime_ns == time for name, time in kept.items())
    assert pq.read_table(out / "pairs.parquet").equals(pq.read_table(whole / "pairs.parquet"))
    assert not list(out.rglob("*.part"))


@pytest.mark.slow
def test_pairs_that_cannot_be_used_are_listed_and_the_others_keep_their_ids(tmp_path):
    folder, out = tmp_path / "vectors", tmp_path / "run"
    right = vectors(folder)
    images, texts = np.load(folder / "image.npy"), np.load(folder / "text.npy")
    images[7, 3], texts[11], images[20] = np.nan, 0, np.inf
    np.save(folder / "image.npy", images)
    np.save(folder / "text.npy", texts)
    table = pq.read_table(folder / "captions.parquet")
    captions = table["caption"].to_pylist()
    captions[30], captions[31] = "  ", None
    pq.write_table(table.set_column(1, "caption", pa.array(captions)), folder / "captions.parquet")
    run = pairsift.check(folder, out=out, progress=False)
    pairs = run.pairs()
    assert set(range(1800)) - set(pairs["pair"].to_pylist()) == {7, 11, 20, 30, 31}
    skipped = (out / "skipped.csv").read_text(encoding="utf-8-sig")
    assert skipped.count("values that are not finite") == 2 and skipped.count("nothing but zeros") == 1
    assert skipped.count("the caption is empty") == 2 and "captions.parquet row 8" in skipped
    of_pair = dict(zip(pairs["pair"].to_pylist(), pairs["given_caption"].to_pylist(), strict=True))
    assert all(of_pair[pair] == f"caption {right[pair]}" for pair in (0, 8, 40, 1799))


@pytest.mark.slow
def test_repeated_pairs_are_skipped_as_in_memory(tmp_path, monkeypatch):
    folder = tmp_path / "vectors"
    vectors(folder)
    images, table = np.load(folder / "image.npy"), pq.read_table(folder / "captions.parquet")
    names, captions = (table[name].to_pylist() for name in ("image", "caption"))
    for row, caption in ((50, captions[10]), (60, captions[10]), (70, "another caption"), (80, captions[10])):
        images[row], names[row], captions[row] = images[10], names[10], caption
    names[80] = "a copy.jpg"
    np.save(folder / "image.npy", images)
    pq.write_table(pa.table({"image": names, "caption": captions}), folder / "captions.parquet", row_group_size=500)
    ids, skipped, exported = [], [], []
    for most in (1000, 10_000):
        monkeypatch.setattr(vector_check, "MANY", most)
        run = pairsift.check(folder, out=tmp_path / f"run {most}", progress=False)
        ids.append(sorted(run.pairs()["pair"].to_pylist()))
        skipped.append((tmp_path / f"run {most}" / "skipped.csv").read_text(encoding="utf-8-sig"))
        exported.append(run.export(tmp_path / f"{most}.jsonl", drop_below=0)["kept"])
    assert set(range(1800)) - set(ids[0]) == {50, 60} and ids[0] == ids[1]
    assert skipped[0].count("repeats captions.parquet row 11") == 2 and skipped[0] == skipped[1]
    assert exported == [1798, 1798]


@pytest.mark.slow
def test_the_run_is_reviewed_searched_and_exported(source, whole, tmp_path):
    from fastapi.testclient import TestClient

    from pairsift.web.app import create_app

    with TestClient(create_app(whole), base_url="http://127.0.0.1") as client:
        page = client.get("/api/pairs", params={"limit": 5}).json()
        assert page["total"] == 1800 and page["pairs"][0]["verdict"] == "mismatched"
        suggested = client.get("/api/pairs", params={"limit": 50}).json()["pairs"]
        assert any(row["captions"] for row in suggested)
        assert client.get("/").status_code == client.get("/overview").status_code == 200
    shutil.copytree(whole, tmp_path / "run")
    run = pairsift.open_run(tmp_path / "run", progress=False)
    counts = run.export(tmp_path / "clean.parquet", drop_below=0.5)
    clean = pq.read_table(tmp_path / "clean.parquet")
    assert len(clean) == counts["kept"] == 1800 - counts["below"] and clean.column_names[-1] == "shop"
    assert counts["below"] == pytest.approx(540, rel=0.1)
    run.decisions().decide([Decision(3, "drop"), Decision(5, "replace", "another caption")], "me")
    run.export(tmp_path / "clean.csv", weights=True)
    rows = pyarrow.csv.read_csv(tmp_path / "clean.csv").to_pylist()
    assert len(rows) == 1799 and rows[4]["caption"] == "another caption" and rows[4]["weight"] == 1
    assert rows[3]["caption"] == f"caption {source[1][4]}"
    run.export(tmp_path / "clean.txt")
    assert (tmp_path / "clean.txt").read_text().split() == [str(pair) for pair in range(1800) if pair != 3]
    assert "1,800" in (whole / "report.html").read_text(encoding="utf-8")
    assert len(run.images_like(0, 3)) == 3
    assert len(run.audit()) == 1800


def test_a_source_that_has_changed_ends_in_one_line(tmp_path):
    folder, out = tmp_path / "vectors", tmp_path / "run"
    vectors(folder)
    config = configure(folder, method="linear", matcher=LINEAR, out=out)
    check_share(config, Share(4, 5), lambda work, numbers: None)
    os.utime(folder / "text.npy", (1, 1))
    with pytest.raises(InputError, match="has changed since"):
        check_share(config, Share())


def test_a_process_that_is_killed_at_the_very_beginning_leaves_a_folder_to_go_on_in(tmp_path, monkeypatch):
    folder, out = tmp_path / "vectors", tmp_path / "run"
    vectors(folder)
    config = configure(folder, method="linear", matcher=LINEAR, out=out)
    for name in ("write_marker", "in_turn", "write_text"):
        with monkeypatch.context() as patch:
            patch.setattr(vector_check, name, killed)
            with pytest.raises(KeyboardInterrupt):
                check_share(config, Share(4, 5))
    check_share(config, Share(4, 5), lambda work, numbers: None)


def killed(*_):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_finished_run_goes_on_where_its_source_has_moved_and_not_where_it_has_changed(source, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    shutil.copytree(source[0], tmp_path / "moved", copy_function=shutil.copy)  # with times of now
    pairsift.open_run(tmp_path / "run", source=tmp_path / "moved").export(tmp_path / "clean.parquet")
    assert len(pq.read_table(tmp_path / "clean.parquet")) == 1800
    assert "changes" not in pairsift.open_run(tmp_path / "run").metrics
    config = configure(source[0], method="linear", matcher=LINEAR, out=tmp_path / "run")
    assert check_share(config, Share())
    texts = np.load(tmp_path / "moved" / "text.npy")
    np.save(tmp_path / "moved" / "text.npy", texts[::-1])
    with pytest.raises(InputError, match="has changed since"):
        pairsift.open_run(tmp_path / "run", source=tmp_path / "moved").export(tmp_path / "again.parquet")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--shard", "2/2"], "--shard 2/2: give i/n with i from 0 to n - 1, such as 0/8"),
        (["--shard", "x"], "--shard x: give i/n"),
        (["--shard", "0/2", "--text-encoder", "wordllama"], "--text-encoder cannot be used with --shard and --ray"),
        (["--shard", "0/2", "--resume"], "--shard and --ray always go on where they stopped: leave --resume"),
        (["--shard", "0/2", "--noise", "0.2"], "--noise cannot be used with --shard and --ray: leave it or them out"),
    ],
)
def test_a_wrong_option_is_one_line(source, tmp_path, capsys, options, line):
    assert main(["check", str(source[0]), "--out", str(tmp_path / "run"), *options]) == 2
    assert line in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_torchrun_is_refused_in_one_line(source, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert main(["check", str(source[0]), "--out", str(tmp_path / "run")]) == 2
    assert "check so many vectors with --shard or --ray" in capsys.readouterr().err


def test_a_source_without_vectors_says_how_to_make_them(tmp_path, capsys):
    (tmp_path / "pairs.csv").write_text("image,caption\na.jpg,a dog\n", encoding="utf-8")
    assert main(["check", str(tmp_path / "pairs.csv"), "--out", str(tmp_path / "run"), "--shard", "0/2"]) == 2
    assert "pairsift encode" in capsys.readouterr().err
