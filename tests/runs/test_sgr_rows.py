"""The commands that docs/matchers.md gives for the papers' rows SGR, SGR* and SGR-C do what it says of them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from light_evidence import light_file

import pairsift
from pairsift.cli import main
from pairsift.methods.oracle import Oracle
from pairsift.methods.plain import Plain
from pairsift.runs.config import configure
from published_layout import REGIONS, WIDTH

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "matchers.md"
ROWS = {
    row[1]: shlex.split(row[2])
    for row in re.finditer(
        r"^\| (SGR[^ ]*) \|[^|]*\| `(pairsift fit [^`]*)` \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
}
SMALL = ["--batch-size", "8", "--vocabulary", "vocab.json", "--device", "cpu", "--threads", "1"]
SIZES = ["--sgr.dim", "8", "--sgr.word-dim", "4", "--sgr.similarity-dim", "6"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows") / "tiny_precomp"
    folder.mkdir()
    rng = np.random.default_rng(3)
    words = ["a", "red", "green", "blue", "dog", "cat", "boat", "bird"]
    for stem, count in (("train", 40), ("dev", 8), ("test", 8)):
        np.save(folder / f"{stem}_ims.npy", rng.normal(size=(count, REGIONS, WIDTH)).astype(np.float32))
        captions = [" ".join(rng.choice(words, 4)) for _ in range(2 * count)]
        (folder / f"{stem}_caps.txt").write_text("\n".join(captions) + "\n")
    numbers = {word: at for at, word in enumerate(["<pad>", "<start>", "<end>", "<unk>", *words])}
    (folder / "vocab.json").write_text(json.dumps({"word2idx": numbers}))
    return folder


def run_of(row: str, source: Path, out: Path):
    words = [str(source) if word.startswith("data/") else word for word in ROWS[row][1:]]
    small = [str(source / word) if word == "vocab.json" else word for word in SMALL]
    short = [f"--{'oracle' if row == 'SGR-C' else 'plain'}.epochs.train", "3"]
    more = [
        *small,
        *short,
        *SIZES,
        "--config",
        str(light_file(out.parent)),
        "--cache",
        str(out.parent / "cache"),
        "--out",
        str(out),
        "--quiet",
    ]
    assert main([*words, *more]) == 0
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return pairsift.open_run(out, progress=False), [line for line in log if "phase" in line]


def test_the_page_has_the_three_rows():
    assert list(ROWS) == ["SGR", "SGR*", "SGR-C"]


@pytest.mark.parametrize(("row", "warm"), [("SGR", 0), ("SGR*", 5), ("SGR-C", 0)])
def test_the_command_of_a_row_runs_and_trains_as_the_row_says(source, tmp_path, row, warm):
    run, log = run_of(row, source, tmp_path / "run")
    config = run.config
    assert config.matcher.name == "sgr" and config.data.noise == 0.2 and config.method.networks == 1
    assert config.loss.name == "hinge" and config.loss.negatives == "hardest"  # in the warm-up their mean
    assert [line["phase"] for line in log] == ["warm-up"] * warm + ["train"] * 3
    assert isinstance(config.method, Oracle if row == "SGR-C" else Plain)
    assert run.pairs()["truly_mismatched"].to_pylist().count(True) > 5


@pytest.mark.parametrize("method", ["plain", "oracle"])
def test_the_training_after_the_warm_up_has_the_papers_length(source, method):
    assert configure(source, method=method, matcher="sgr").method.epochs.train == 40
