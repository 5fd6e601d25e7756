"""Every row of the ablations is options that `fit` takes."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import ablations
from pairsift.api.config import Config


@pytest.mark.parametrize("name", sorted(ablations.STUDIES))
def test_rows_are_options_of_their_method(name: str) -> None:
    study = ablations.STUDIES[name]
    for options in map(study.options, study.rows):
        config = Config.parse(["x", f"--method={study.method}", *(f"--{option}" for option in options)])
        assert config.method().name == study.method
        for option, value in (one.split("=") for one in options):
            head, _, tail = option.rpartition(".")
            found = config[head][tail] if head else config[tail]
            assert str(found).lower() in (value, f"{value}.0"), option


def test_studies_without_rows_have_no_table() -> None:
    assert ablations.tables([]) == ""
    row = {"method": "npc", "noise": 0.6, "seed": 1, "images": ablations.IMAGES, "options": ["npc.threshold=0.5"]}
    rows = [
        row | {"seed": seed, "rsum": rsum, "rsum_single": 2.0, "auroc": 0.5} for seed, rsum in enumerate((1.0, 4.0))
    ]
    lines = ablations.tables(rows).splitlines()
    assert [line for line in lines if line.startswith("##")] == ["## npc_threshold (npc, Table 5; 0.8 is the preset)"]
    assert lines[-1] == "| tau = 0.5 | 60% | 2.5 (3.0; 2 seeds) | 2.0 | 0.5000 |"
