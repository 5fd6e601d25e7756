"""Decisions on pairs that came into the source after the fit stay with these pairs, whatever becomes of the source."""

import csv
import json
import shutil

import pyarrow.parquet as pq
import pytest

import pairsift
from pairsift.cli import main
from pairsift.review import Decisions
from pairsift.runs.run import Run
from pairsift.web.images import Images

pytestmark = pytest.mark.slow


@pytest.fixture
def copied(run, scenes, tmp_path):
    """A copy of the run and of its source; a function that writes other rows into the source; the rows."""
    folder, data = shutil.copytree(run.folder, tmp_path / "run"), shutil.copytree(scenes, tmp_path / "data")
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace(str(scenes), str(data)))
    images = sorted(path.name for path in (data / "images").iterdir())
    with (data / "captions.csv").open(newline="") as stream:
        header, *rows = csv.reader(stream)

    def write(new):
        with (data / "captions.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([header, *new])

    return folder, write, rows, images


def audit(folder):
    assert main(["audit", str(folder), "--worst", "1"]) == 0
    return by_id(folder)


def by_id(folder):
    return {
        row["pair"]: (row["image"], row["given_caption"]) for row in pq.read_table(folder / "pairs.parquet").to_pylist()
    }


def decided(folder):
    """Image and caption of the pairs with decisions, as the table of judged pairs has them now."""
    table = by_id(folder)
    rows = Decisions(folder, pq.read_table(folder / "pairs.parquet")["pair"].to_numpy()).table().to_pylist()
    return {row["decision"]: table.get(row["pair"]) for row in rows}


def decide(folder, tmp_path, *decisions):
    (tmp_path / "decided.csv").write_text("pair,decision\n" + "".join(f"{pair},{word}\n" for pair, word in decisions))
    assert main(["decide", str(folder), "--from", str(tmp_path / "decided.csv")]) == 0


def test_decisions_stay_with_added_pairs(copied, tmp_path, monkeypatch):
    folder, write, rows, images = copied
    first, second, third = ([images[at], f"a new caption {at}"] for at in (1, 2, 3))
    size = len(rows)
    write([*rows, first, second])
    assert {pair: row for pair, row in audit(folder).items() if pair >= size} == {
        size: tuple(first),
        size + 1: tuple(second),
    }
    decide(folder, tmp_path, (size, "drop"), (size + 1, "keep"))
    wanted = {"drop": tuple(first), "keep": tuple(second)}

    write([third, *rows, first, second])  # before them
    table = audit(folder)
    assert decided(folder) == wanted and table[size + 2] == tuple(third)
    write([second, *rows[1:], third])  # the first is gone, and a pair of the run
    table = audit(folder)
    assert size not in table and 0 not in table and decided(folder) == {"drop": None, "keep": tuple(second)}
    write([["new.jpg", "no such image"], *rows, third, second, first])  # and back
    with monkeypatch.context() as patch:  # stopped after the ids were given
        patch.setattr("pairsift.runs.run.write_tables", None)
        with pytest.raises(TypeError):
            pairsift.open_run(folder, progress=False).audit()
    assert decided(folder) == {"drop": None, "keep": tuple(second)}
    write([[images[4], "a later caption"], *rows, third, second, first])
    table = audit(folder)
    assert decided(folder) == wanted and table[size + 4] == (images[4], "a later caption")

    out = tmp_path / "clean.csv"
    assert main(["export", str(folder), "--out", str(out)]) == 0
    left = [row[:2] for row in csv.reader(out.open(newline=""))][1:]
    assert first not in left and second in left and third in left and len(left) == size + 3
    write([*rows[5:], first, second])  # an export after another change, which was not audited
    assert main(["export", str(folder), "--out", str(tmp_path / "later.csv")]) == 0
    left = [row[:2] for row in csv.reader((tmp_path / "later.csv").open(newline=""))]
    assert first not in left and second in left

    shown = Images(folder, tmp_path / "data")
    assert shown.path(size + 1).name == images[2] and shown.path(size + 1).exists()


def test_a_source_that_is_as_it_was_leaves_the_ids_of_what_came_meanwhile(copied, run, tmp_path, capsys):
    folder, write, rows, images = copied
    size = len(rows)
    write([[images[1], "a new caption"], *rows])
    assert audit(folder)[size] == (images[1], "a new caption")
    decide(folder, tmp_path, (size, "drop"))
    write(rows)
    capsys.readouterr()
    before = set(run.pairs()["pair"].to_pylist())
    assert set(audit(folder)) == before and "0 rows new, 1 gone" in capsys.readouterr().err
    assert pairsift.open_run(folder).evaluate("test")["ensemble"] == pytest.approx(run.metrics["test"]["ensemble"])
    write([[images[2], "another new caption"], *rows])
    assert audit(folder)[size + 1] == (images[2], "another new caption") and decided(folder) == {"drop": None}
    few = tmp_path / "few.csv"
    few.write_text("image,caption\n" + "".join(f"{image},{caption}\n" for image, caption, *_ in rows[:20]))
    where = str(tmp_path / "data" / "images")
    assert main(["score", str(folder), str(few), "--out", str(tmp_path / "s.csv"), "--image-folder", where]) == 0
    assert (tmp_path / "s.csv").exists()


def test_a_run_whose_source_never_changed_has_no_such_record(copied):
    folder, *_ = copied
    audit(folder)
    assert not (folder / "known.parquet").exists() and "changes" not in json.loads(
        (folder / "metrics.json").read_text()
    )


def test_an_audit_of_what_another_call_has_changed_meanwhile_is_refused(copied):
    folder, write, rows, images = copied
    write([*rows, [images[1], "a new caption"]])
    opened = Run(folder, progress=False)
    assert opened.prepared.changes.new == 1
    write([*rows, [images[1], "a new caption"], [images[2], "another"]])
    audit(folder)
    before = (folder / "pairs.parquet").read_bytes()
    with pytest.raises(pairsift.InputError, match="audited by another call since it was opened"):
        opened.audit()
    assert (folder / "pairs.parquet").read_bytes() == before
