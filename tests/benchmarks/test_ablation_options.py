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
