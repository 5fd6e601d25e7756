"""A finished run, decided on and exported by the command line."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from flat_options import fit

from pairsift.cli import main
from shard_sources import files_of

pytestmark = pytest.mark.slow


def test_a_run_is_cleaned_by_two_commands(run, tmp_path, capsys):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    table = run.pairs().to_pylist()
    low = [row["pair"] for row in table if row["match_probability"] < 0.2]
    suggested = next(row for row in table if row["suggested_caption"] is not None and row["pair"] not in low)
    (tmp_path / "mine.csv").write_text(f"pair,decision\n{suggested['pair']},replace\n{low[0]},keep\n")
    assert main(["decide", str(folder), "--from", str(tmp_path / "mine.csv")]) == 0
    assert main(["export", str(folder), "--out", str(tmp_path / "out.csv"), "--drop-below", "0.2"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-3].endswith(
        f"{len(table) - len(low) + 1:,} pairs; 1 with a new caption; left out: {len(low) - 1} below 0.2"
    )
    left = sum(1 - row["match_probability"] for row in table if row["pair"] not in (*low, suggested["pair"]))
    kept = f"{len(table) - len(low) + 1:,} pairs"
    assert out[-2].startswith(f"about {round(left):,} of the {kept} are expected to be mismatched; a new fit cannot")
    base = run.prepared.pairs.paths[0].parent
    assert out[-1] == f"its image names start from {base}: read it with --image-folder {base}"
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    expected = {row["pair"]: (row["image"], row["given_caption"]) for row in table if row["pair"] not in low[1:]}
    expected[suggested["pair"]] = suggested["image"], suggested["suggested_caption"]
    assert [(row["image"], row["caption"]) for row in rows] == [expected[pair] for pair in sorted(expected)]
    assert main(["export", str(folder), "--out", str(tmp_path / "out.csv")]) == 2
    assert "exists already" in capsys.readouterr().err


def test_pairs_that_are_dropped_by_a_ranking_alone_are_told(run, tmp_path, capsys):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    metrics = json.loads((folder / "metrics.json").read_text())
    for given in (True, False):
        (folder / "metrics.json").write_text(json.dumps(metrics | {"verdicts_given": given}))
        out = str(tmp_path / f"{given}.csv")
        assert main(["export", str(folder), "--out", out, "--drop-below", "0.5", "--quiet"]) == 0
        assert capsys.readouterr().err.startswith(f"{folder} gives no verdicts") is not given
    assert main(["export", str(folder), "--out", str(tmp_path / "all.csv"), "--quiet"]) == 0
    assert capsys.readouterr().err == ""  # nothing was left out


def test_a_run_becomes_a_folder_of_fiftyone(run, tmp_path, capsys):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    table = run.pairs().to_pylist()
    worst = table[0]["pair"]
    (tmp_path / "mine.csv").write_text(f"pair,decision\n{worst},drop\n")
    assert main(["decide", str(folder), "--from", str(tmp_path / "mine.csv")]) == 0
    out = tmp_path / "out.fiftyone"
    assert main(["export", str(folder), "--out", str(out), "--weights"]) == 0
    assert f"{out}: {len(table) - 1:,} pairs; left out: 1 dropped" in capsys.readouterr().out.splitlines()
    samples = json.loads((out / "samples.json").read_text())["samples"]
    assert [sample["pair"] for sample in samples] == [row["pair"] for row in table[1:]]
    for sample, row in zip(samples, table[1:], strict=True):
        assert {**sample, **row} == sample
        assert (sample["caption"], sample["weight"]) == (row["given_caption"], row["match_probability"])
        assert Path(sample["filepath"]).is_file() and Path(sample["filepath"]).name == Path(row["image"]).name
    assert main(["export", str(folder), "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["export", str(folder), "--out", str(tmp_path / "out.fiftyon")]) == 2
    assert "did you mean .fiftyone?" in capsys.readouterr().err


def test_a_table_of_ones_own_comes_back_as_it_was(place, scenes, quick, tmp_path, capsys):
    with (scenes / "captions.csv").open(newline="") as stream:
        rows = [
            {"sku": n, "photo": row["image"], "title": row["caption"]} for n, row in enumerate(csv.DictReader(stream))
        ]
    source = tmp_path / "shop.csv"
    with source.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    options = {"cache": quick["cache"], "device": "cpu", "method": "plain", "plain.epochs.train": 1}
    options |= {"image_column": "photo", "image_folder": str(scenes / "images"), "out": str(tmp_path / "run")}
    fit(source, {**options, "plain.networks": 1}, progress=False)
    assert main(["decide", str(tmp_path / "run"), "--drop-below", "0"]) == 0
    assert "nothing is dropped" in capsys.readouterr().out
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "again.csv"), "--quiet"]) == 0
    assert (tmp_path / "again.csv").read_bytes() == source.read_bytes()
    assert capsys.readouterr().out == ""
    source.write_bytes(source.read_bytes().replace(rows[4]["title"].encode(), b"another caption", 1))
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "third.csv")]) == 2
    message = capsys.readouterr().err
    assert f"had the caption '{rows[4]['title']}'" in message and f"pairsift audit {tmp_path / 'run'}" in message
    assert main(["audit", str(tmp_path / "run"), "--quiet"]) == 0
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "third.csv"), "--quiet"]) == 0
    rows[4]["title"] = "another caption"
    with (tmp_path / "third.csv").open(newline="") as stream:
        assert list(csv.DictReader(stream)) == [row | {"sku": str(row["sku"])} for row in rows]


def test_tar_files_are_exported_fitted_and_exported_again(run, place, quick, tmp_path, capsys):
    assert main(["export", str(run.folder), "--out", str(tmp_path / "clean-shards"), "--splits"]) == 0
    pairs = run.prepared.pairs
    assert capsys.readouterr().out.splitlines()[0] == f"{tmp_path / 'clean-shards'}: {len(pairs):,} pairs"
    options = {"cache": quick["cache"], "device": "cpu", "method": "plain", "plain.epochs.train": 1}
    again = fit(
        tmp_path / "clean-shards", {**options, "plain.networks": 1, "out": str(tmp_path / "run")}, progress=False
    )
    assert again.prepared.pairs.description.startswith("shards: image from 3 tar files")
    assert sorted(again.prepared.pairs.captions) == sorted(pairs.captions)
    table = again.pairs().to_pylist()
    low = next(row for row in table if row["split"] == "train")
    (tmp_path / "mine.csv").write_text(f"pair,decision,new_caption\n{low['pair']},replace,better words\n")
    assert main(["decide", str(tmp_path / "run"), "--from", str(tmp_path / "mine.csv")]) == 0
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "shards"), "--quiet"]) == 0
    before, after = (files_of(tmp_path / name / "train" / "00000.tar") for name in ("clean-shards", "shards"))
    changed = [name for name in before if before[name] != after[name]]
    assert before.keys() == after.keys() and [name[-4:] for name in changed] == [".txt"]
    assert after[changed[0]] == b"better words"
