"""Ranks and recall."""

from pairsift.retrieve.answers import Answers
from pairsift.retrieve.ranks import Ranks, image_folds, ranks, recall

__all__ = ["Answers", "Ranks", "image_folds", "ranks", "recall"]
