"""A run on several files: its folder, the command line, an edited file, and an export."""

import csv

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairsift import open_run
from pairsift.cli import main
from shard_sources import picture

pytestmark = pytest.mark.slow
WORDS = ("red", "round", "small", "old", "wet", "tall", "thin", "warm")


def write(folder, name, numbers, word="cup"):
    folder.mkdir(exist_ok=True)
    cells = [{"bytes": picture(number, "PNG"), "path": f"{number}.jpg"} for number in numbers]
    captions = [f"a {WORDS[number % 8]} {word} on table {number}" for number in numbers]
    shelf = [f"s{number}" for number in numbers]
    pq.write_table(pa.table({"image": cells, "caption": captions, "shelf": shelf}), folder / f"{name}.parquet")
    return str(folder / f"{name}.parquet")


def test_several_files_are_checked_audited_and_exported(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    train, more = write(data, "train-0", range(30)), write(data, "train-1", range(30, 48))
    write(data, "test-0", range(48, 56))
    options = ["--text-encoder", "ngrams", "--cache", str(tmp_path / "cache"), "--quiet"]
    assert main(["check", "data/*.parquet", *options]) == 0
    assert main(["check", train, *options, more]) == 0
    for folder, splits in (
        ("runs/data-check", {"train", "dev", "test"}),
        ("runs/train-0-check", {"train", "dev", "test"}),
    ):
        run = open_run(folder, progress=False)
        assert len(run.pairs()) == (56 if "data" in folder else 48) and set(run.pairs()["split"].to_pylist()) == splits
    write(data, "train-1", range(30, 48), "jug")
    capsys.readouterr()
    assert main(["audit", "runs/data-check"]) == 0
    assert "18 captions changed, 0 rows new, 0 gone" in capsys.readouterr().err
    assert main(["export", "runs/data-check", "--out", "clean.csv"]) == 0
    with open("clean.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 56 and sum("jug" in row["caption"] for row in rows) == 18
    assert all(row["shelf"] == f"s{row['image'].removesuffix('.jpg')}" for row in rows)
    assert main(["export", "runs/data-check", "--out", "clean.parquet"]) == 0
    assert pq.read_table("clean.parquet")["image"].to_pylist()[0]["bytes"] == picture(48, "PNG")
