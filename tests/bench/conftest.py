"""Fits at less cost: these tests are about grids."""

import sys
from pathlib import Path

import pytest

from quick_fits import quick_fits

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))  # light_evidence.py


@pytest.fixture(scope="module", autouse=True)
def _quick_fits(tmp_path_factory):
    with quick_fits(tmp_path_factory):
        yield
