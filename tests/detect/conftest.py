"""References as large folds have them, for small ones."""

import pytest

from pairsift.detect import evidence


@pytest.fixture
def own_references(monkeypatch):
    """Pairs are compared with references of their own fold, however small it is."""
    monkeypatch.setattr(evidence, "MIN_REFERENCES", 1)
