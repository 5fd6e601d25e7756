"""Ranks and recall."""

from pairsift.retrieve.ranks import Ranks, image_folds, ranks, recall

__all__ = ["Ranks", "image_folds", "ranks", "recall"]
