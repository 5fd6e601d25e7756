"""Every row of the ablations is options that `fit` takes."""

import json
import sys
from pathlib import Path

import pytest
from typed_options import typed

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import ablations
import studies
from option_names import flag, present
from pairsift.runs.config import flattened

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.mark.parametrize("name", sorted(studies.STUDIES))
def test_rows_are_options_of_their_method(name: str) -> None:
    study = studies.STUDIES[name]
    for options in map(study.options, study.rows):
        config = typed([f"--method={study.method}", *map(flag, options)])
        assert config.method.name == study.method
        found = flattened(config.tree())
        for option, value in (one.split("=") for one in options):
            assert str(found[option]).lower() in (value, f"{value}.0"), option


def test_committed_rows_are_rows_of_a_study() -> None:
    rows = json.loads((RESULTS / "ablations.json").read_text())["rows"]
    known = {ablations.key(row | {"seed": 0}) for row in ablations.wanted_rows(list(studies.STUDIES), 0)}
    assert {ablations.key(row | {"seed": 0}) for row in rows} <= known
    assert all(option == present(option) for _, _, _, _, _, *options in known for option in options)


def test_studies_without_rows_have_no_table() -> None:
    assert ablations.tables([]) == ""
    row = {"method": "npc", "noise": 0.6, "seed": 1, "images": studies.IMAGES, "options": ["npc.bank.threshold=0.5"]}
    rows = [
        row | {"seed": seed, "rsum": rsum, "rsum_single": 2.0, "trust_auroc": 0.5, "own_caption": None}
        for seed, rsum in enumerate((1.0, 4.0))
    ]
    lines = ablations.tables(rows).splitlines()
    assert [line for line in lines if line.startswith("##")] == ["## npc_threshold (npc, Table 5; 0.8 is the preset)"]
    assert lines[-1] == "| tau = 0.5 | 60% | 2.5 (3.0; 2 seeds) | 2.0 | 0.5000 |  |  |"
