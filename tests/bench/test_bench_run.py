"""A grid that runs: its cells are fits, a killed one goes on where it was, and several processes find the same."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from light_evidence import LIGHT

import pairsift
from pairsift.bench.grid import read_grid
from pairsift.bench.workers import Bench
from pairsift.cli import main
from pairsift.errors import InputError
from pairsift.files import only_writer
from pairsift.marker import write_marker
from pairsift.runs.config import from_tree
from pairsift.runs.fit import fit_config
from pairsift.runs.judge import Judge, of_training
from pairsift.scenes import write_scenes
from pairsift.train.loop import Trainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # whole fits, on slow cores

NCR = {"method": "ncr", "ncr": {"epochs": {"warmup": 1, "clean": 1, "all": 1}}}
OPTIONS = {"detect": LIGHT, "batch_size": 64, "device": "cpu", "plain": {"epochs": {"warmup": 0, "train": 2}}}
TIMES = ("seconds", "train_seconds")
NUMBERS = (
    "rsum",
    "recall",
    "recall_single",
    "dev_rsum",
    "best_epoch",
    "facts",
    "trust_auroc",
    "index_hash",
    "data_hash",
)


def grid_file(place, source, methods, **more):
    tree = {"source": str(source), "out": str(place / "rows"), "methods": methods, "noise": 0.4}
    tree["options"] = {**OPTIONS, "cache": str(place.parent / "cache"), **more.pop("options", {})}
    path = place / "grid.yaml"
    path.write_text(yaml.safe_dump(tree | more))
    return path


def rows_of(place):
    rows = json.loads((place / "rows" / "rows.json").read_text())["rows"]
    return {row["cell"]: {name: value for name, value in row.items() if name not in TIMES} for row in rows}


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """So few scenes that nothing is said of them by held-out evidence, which is then soon over."""
    folder = tmp_path_factory.mktemp("few") / "scenes"
    write_scenes(folder, 16, 2)
    return folder


@pytest.fixture(scope="module")
def whole(few, tmp_path_factory):
    """The rows of a grid that nothing disturbed."""
    place = tmp_path_factory.mktemp("whole")
    assert main(["bench", str(grid_file(place, few, ["plain", NCR])), "--jobs=1", "--quiet"]) == 0
    return place


def test_a_cell_has_the_numbers_of_a_fit_with_its_options(tmp_path):
    write_scenes(tmp_path / "scenes", 36, 2)  # enough for verdicts, and for a choice of the text encoder
    path = grid_file(tmp_path, tmp_path / "scenes", ["plain", NCR], seeds=[3])
    assert main(["bench", str(path), "--jobs=1", "--quiet"]) == 0
    rows = rows_of(tmp_path)
    for cell in read_grid(path).cells:
        run = fit_config(from_tree(cell.tree | {"out": str(tmp_path / cell.method)}), progress=False)
        row = rows[cell.id]
        assert row["recall"] == run.metrics["test"]["ensemble"]
        networks = [view for name, view in run.metrics["test"].items() if name != "ensemble"]
        assert row["recall_single"]["t2i_r5"] == sum(view["t2i_r5"] for view in networks) / 2
        assert (
            row["best_epoch"] == run.metrics["best"]["epoch"]
            and row["index_hash"] == run.metrics["noise"]["index_hash"]
        )
        trained_by = Judge(of_training(run.prepared), run.folder, run.config, False).judge()
        assert row["estimated_rate"] == pytest.approx(trained_by.rate, abs=1e-6)
        assert {name: row[name] for name in ("method", "noise", "noise_kind", "seed")} == {
            "method": cell.method,
            "noise": 0.4,
            "noise_kind": "random",
            "seed": 3,
        }
    assert not list((tmp_path / "rows" / "cells").iterdir())  # checkpoints are of no more use
    path = grid_file(tmp_path, tmp_path / "scenes", ["plain"], seeds=[3], folds=3)
    assert main(["bench", str(path), "--jobs=1", "--quiet"]) == 0
    folded = rows_of(tmp_path)[read_grid(path).cells[0].id]
    run = pairsift.open_run(tmp_path / "plain", progress=False)
    assert folded["recall"] == pytest.approx(run.evaluate("test", 3)["ensemble"]) and folded["folds"] == 3
    assert len(list((tmp_path / "rows" / "evidence").glob("*/prior.npz"))) == 1  # which both cells share


def test_a_grid_that_was_stopped_goes_on_in_the_middle_of_a_cell(few, whole, tmp_path, monkeypatch, capsys):
    path, finish, trained = grid_file(tmp_path, few, ["plain", NCR]), Trainer._finish, []

    def finished(trainer, epoch, *rest):
        finish(trainer, epoch, *rest)
        trained.append((trainer.method.name, epoch))
        if stop_after == trained[-1]:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_finish", finished)
    stop_after = ("ncr", 1)
    assert main(["bench", str(path), "--jobs=1"]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "pairsift: stopped; repeat the command to go on"
    assert [row["method"] for row in rows_of(tmp_path).values()] == ["plain"]
    assert "plain" in (tmp_path / "rows" / "table.md").read_text()
    stop_after = None
    assert main(["bench", str(path), "--jobs=1"]) == 0
    assert trained == [("plain", 0), ("plain", 1), ("ncr", 0), ("ncr", 1), ("ncr", 2)]
    assert list(rows_of(tmp_path).values()) == list(
        {**rows_of(whole)[name], "options": row["options"]} for name, row in rows_of(tmp_path).items()
    )
    for name in ("table.md", "table.csv", "table.tex"):
        assert (tmp_path / "rows" / name).read_text() == (whole / "rows" / name).read_text()
    capsys.readouterr()
    assert main(["bench", str(path)]) == 0  # nothing is left to measure
    assert len(trained) == 5 and "2 cells, 2 of them measured before" in capsys.readouterr().err


def test_a_grid_that_grows_measures_what_is_new(few, whole, tmp_path):
    path = grid_file(whole, few, ["plain", {**NCR, "label": "NCR"}])
    grid = read_grid(path)
    assert Bench(whole / "rows", grid.cells).missing == []  # a label is no option
    grown = read_grid(grid_file(tmp_path, few, ["plain", "gsc"], options={"cache": str(whole.parent / "cache")})).cells
    assert [cell.method for cell in Bench(whole / "rows", grown).missing] == ["gsc"]


def test_several_processes_find_what_one_finds(few, whole, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    grid = read_grid(grid_file(tmp_path, few, ["plain", NCR]))
    seen = []
    bench = Bench(tmp_path / "rows", grid.cells)
    bench.measure(2, seen.append)
    assert {cell.method for cell in seen} == {"plain", "ncr"} and not bench.failed
    found, expected = rows_of(tmp_path), rows_of(whole)
    assert found.keys() == expected.keys()
    for name, row in found.items():
        assert [row[key] for key in NUMBERS] == [expected[name][key] for key in NUMBERS]


def test_a_process_that_is_killed_ends_the_command_with_a_line(few, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.syspath_prepend(tmp_path)
    text = "import os\nfrom pairsift.methods.plain import Plain\nclass Dies(Plain):\n    name = 'dies'\n"
    text += "    def step(self, *args):\n        os.kill(os.getpid(), 9)\n"
    (tmp_path / "dying.py").write_text(text)
    path = grid_file(tmp_path, few, [{"method": "dying:Dies", "label": "mine"}, "plain"])
    assert main(["bench", str(path), "--jobs=2", "--quiet"]) == 2
    assert "a process was ended from outside" in capsys.readouterr().err.splitlines()[-1]
    assert main(["bench", str(grid_file(tmp_path, few, ["plain"])), "--jobs=2", "--quiet"]) == 0


def test_the_processes_of_a_killed_grid_end(few, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    text = (
        "import os, pathlib, time\nfrom pairsift.methods.plain import Plain\nclass Waits(Plain):\n    name = 'waits'\n"
    )
    text += f"    def step(self, *args):\n        pathlib.Path({str(tmp_path)!r}, f'{{os.getpid()}}.worker').touch()\n"
    text += "        time.sleep(600)\n"
    (tmp_path / "waiting.py").write_text(text)
    mine = [{"method": "waiting:Waits", "label": f"{lr}", "lr": lr} for lr in (1e-3, 2e-3)]
    path = grid_file(tmp_path, few, [*mine, "plain"])
    child = subprocess.Popen([sys.executable, "-m", "pairsift.cli", "bench", str(path), "--jobs=2", "--quiet"])
    try:
        assert comes_true(lambda: len(list(tmp_path.glob("*.worker"))) == 2, 300)
    finally:
        child.kill()
        child.wait()
    workers = [int(file.stem) for file in tmp_path.glob("*.worker")]
    assert comes_true(lambda: not any(map(is_running, workers)), 30)


def is_running(process):
    """Whether a process is there, other than as a dead one that nobody has waited for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def comes_true(holds, seconds):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.2)
    return holds()


def test_a_cell_that_fails_is_said_and_the_others_go_on(few, tmp_path, capsys):
    wild = {"method": "plain", "label": "wild", "lr": 1e30, "max_norm": 0}
    path = grid_file(tmp_path, few, [wild, "plain"])
    assert main(["bench", str(path), "--jobs=1", "--quiet"]) == 2
    line = capsys.readouterr().err.strip()
    assert line.startswith("pairsift: 1 of 2 cells failed; wild, two_tower, 40%, seed 1: ") and "diverged" in line
    assert [row["method"] for row in rows_of(tmp_path).values()] == ["plain"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_bug_in_a_method_fails_its_cell_alone(few, tmp_path, monkeypatch, capfd, jobs):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.syspath_prepend(tmp_path)
    module = f"broken_{jobs}"
    text = "from pairsift.methods.plain import Plain\nclass Broken(Plain):\n    name = 'broken'\n"
    text += "    def step(self, *args):\n        raise ValueError('a bug in my loss')\n"
    (tmp_path / f"{module}.py").write_text(text)
    path = grid_file(tmp_path, few, [{"method": f"{module}:Broken", "label": "mine"}, "plain"])
    assert main(["bench", str(path), f"--jobs={jobs}", "--quiet"]) == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert (
        lines[-1]
        == "pairsift: 1 of 2 cells failed; mine, two_tower, 40%, seed 1: ValueError: a bug in my loss (printed above)"
    )
    assert any(line.startswith("Traceback") for line in lines)
    assert [row["method"] for row in rows_of(tmp_path).values()] == ["plain"]


def test_a_grid_whose_cells_all_fail_leaves_the_tables(few, tmp_path, capsys):
    path = grid_file(tmp_path, few, ["plain"])
    assert main(["bench", str(path), "--jobs=1", "--quiet"]) == 0
    before = (tmp_path / "rows" / "table.csv").read_text()
    wild = {"method": "plain", "label": "wild", "lr": 1e30, "max_norm": 0}
    assert main(["bench", str(grid_file(tmp_path, few, [wild])), "--jobs=1", "--quiet"]) == 2
    assert (tmp_path / "rows" / "table.csv").read_text() == before


def test_rows_of_a_source_that_has_changed_are_refused(few, tmp_path, capsys):
    source = tmp_path / "scenes"
    shutil.copytree(few, source)
    assert main(["bench", str(grid_file(tmp_path, source, ["plain"])), "--jobs=1", "--quiet"]) == 0
    before = (tmp_path / "rows" / "rows.json").read_bytes()
    table = next(path for path in source.glob("*.csv"))
    head, *lines = table.read_text().splitlines()
    table.write_text("\n".join([head, *lines[::-1]]) + "\n")
    for methods in (["plain"], [{"method": "plain", "lr": 0.002}]):  # a finished grid, and one whose evidence is there
        assert main(["bench", str(grid_file(tmp_path, source, methods)), "--jobs=1", "--quiet"]) == 2
        assert "has changed since it was measured in" in capsys.readouterr().err
    assert (tmp_path / "rows" / "rows.json").read_bytes() == before


def test_two_calls_do_not_write_the_same_rows(few, tmp_path):
    cells = read_grid(grid_file(tmp_path, few, ["plain"])).cells
    (tmp_path / "rows").mkdir()
    with only_writer(tmp_path / "rows"), pytest.raises(InputError, match=r"process \d+ on \S+ is writing"):
        Bench(tmp_path / "rows", cells).measure(1)
    write_marker(tmp_path / "rows", "grid")
    (tmp_path / "rows" / "rows.json").write_text("[]")
    with pytest.raises(InputError, match="holds no rows of a grid"):
        Bench(tmp_path / "rows", cells)
