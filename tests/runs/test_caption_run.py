"""The caption loss of VSRN by the command line: trained, saved, opened again; and refused where nothing writes."""

from __future__ import annotations

import json
import shlex
import warnings

import pytest
from light_evidence import light_file

import pairsift
from pairsift.cli import main
from published_layout import write_source

pytestmark = pytest.mark.slow

SMALL = shlex.split("--batch-size 6 --device cpu --threads 1 --vsrn.dim 8 --vsrn.word-dim 4 --vsrn.graphs 1 --quiet")
EPOCHS = shlex.split("--method ncr --ncr.epochs.warmup 1 --ncr.epochs.clean 1 --ncr.epochs.all 1")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_source(tmp_path_factory.mktemp("writing") / "tiny_precomp")[0]


def fitted(source, out, *more):
    light = light_file(out.parent)
    words = ["fit", str(source), "--matcher", "vsrn", *EPOCHS, *SMALL, "--cache", str(out.parent / "cache")]
    words += ["--config", str(light)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # twelve pairs make a poor mixture
        assert main([*words, "--out", str(out), *more]) == 0
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def test_a_run_trains_with_it_and_opens_again(source, tmp_path, capsys):
    log = fitted(source, tmp_path / "writing", "--vsrn.caption-weight", "1")
    opened = pairsift.open_run(tmp_path / "writing", progress=False)
    assert all(matcher.captioner is not None for matcher in opened.matchers)
    assert 0 < opened.evaluate()["ensemble"]["rsum"] <= 600
    without = fitted(source, tmp_path / "plain")
    assert pairsift.open_run(tmp_path / "plain", progress=False).matchers[0].captioner is None
    first, other = (next(line for line in lines if "loss" in line)["loss"]["network_0"] for lines in (log, without))
    assert sum(first.values()) > sum(other.values())  # by minus the log-likelihood of the captions
    capsys.readouterr()


@pytest.mark.parametrize(
    ("matcher", "says"),
    [
        ("vse", "is an option of --matcher vsrn, which this run does not have"),
        ("two_tower", "is an option of --matcher"),
    ],
)
def test_where_nothing_writes_captions_it_is_refused(source, tmp_path, capsys, matcher, says):
    words = ["fit", str(source), "--matcher", matcher, "--out", str(tmp_path / "run"), "--vsrn.caption-weight", "1"]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and says in err, err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("matcher", ["vse", "scan", "two_tower"])
def test_other_matchers_have_no_such_option(source, tmp_path, capsys, matcher):
    words = ["fit", str(source), "--matcher", matcher, "--out", str(tmp_path / "run")]
    assert main([*words, f"--{matcher}.caption-weight", "1"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "caption-weight" in err, err
