"""The benchmark of verdicts at reduced size: drawn scenes, clean ones among them."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import verdicts


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """One row for nothing shuffled and one for 30%."""
    cache = str(tmp_path_factory.mktemp("cache"))
    key = ("verdicts", "scenes-60", 0.0, "all", 1, "")
    wanted = dict(zip(verdicts.KEY, key, strict=True))
    return [verdicts.measure({**wanted, "noise": noise}, Path("nowhere"), cache) for noise in (0.0, 0.3)]


def test_clean_scenes_stay_clean_and_shuffled_ones_are_found(rows):
    clean, noisy = rows
    assert clean["verdicts"] and clean["flagged"] <= 0.03 and clean["estimate"] <= 0.03
    assert noisy["estimate"] == pytest.approx(noisy["wrong"], abs=0.1)
    assert noisy["auroc"] >= max(noisy["auroc_cca"], noisy["auroc_knn"]) - 0.01
    assert noisy["calibration"] < 0.1


def test_the_tables_name_every_collection(rows):
    assert "| scenes-60 | 300 | 30% |" in verdicts.page(rows)
    assert verdicts.summary(rows).splitlines()[-1].startswith("| `scenes-60` | 300 | 0.0% |")


def test_the_calibration_error_is_that_of_bins_of_equal_mass():
    probability = np.repeat([0.1, 0.9], 150)
    right = np.concatenate([np.arange(150) < 30, np.arange(150) < 120])
    error = verdicts.calibration(probability, right, bins=2)
    assert error == pytest.approx((abs(0.1 - 0.2) + abs(0.9 - 0.8)) / 2)
