"""Image-caption pairs: readers for every format, splits, and planted noise."""

from typing import TYPE_CHECKING

from pairsift.registry import exported

if TYPE_CHECKING:
    from pairsift.pairs.changes import Changes as Changes
    from pairsift.pairs.changes import merge as merge
    from pairsift.pairs.changes import since_begun as since_begun
    from pairsift.pairs.changes import unchanged as unchanged
    from pairsift.pairs.noise import plant_in_all_splits as plant_in_all_splits
    from pairsift.pairs.noise import plant_noise as plant_noise
    from pairsift.pairs.noise import read_index as read_index
    from pairsift.pairs.noise import write_index as write_index
    from pairsift.pairs.noise_kinds import plant_near as plant_near
    from pairsift.pairs.noise_kinds import plant_vague as plant_vague
    from pairsift.pairs.pairs import SPLITS as SPLITS
    from pairsift.pairs.pairs import Noise as Noise
    from pairsift.pairs.pairs import Pairs as Pairs
    from pairsift.pairs.pairs import Skip as Skip
    from pairsift.pairs.precomputed import Precomputed as Precomputed
    from pairsift.pairs.precomputed import open_rows as open_rows
    from pairsift.pairs.readers import READERS as READERS
    from pairsift.pairs.readers import load as load
    from pairsift.pairs.scenes import write_scenes as write_scenes
    from pairsift.pairs.stored import read_stored_pairs as read_stored_pairs
    from pairsift.pairs.stored import write_known_pairs as write_known_pairs
    from pairsift.pairs.stored import write_stored_pairs as write_stored_pairs
    from pairsift.pairs.wrong_details import plant_edit as plant_edit

_MODULES = {
    "Changes": "changes",
    "Noise": "pairs",
    "Pairs": "pairs",
    "Precomputed": "precomputed",
    "READERS": "readers",
    "SPLITS": "pairs",
    "Skip": "pairs",
    "plant_edit": "wrong_details",
    "plant_in_all_splits": "noise",
    "plant_near": "noise_kinds",
    "plant_noise": "noise",
    "plant_vague": "noise_kinds",
    "load": "readers",
    "merge": "changes",
    "open_rows": "precomputed",
    "read_index": "noise",
    "read_stored_pairs": "stored",
    "since_begun": "changes",
    "unchanged": "changes",
    "write_index": "noise",
    "write_known_pairs": "stored",
    "write_stored_pairs": "stored",
    "write_scenes": "scenes",
}
__all__ = list(_MODULES)
__getattr__ = exported(__name__, _MODULES)
