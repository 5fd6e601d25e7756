"""Trainable matchers. A matcher encodes images and texts, and computes their similarity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pairsift.registry import Entry, Registry

if TYPE_CHECKING:
    from pairsift.match.base import Matcher

MATCHER = "two_tower"  # the matcher of a run that names none
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
        "clip": Entry(
            "pairsift.match.clip:Clip", "CLIP or SigLIP, fine-tuned from pixels and text (Radford et al., ICML 2021)"
        ),
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
