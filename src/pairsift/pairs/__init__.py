"""What the user brings: readers for every format, splits, and injected noise."""

from pairsift.pairs.kept import read_kept, write_kept
from pairsift.pairs.merge import Changes, merge, unchanged
from pairsift.pairs.noise import inject, read_index, write_index
from pairsift.pairs.pairs import SPLITS, Noise, Pairs, Skip
from pairsift.pairs.precomputed import Precomputed, open_rows
from pairsift.pairs.readers import READERS, load
from pairsift.pairs.scenes import write_scenes

__all__ = [
    "READERS",
    "SPLITS",
    "Changes",
    "Noise",
    "Pairs",
    "Precomputed",
    "Skip",
    "inject",
    "load",
    "merge",
    "open_rows",
    "read_index",
    "read_kept",
    "unchanged",
    "write_index",
    "write_kept",
    "write_scenes",
]
