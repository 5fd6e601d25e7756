"""A run whose source changes before it is resumed: it says so and stops, or goes on with what is as it was."""

import csv
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from light_evidence import light_file
from PIL import Image

import pairsift
from pairsift.cli import main
from pairsift.pairs.changes import content_marks, file_mark, read_stored_pairs
from pairsift.pairs.readers import load
from pairsift.runs.fit import _leave_out
from pairsift.train.loop import Trainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # whole fits, on slow cores


def rows_of(path):
    with path.open(newline="") as stream:
        return list(csv.reader(stream))


def write(path, rows):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)


@pytest.fixture
def source(scenes, tmp_path):
    """A table of one caption for each of 120 scenes, with columns image and caption."""
    shutil.copytree(scenes / "images", tmp_path / "images")
    rows = rows_of(scenes / "captions.csv")[1::5]
    write(tmp_path / "mine.csv", [["image", "caption"], *([f"images/{name}", text] for name, text in rows)])
    return tmp_path / "mine.csv"


def command(source, place, method, *more):
    options = ["--batch-size=16", "--device=cpu", "--seed=4", "--text-encoder=wordllama", "--epochs=4", *more]
    return [
        "fit",
        str(source),
        f"--out={source.parent / 'run'}",
        f"--cache={place / 'cache'}",
        f"--config={light_file(source.parent)}",
        f"--method={method}",
        *options,
    ]


def stopped(words, monkeypatch, epochs):
    """Run a fit that is stopped in the middle of an epoch."""
    train = Trainer._train

    def until(trainer, epoch, k, phase):
        if epoch == epochs and k == 1:
            trainer.position.network, trainer.position.step = 1, 1
            trainer.save()
            raise KeyboardInterrupt
        return train(trainer, epoch, k, phase)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_train", until)
        assert main(words) == 130


def change(source):
    """Remove 10 rows and 1 image file, add 5 rows, edit 3 captions, put another picture into 2 image files.

    Return the rows that are gone or edited, or whose picture is another one.
    """
    head, *rows = rows_of(source)
    edited = [
        [name, f"{text} changed"] if number in (40, 41, 42) else [name, text]
        for number, (name, text) in enumerate(rows)
    ]
    new = [[edited[50][0], f"a new caption {number}"] for number in range(5)]
    write(source, [head, *new, *edited[10:]])
    (source.parent / rows[60][0]).unlink()
    for number in (70, 71):
        Image.linear_gradient("L").rotate(number).convert("RGB").save(source.parent / rows[number][0])
    return sorted({*range(10), 40, 41, 42, 60, 70, 71})


@pytest.mark.parametrize("method", ["plain", "pc2", "sift"])
def test_a_resumed_run_stops_in_one_line_or_goes_on_with_what_is_as_it_was(source, place, method, monkeypatch, capsys):
    words = command(source, place, method, "--noise=0.2", "--noise-splits=all")
    stopped(words, monkeypatch, 2)
    folder = source.parent / "run"
    begun = read_stored_pairs(folder / "source.parquet")
    lost = change(source)
    capsys.readouterr()
    checkpoint = (folder / "checkpoint.safetensors").read_bytes()
    planted = begun.planted.tolist()
    gone, size = {60, *range(10)}, 0
    while len(gone) > size:  # an image is there as long as the pair that has it in the source
        size, gone = len(gone), gone | {pair for pair, row in enumerate(planted) if row in gone}
    expected = {pair for pair, row in enumerate(planted) if pair not in {40, 41, 42} | gone and row not in (70, 71)}
    expected -= set(np.flatnonzero(np.array(begun.split) == "skipped").tolist())
    assert main([*words, "--resume"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"(3 captions changed, 5 rows new, {len(gone)} gone, 2 images changed): put it back" in line
    assert f"go on with the {len(expected)} pairs that are as they were by --resume-unchanged" in line
    assert (folder / "checkpoint.safetensors").read_bytes() == checkpoint
    trained, train = [], Trainer._train

    def watched(trainer, epoch, k, phase):
        trained.append((trainer.job.pairs, epoch, k))
        return train(trainer, epoch, k, phase)

    monkeypatch.setattr(Trainer, "_train", watched)
    assert main([*words, "--resume-unchanged", "--quiet"]) == 0
    pairs = trained[-1][0]
    assert [(epoch, k) for _, epoch, k in trained][:2] == [(2, 0), (2, 1)]  # the epoch begins again
    assert set(pairs.ids().tolist()) == expected and len(pairs) == len(begun.captions)
    assert all(pairs.captions[pair] == begun.captions[pair] for pair in expected)
    assert all(pairs.image_of[pair] == planted[pair] for pair in expected)
    assert all(pairs.split[pair] == begun.split[pair] for pair in expected)
    run = pairsift.open_run(folder, progress=False)
    assert set(run.pairs()["pair"].to_pylist()) == expected and not expected & set(lost) - {70, 71}
    skipped = {int(row[2]): row[1] for row in rows_of(folder / "skipped.csv")[1:] if row[2]}
    assert skipped[40] == "its caption has changed since the run was begun" and "gone" in skipped[3]
    assert run.metrics["changes"] == {"captions": 3, "new": 5, "gone": len(gone), "images": 2}
    assert np.isfinite(run.metrics["test"]["ensemble"]["rsum"])


def test_moved_rows_and_an_untouched_source_go_on_as_if_nothing_was(source, place, monkeypatch, capsys):
    words = command(source, place, "pc2", "--noise=0.2")
    straight = [word.replace(str(source.parent / "run"), str(source.parent / "straight")) for word in words]
    assert main([*straight, "--quiet", "--threads=1"]) == 0
    stopped([*words, "--threads=1"], monkeypatch, 2)
    head, *rows = rows_of(source)
    write(source, [head, *rows[60:], *rows[:60]])
    assert main([*words, "--threads=1", "--resume", "--quiet"]) == 0
    table, again = (pairsift.open_run(source.parent / name, progress=False).pairs() for name in ("straight", "run"))
    assert table.drop_columns("match_probability").num_rows == again.num_rows
    assert table["pair"].to_pylist() == again["pair"].to_pylist()
    assert table["match_probability"].to_pylist() == pytest.approx(again["match_probability"].to_pylist(), abs=1e-6)


def test_a_source_of_other_pairs_altogether_is_refused(source, place, monkeypatch, capsys):
    words = command(source, place, "plain")
    stopped(words, monkeypatch, 1)
    names = [f"other {number}.jpg" for number in range(30)]
    for name in names:
        shutil.copy(source.parent / "images" / "scene_00000.jpg", source.parent / name)
    write(source, [["image", "caption"], *([name, f"caption of {name}"] for name in names)])
    capsys.readouterr()
    assert main([*words, "--resume"]) == 2
    assert "is not what" in capsys.readouterr().err.splitlines()[-1]


def test_a_killed_fit_notices_pixels_that_changed_under_the_same_name(source, place, monkeypatch, capsys):
    words = command(source, place, "plain", "--epochs=300")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    child = subprocess.Popen([sys.executable, "-m", "pairsift.cli", *words], stderr=subprocess.DEVNULL)
    while not (source.parent / "run" / "checkpoint.safetensors").exists():
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    Image.new("RGB", (64, 64)).save(source.parent / "images" / "scene_00003.jpg")
    assert main([*words, "--resume"]) == 2
    assert "0 captions changed, 0 rows new, 0 gone, 1 image changed" in capsys.readouterr().err.splitlines()[-1]


def test_a_mark_is_that_of_the_content(tmp_path):
    rng = np.random.default_rng(0)
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(rng.bytes(1_000_000))
    small.write_bytes(rng.bytes(1000))
    marks = file_mark(large), file_mark(small)
    large.rename(tmp_path / "moved")
    assert file_mark(tmp_path / "moved") == marks[0] and file_mark(large) == "" and len(set(marks)) == 2
    for place in range(0, 1000, 7):  # a small file is read as a whole
        content = bytearray(small.read_bytes())
        content[place] ^= 1
        (tmp_path / "other").write_bytes(content)
        assert file_mark(tmp_path / "other") != marks[1]
    (tmp_path / "other").write_bytes(rng.bytes(1_000_000))
    assert file_mark(tmp_path / "other") != marks[0]
    vectors = tmp_path / "vectors"
    vectors.mkdir()
    np.save(vectors / "image.npy", rng.normal(size=(30, 8)).astype("f4"))
    np.save(vectors / "text.npy", rng.normal(size=(30, 8)).astype("f4"))
    write(vectors / "captions.csv", [["caption"], *([f"caption {n}"] for n in range(30))])
    before = content_marks(pairsift.load(vectors))
    np.save(vectors / "text.npy", rng.normal(size=(30, 8)).astype("f4"))
    after = content_marks(pairsift.load(vectors))
    assert len(before) == 30 and all(a != b for a, b in zip(before, after, strict=True))


def test_networks_of_folds_that_are_not_finished_go_with_the_folds(source, tmp_path):
    checkpoint = tmp_path / "run" / "folds" / "1" / "checkpoint.safetensors"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    _leave_out(tmp_path / "run", load(source))
    assert not checkpoint.exists()
