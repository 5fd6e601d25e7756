"""Trainable matchers: codes for images and texts, and their similarity."""

from pairsift.match.base import Codes, ImageKind, Matcher, TextKind, unit
from pairsift.match.imram import Imram
from pairsift.match.scan import Scan
from pairsift.match.two_tower import TwoTower
from pairsift.match.vse import Vse

MATCHERS: dict[str, type[Matcher]] = {"two_tower": TwoTower, "vse": Vse, "scan": Scan, "imram": Imram}

__all__ = ["MATCHERS", "Codes", "ImageKind", "Imram", "Matcher", "Scan", "TextKind", "TwoTower", "Vse", "unit"]
