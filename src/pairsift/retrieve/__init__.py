"""Ranks and recall."""

from pairsift.retrieve.ranks import Ranks, folded, ranks, recall

__all__ = ["Ranks", "folded", "ranks", "recall"]
