"""Ranks, recall and search."""

from pairsift.retrieve.ranks import Ranks, folded, ranks, recall
from pairsift.retrieve.search import top

__all__ = ["Ranks", "folded", "ranks", "recall", "top"]
