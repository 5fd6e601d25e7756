"""Ranks and recall, and search."""

from pairsift.retrieve.ranks import Ranks, ranks, recall, recall_folds
from pairsift.retrieve.search import top

__all__ = ["Ranks", "ranks", "recall", "recall_folds", "top"]
