"""Mismatches that are planted to measure by: captions of random or near images, edited and vague ones."""

from typing import TYPE_CHECKING

from pairsift.registry import exported

if TYPE_CHECKING:
    from pairsift.noise.edits import plant_edit as plant_edit
    from pairsift.noise.kinds import plant_near as plant_near
    from pairsift.noise.kinds import plant_vague as plant_vague
    from pairsift.noise.planted import plant_in_all_splits as plant_in_all_splits
    from pairsift.noise.planted import plant_noise as plant_noise
    from pairsift.noise.planted import read_index as read_index
    from pairsift.noise.planted import write_index as write_index

_MODULES = {
    "plant_edit": "edits",
    "plant_in_all_splits": "planted",
    "plant_near": "kinds",
    "plant_noise": "planted",
    "plant_vague": "kinds",
    "read_index": "planted",
    "write_index": "planted",
}
__all__ = list(_MODULES)
__getattr__ = exported(__name__, _MODULES)
