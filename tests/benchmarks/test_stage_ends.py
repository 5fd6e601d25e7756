"""The benchmark of stages that end, at reduced size."""

from pathlib import Path

import pytest

import endings

pytestmark = pytest.mark.slow


def test_both_plans_start_alike_and_the_end_comes_sooner(tmp_path):
    wanted = [dict(zip(endings.KEY, ("scenes-100", 0.3, 1, "sift", plan), strict=True)) for plan in endings.PLANS]
    planned, ended = endings.measure(wanted, Path("nowhere"), str(tmp_path))
    assert planned["epochs"] == planned["planned"] == ended["planned"] > ended["epochs"]
    assert planned["dev"][0] == ended["dev"][0]
    assert "| scenes-100 | 400 | 30% | sift | 1 |" in endings.table([planned, ended])
