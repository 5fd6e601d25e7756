"""Trainable matchers: codes for images and texts, and their similarity."""

from pairsift.match.base import Codes, ImageKind, Matcher, TextKind, unit
from pairsift.match.clip import Clip
from pairsift.match.imram import Imram
from pairsift.match.scan import Scan
from pairsift.match.sgraf import Saf, Sgr, Sgraf
from pairsift.match.two_tower import TwoTower
from pairsift.match.vse import Vse
from pairsift.match.vsrn import Vsrn

MATCHERS: dict[str, type[Matcher]] = {
    one.name: one for one in (TwoTower, Vse, Vsrn, Clip, Scan, Imram, Saf, Sgr, Sgraf)
}

__all__ = [
    "MATCHERS",
    "Clip",
    "Codes",
    "ImageKind",
    "Imram",
    "Matcher",
    "Saf",
    "Scan",
    "Sgr",
    "Sgraf",
    "TextKind",
    "TwoTower",
    "Vse",
    "Vsrn",
    "unit",
]
