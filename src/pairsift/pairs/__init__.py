"""Image-caption pairs: readers for every format, and splits."""

from typing import TYPE_CHECKING

from pairsift.registry import exported

if TYPE_CHECKING:
    from pairsift.pairs.changes import Changes as Changes
    from pairsift.pairs.changes import merge as merge
    from pairsift.pairs.changes import since_begun as since_begun
    from pairsift.pairs.changes import unchanged as unchanged
    from pairsift.pairs.pairs import SPLITS as SPLITS
    from pairsift.pairs.pairs import Noise as Noise
    from pairsift.pairs.pairs import Pairs as Pairs
    from pairsift.pairs.pairs import Skip as Skip
    from pairsift.pairs.precomputed import Precomputed as Precomputed
    from pairsift.pairs.precomputed import open_rows as open_rows
    from pairsift.pairs.readers import READERS as READERS
    from pairsift.pairs.readers import load as load
    from pairsift.pairs.stored import read_stored_pairs as read_stored_pairs
    from pairsift.pairs.stored import write_known_pairs as write_known_pairs
    from pairsift.pairs.stored import write_stored_pairs as write_stored_pairs

_MODULES = {
    "Changes": "changes",
    "Noise": "pairs",
    "Pairs": "pairs",
    "Precomputed": "precomputed",
    "READERS": "readers",
    "SPLITS": "pairs",
    "Skip": "pairs",
    "load": "readers",
    "merge": "changes",
    "open_rows": "precomputed",
    "read_stored_pairs": "stored",
    "since_begun": "changes",
    "unchanged": "changes",
    "write_known_pairs": "stored",
    "write_stored_pairs": "stored",
}
__all__ = list(_MODULES)
__getattr__ = exported(__name__, _MODULES)
