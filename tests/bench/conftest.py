"""Held-out evidence at less cost: these tests are about grids."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))

from light_evidence import light_evidence


@pytest.fixture(scope="module", autouse=True)
def _quick_evidence():
    with light_evidence():
        yield
