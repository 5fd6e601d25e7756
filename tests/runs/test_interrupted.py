"""A run that is stopped at any moment goes on with `--resume`, and says so; `--quiet` says nothing."""

import shutil

import pytest
import yaml
from light_evidence import LIGHT

from pairsift.cli import main
from pairsift.detect import DetectOptions
from pairsift.errors import WriteError
from pairsift.runs import fit as module
from pairsift.train import checkpoint
from pairsift.train.loop import Trainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # whole fits, on slow cores

MOMENTS = {
    "reading": "pairsift.runs.prepare.read_pairs",
    "encoding": "pairsift.encode.cache._image_chunk",
    "listing": "pairsift.runs.fit.write_skipped",
    "keeping": "pairsift.runs.fit.write_stored_pairs",
    "evidence": "pairsift.runs.judge.judge_pairs",
    "beginning": "pairsift.train.loop.Trainer.__init__",
    "an epoch": "pairsift.train.loop.Trainer._finish",
    "the end": "pairsift.runs.fit.recall_metrics",
    "judging": "pairsift.runs.judging.suggest",
    "the report": "pairsift.runs.run.write_report",
}


@pytest.fixture
def words(scenes, tmp_path):
    light = DetectOptions().changed(LIGHT).changed({"calibration": {"resamples": 4}})  # it judges anew every time
    (tmp_path / "light.yaml").write_text(yaml.safe_dump({"detect": light.changes()}))
    options = [
        f"--config={tmp_path / 'light.yaml'}",
        "--batch-size=64",
        "--device=cpu",
        "--noise=0.4",
        "--epochs=3",
        "--seed=4",
    ]
    return ["fit", str(scenes), f"--out={tmp_path / 'run'}", f"--cache={tmp_path / 'cache'}", *options]


def stop(*args, **kwargs):
    raise KeyboardInterrupt


def test_a_stop_at_any_moment_is_gone_on_from(words, tmp_path, monkeypatch, capsys):
    """Each moment is stopped in turn, in one folder, always with the features and weights of the stop before."""
    for number, (moment, name) in enumerate(MOMENTS.items()):
        resume = ["--resume"] if number else []
        with monkeypatch.context() as patch:
            patch.setattr(name, stop)
            assert main([*words, *resume]) == 130, moment
        said = capsys.readouterr().err.splitlines()[-1]
        assert said == "pairsift: stopped; repeat the command with --resume to continue the run", moment
    steps = []
    monkeypatch.setattr(Trainer, "_train", lambda *args: steps.append(args))
    assert main([*words, "--resume", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert out == err == "" and steps == []  # the training was over before the report was stopped
    assert (tmp_path / "run" / "report.html").exists() and not (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert main([*words, "--resume"]) == 2
    assert "there is nothing to resume" in capsys.readouterr().err
    assert main(["audit", str(tmp_path / "run"), "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert out == err == ""


def test_a_stop_before_anything_is_there_promises_nothing(words, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "claimed", stop)
    assert main(words) == 130
    assert capsys.readouterr().err == "pairsift: stopped\n"
    assert not (tmp_path / "run").exists()


def test_a_full_disk_leaves_a_run_that_goes_on(words, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:

        def full(tensors, file, facts):
            raise OSError(28, "No space left on device")

        patch.setattr(checkpoint, "save_file", full)
        assert main([*words, "--quiet"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "best.safetensors: cannot be written (No space left on device); free space" in err
    with monkeypatch.context() as patch:
        patch.setattr(module, "prepare", lambda *args: (_ for _ in ()).throw(WriteError("the cache is full")))
        assert main([*words, "--quiet", "--resume"]) == 2
    assert (tmp_path / "run" / "config.yaml").exists()
    assert main([*words, "--quiet", "--resume"]) == 0
    shutil.rmtree(tmp_path / "run")
