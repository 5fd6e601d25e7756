"""A run whose source was edited, moved or lost: it still evaluates, judges and searches."""

import csv
import json
import shutil

import numpy as np
import pytest

import pairsift
from pairsift.cli import main
from pairsift.errors import InputError
from pairsift.runs.prepare import reopen
from pairsift.runs.run import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def moved(run, scenes, tmp_path):
    """A copy of the run, and a copy of its source in another place."""
    shutil.copytree(run.folder, tmp_path / "run")
    shutil.copytree(scenes, tmp_path / "data")
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace(str(scenes), str(tmp_path / "lost")))
    return tmp_path / "run", tmp_path / "data"


def edit(data, change):
    """Rewrite the captions' rows."""
    with (data / "captions.csv").open(newline="") as stream:
        rows = list(csv.reader(stream))
    with (data / "captions.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([rows[0], *change(rows[1:])])


def test_a_moved_source_gives_the_same_recall_and_noise(run, moved, capsys):
    folder, data = moved
    assert main(["evaluate", str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "there is nothing at" in said and "--source" in said
    opened = pairsift.open_run(folder, source=data, progress=False)
    assert opened.evaluate("test")["ensemble"] == pytest.approx(run.metrics["test"]["ensemble"])
    assert (opened.prepared.pairs.image_of == run.prepared.pairs.image_of).all() and opened.prepared.changes is None


def test_an_edited_source_is_judged_again(run, moved, capsys):
    folder, data = moved
    rows = [row for row in run.pairs().to_pylist() if row["split"] == "train" and row["suggested_caption"] is not None]
    true = run.prepared.pairs.true_image_of
    flagged = next(row for row in rows if run.prepared.pairs.names[true[row["suggested_from_pair"]]] == row["image"])
    pair, fits = flagged["pair"], flagged["suggested_caption"]
    last = len(run.prepared.pairs) - 1

    def change(rows):
        rows[pair][1] = fits
        other = next(name for name, *_ in rows if name not in (rows[pair][0], rows[-1][0]))
        return [*rows[:-1], [other, "a new caption of another image"]]

    edit(data, change)
    assert main(["audit", str(folder), "--source", str(data), "--worst", "1"]) == 0
    assert "has changed since" in (err := capsys.readouterr().err)
    assert "1 caption changed, 1 row new, 1 gone" in err
    table = {row["pair"]: row for row in pairsift.open_run(folder).pairs().to_pylist()}
    assert table[pair]["given_caption"] == fits and table[pair]["match_probability"] > flagged["match_probability"]
    assert not table[pair]["is_mismatch"] and table[pair]["image"] == flagged["image"]
    others = [row for row in run.pairs().to_pylist() if row["pair"] not in (pair, last)]
    assert all(table[row["pair"]]["split"] == row["split"] for row in others)
    assert all(table[row["pair"]]["image"] == row["image"] for row in others)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["changes"] == {"captions": 1, "new": 1, "gone": 1, "images": 0}
    before, after = (path / "suspects.csv" for path in (run.folder, folder))
    assert before.read_bytes() != after.read_bytes()
    assert (folder / "report.html").read_bytes() != (run.folder / "report.html").read_bytes()


def test_new_rows_are_judged_as_not_trained_on(run, moved):
    folder, data = moved
    shutil.copy(next((data / "images").iterdir()), data / "images" / "new.jpg")
    edit(data, lambda rows: [*rows, ["new.jpg", "a scene"]])
    for file in (data / "splits").glob("*"):
        if "train" in file.name:
            file.write_text(file.read_text().rstrip("\n") + "\nnew.jpg\n")
    opened = pairsift.open_run(folder, source=data, progress=False)
    table = {row["pair"]: row for row in opened.audit().to_pylist()}
    new = len(run.prepared.pairs)
    assert (
        table[new]["split"] == "added" and table[new]["image"] == "new.jpg" and not opened.prepared.pairs.trained[new]
    )
    assert opened.prepared.changes.new == 1
    assert any(path.endswith("new.jpg") for path, _ in opened.search("a scene", 500))
    again = pairsift.open_run(folder, source=data, progress=False)
    assert any(path.endswith("new.jpg") for path, _ in again.search("a scene", 500))


def test_search_needs_neither_source_nor_images_nor_cache(run, moved, capsys, monkeypatch, tmp_path):
    folder, data = moved
    shutil.rmtree(data)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    assert main(["search", str(folder), "a red ball", "-k", "4"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    wanted = run.search("a red ball", 4)
    assert [float(score) for score, _ in lines] == pytest.approx([score for _, score in wanted], abs=2e-3)
    assert [path.rpartition("/")[2] for _, path in lines] == [path.rpartition("/")[2] for path, _ in wanted]
    assert all(str(tmp_path / "lost") in path for _, path in lines)
    assert main(["search", str(folder), "a red ball", "--source", str(tmp_path / "there")]) == 0
    assert str(tmp_path / "there") in capsys.readouterr().out
    assert main(["search", str(folder), " "]) == 2


def test_what_was_searched_before_it_was_kept_is_found_again(run):
    fresh = Run(run.folder, run.prepared)
    made = fresh._unsaved_search().by_text("two blue things", 10)
    kept = pairsift.open_run(run.folder).search("two blue things", 10)
    assert [(hit.file, hit.score) for hit in made] == [(path, pytest.approx(score, abs=1e-6)) for path, score in kept]


def test_a_run_without_what_it_was_made_of_says_so(run, moved):
    folder, data = moved
    (folder / "source.parquet").unlink()
    with pytest.raises(InputError, match=r"source.parquet is missing"):
        pairsift.open_run(folder, source=data, progress=False).evaluate()


def test_the_same_noise_is_read_and_not_drawn(run, moved, monkeypatch):
    folder, data = moved
    monkeypatch.setattr("pairsift.noise.options.plant_noise", None)
    config = run.config.with_source(data)
    again = reopen(config, folder, run.metrics, progress=False)
    assert again.pairs.noise == run.prepared.pairs.noise
    assert np.array_equal(again.pairs.image_of, run.prepared.pairs.image_of)
