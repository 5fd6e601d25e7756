"""A fit that torchrun starts in two processes ends as a fit in one does, and writes one run."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from light_evidence import LIGHT
from safetensors.torch import load_file

from pairsift.detect import DetectOptions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def words(scenes: Path, place: Path, out: str) -> list[str]:
    """The command line of a fit without dropout, whose masks differ by process."""
    light = DetectOptions().changed(LIGHT).changed({"calibration": {"resamples": 4}})
    (place / "light.yaml").write_text(yaml.safe_dump({"detect": light.changes()}))
    return [
        *("fit", str(scenes), f"--out={place / out}", f"--cache={place / 'cache'}", f"--config={place / 'light.yaml'}"),
        *("--device=cpu", "--precision=fp32", "--threads=1", "--noise=0.4", "--seed=4", "--batch-size=63"),
        *("--method=ncr", "--epochs=3", "--two-tower.dropout=0", "--two-tower.dim=64", "--two-tower.hidden=64"),
    ]


def run(words: list[str], *start: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process, or in several that `start` begins."""
    return subprocess.run(
        [sys.executable, "-m", *start, "pairsift.cli", *words], check=False, capture_output=True, text=True
    )


TWO = "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"


def test_two_processes_write_the_run_of_one(scenes, tmp_path):
    alone = run(words(scenes, tmp_path, "one"))
    assert alone.returncode == 0, alone.stderr
    done = run(words(scenes, tmp_path, "two"), *TWO)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("stage 7 of 8: training") == 1 and done.stdout.count("AUROC") == 1
    one, two = (json.loads((tmp_path / run / "metrics.json").read_text()) for run in ("one", "two"))
    for split in ("dev", "test"):
        assert one[split]["ensemble"] == pytest.approx(two[split]["ensemble"], abs=1e-9)
    assert one["best"] == two["best"]
    for k in range(2):
        weights = [load_file(tmp_path / run / "model" / f"network_{k}.safetensors") for run in ("one", "two")]
        for name, value in weights[0].items():
            torch.testing.assert_close(weights[1][name], value, rtol=1e-3, atol=1e-4)
    trust = [pq.read_table(tmp_path / run / "method_state.parquet").to_pydict() for run in ("one", "two")]
    np.testing.assert_allclose(trust[1]["clean_probability_0"], trust[0]["clean_probability_0"], atol=1e-2)
    assert sorted(file.name for file in (tmp_path / "one").iterdir()) == sorted(
        file.name for file in (tmp_path / "two").iterdir()
    )
    again = run([*words(scenes, tmp_path, "two"), "--resume"], *TWO)
    ours = [line for line in again.stderr.splitlines() if line.startswith("pairsift:")]
    assert again.returncode != 0
    assert ours == [f"pairsift: {tmp_path / 'two'} holds a finished run: there is nothing to resume"]
