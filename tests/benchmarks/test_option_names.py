"""Options of committed rows have names of today, by which rows are looked up."""

import json
import sys
from pathlib import Path

import pytest
from typed_options import typed

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from flickr8k import VARIANTS
from option_names import flag, present, tree

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_options_are_typed_with_dashes_in_their_names_alone():
    assert flag("pc2.captions.mismatch_threshold=0.5") == "--pc2.captions.mismatch-threshold=0.5"
    assert flag("schedule=one_cycle") == "--schedule=one_cycle"


def test_options_make_a_tree():
    options = ["pc2.captions.search=batch", "pc2.captions.compare=class", "pc2.networks=1", "two-tower.dim=8", "lr=0.1"]
    pc2 = {"captions": {"search": "batch", "compare": "class"}, "networks": "1"}
    assert tree(options) == {"pc2": pc2, "two_tower": {"dim": "8"}, "lr": "0.1"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("npc.epochs=8", "npc.epochs.train=8"),
        ("oracle.warmup_epochs=3", "oracle.epochs.warmup=3"),
        ("npc.threshold=0.8", "npc.bank.threshold=0.8"),
        ("ncr.threshold=0.7", "ncr.division.threshold=0.7"),
        ("gsc.indicators=cross_modal", "gsc.indicators.use=cross_modal"),
        ("pcsr.noisy=none", "pcsr.noisy.train=none"),
        ("pc2.captions.mismatch-threshold=0.5", "pc2.captions.mismatch_threshold=0.5"),
        ("pc2.networks=1", "pc2.networks=1"),
        ("batch_size=64", "batch_size=64"),
        ("epochs=8", "epochs=8"),
    ],
)
def test_names_from_before_options_had_groups_are_told_by_those_of_today(old, new):
    assert present(old) == new == present(new)


@pytest.mark.parametrize("name", ["ablations", "flickr8k", "variants"])
def test_options_of_committed_rows_are_options_of_a_fit(name):
    rows = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
    runs = {
        (row["matcher"], VARIANTS.get(row["method"], (row["method"],))[0], row["loss"], *row["options"]) for row in rows
    }
    assert len(runs) > 5
    for matcher, method, loss, *options in runs:
        config = typed(
            [f"--matcher={matcher}", f"--method={method}", f"--loss={loss}", *(flag(present(one)) for one in options)]
        )
        assert (config.matcher.name, config.method.name, config.loss.name) == (matcher, method, loss)
