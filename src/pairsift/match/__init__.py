"""Trainable matchers. A matcher encodes images and texts, and computes their similarity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pairsift.registry import Entry, Registry

if TYPE_CHECKING:
    from pairsift.match.base import Codes as Codes
    from pairsift.match.base import Matcher as Matcher
    from pairsift.match.clip import Clip as Clip
    from pairsift.match.imram import Imram as Imram
    from pairsift.match.pau import Pau as Pau
    from pairsift.match.pcme import Pcme as Pcme
    from pairsift.match.pcmepp import Pcmepp as Pcmepp
    from pairsift.match.scan import Scan as Scan
    from pairsift.match.sgraf import Saf as Saf
    from pairsift.match.sgraf import Sgr as Sgr
    from pairsift.match.sgraf import Sgraf as Sgraf
    from pairsift.match.two_tower import TwoTower as TwoTower
    from pairsift.match.vse import Vse as Vse
    from pairsift.match.vsrn import Vsrn as Vsrn

MATCHER = "two_tower"  # of a run that names none
MATCHERS: Registry[type[Matcher]] = Registry(
    "matcher",
    {
        "two_tower": Entry(
            "pairsift.match.two_tower:TwoTower",
            "a residual head per side on frozen vectors; made for CPUs; the default",
        ),
        "pcmepp": Entry(
            "pairsift.match.pcmepp:Pcmepp",
            "PCME++: a Gaussian per item on frozen vectors, distances in closed form (Chun, ICLR 2024)",
        ),
        "pcme": Entry(
            "pairsift.match.pcme:Pcme",
            "PCME: a Gaussian per item on frozen vectors, matched by samples (Chun et al., CVPR 2021)",
        ),
        "pau": Entry(
            "pairsift.match.pau:Pau",
            "PAU: two towers with prototypes that tell how vague an item is (Li et al., NeurIPS 2023)",
        ),
        "vse": Entry("pairsift.match.vse:Vse", "regions, a GRU over words, learned pooling: VSE++ and VSE-infinity"),
        "vsrn": Entry("pairsift.match.vsrn:Vsrn", "visual semantic reasoning over regions (Li et al., ICCV 2019)"),
        "clip": Entry("pairsift.match.clip:Clip", "CLIP, fine-tuned from pixels and text (Radford et al., ICML 2021)"),
        "scan": Entry("pairsift.match.scan:Scan", "stacked cross attention (Lee et al., ECCV 2018)"),
        "imram": Entry("pairsift.match.imram:Imram", "recurrent attention memory (Chen et al., CVPR 2020)"),
        "saf": Entry("pairsift.match.sgraf:Saf", "similarity attention filtration (Diao et al., AAAI 2021)"),
        "sgr": Entry("pairsift.match.sgraf:Sgr", "similarity graph reasoning (Diao et al., AAAI 2021)"),
        "sgraf": Entry(
            "pairsift.match.sgraf:Sgraf", "the mean of an SGR and an SAF similarity (Diao et al., AAAI 2021)"
        ),
    },
    "pairsift.match.base:Matcher",
)


def __getattr__(name: str) -> object:
    """Import a matcher on first access."""
    if name in ("Codes", "Matcher"):
        from pairsift.match import base

        return getattr(base, name)
    return MATCHERS.attribute(__name__, name)


def __dir__() -> list[str]:
    return [*MATCHERS.attributes(), "MATCHER", "MATCHERS", "Codes", "Matcher"]
