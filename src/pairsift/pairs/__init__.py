"""What the user brings: readers for every format, splits, and injected noise."""

from pairsift.pairs.noise import inject, read_index, write_index
from pairsift.pairs.pairs import SPLITS, Noise, Pairs, Skip
from pairsift.pairs.readers import READERS, load
from pairsift.pairs.scenes import write_scenes

__all__ = ["READERS", "SPLITS", "Noise", "Pairs", "Skip", "inject", "load", "read_index", "write_index", "write_scenes"]
