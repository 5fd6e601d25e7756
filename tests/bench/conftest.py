"""Fits at less cost: these tests are about grids."""

import sys
from pathlib import Path

import pytest

from pairsift.methods import METHODS
from quick_fits import quick_fits

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))  # light_evidence.py


@pytest.fixture(scope="module", autouse=True)
def _quick_fits(tmp_path_factory):
    with quick_fits(tmp_path_factory):
        yield


@pytest.fixture(autouse=True)
def _known_methods(monkeypatch):
    """Let methods of a test's own be known to that test alone."""
    monkeypatch.setattr(METHODS, "_loaded", dict(METHODS._loaded))
