"""One file per paper: what to do with pairs of little trust."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pairsift.registry import Entry, Registry

if TYPE_CHECKING:
    from pairsift.methods.base import Method as Method
    from pairsift.methods.bicro import BiCro as BiCro
    from pairsift.methods.crcl import CRCL as CRCL
    from pairsift.methods.cream import CREAM as CREAM
    from pairsift.methods.crossfit import Crossfit as Crossfit
    from pairsift.methods.decl import DECL as DECL
    from pairsift.methods.gsc import GSC as GSC
    from pairsift.methods.l2rm import L2RM as L2RM
    from pairsift.methods.mscn import MSCN as MSCN
    from pairsift.methods.ncr import NCR as NCR
    from pairsift.methods.npc import NPC as NPC
    from pairsift.methods.oracle import Oracle as Oracle
    from pairsift.methods.osa import OSA as OSA
    from pairsift.methods.pc2 import PC2 as PC2
    from pairsift.methods.pcsr import PCSR as PCSR
    from pairsift.methods.plain import Plain as Plain
    from pairsift.methods.rcl import RCL as RCL
    from pairsift.methods.rince import RINCE as RINCE
    from pairsift.methods.sift import Sift as Sift

METHODS: Registry[type[Method]] = Registry(
    "method",
    {
        "crossfit": Entry(
            "pairsift.methods.crossfit:Crossfit",
            "pairs weigh as far as models believe them that did not see them; ours, the default of other matchers than "
            "two_tower",
        ),
        "sift": Entry(
            "pairsift.methods.sift:Sift",
            "networks as of crossfit, then new ones that they teach how images and captions of a batch relate; ours, "
            "the default of two_tower",
        ),
        "plain": Entry("pairsift.methods.plain:Plain", "no protection: every pair is believed"),
        "oracle": Entry(
            "pairsift.methods.oracle:Oracle",
            "plain on the truly matching pairs, to measure against; needs the truth",
        ),
        "ncr": Entry(
            "pairsift.methods.ncr:NCR",
            "mixture division, soft margins by rectified labels (Huang et al., NeurIPS 2021)",
        ),
        "pc2": Entry(
            "pairsift.methods.pc2:PC2",
            "pseudo-classifier, pseudo-captions for noisy pairs, rectified correspondence (Duan et al., ACM MM 2024)",
        ),
        "pcsr": Entry(
            "pairsift.methods.pcsr:PCSR",
            "steady noisy pairs get other captions, unsteady ones a robust loss (Liu et al.)",
        ),
        "gsc": Entry(
            "pairsift.methods.gsc:GSC",
            "labels by structure across and within modalities, averaged and exchanged (Zhao et al., CVPR 2024)",
        ),
        "npc": Entry(
            "pairsift.methods.npc:NPC",
            "memory bank of clean pairs, weights by negative impact; for trained matchers (Zhang et al., AAAI 2024)",
        ),
        "rcl": Entry(
            "pairsift.methods.rcl:RCL",
            "learns from negatives alone, by complementary contrastive losses (Hu et al., TPAMI 2023)",
        ),
        "rince": Entry(
            "pairsift.methods.rince:RINCE",
            "robust InfoNCE, which unlikely positives pull less (Chuang et al., CVPR 2022)",
        ),
        "crcl": Entry(
            "pairsift.methods.crcl:CRCL",
            "active complementary loss, correspondences refined by networks that restart (Qin et al., NeurIPS 2023)",
        ),
        "osa": Entry(
            "pairsift.methods.osa:OSA",
            "weights by what a pretrained matcher says of the pairs; for trained matchers (Li et al., 2024)",
        ),
        "decl": Entry(
            "pairsift.methods.decl:DECL",
            "evidential learning, noisy pairs get no evidence, and a hinge of ever harder negatives (Qin et al., "
            "ACM MM 2022)",
        ),
        "bicro": Entry(
            "pairsift.methods.bicro:BiCro",
            "labels by how alike pair and clean anchors are in both modalities (Yang et al., CVPR 2023)",
        ),
        "cream": Entry(
            "pairsift.methods.cream:CREAM",
            "clean, hard and noisy pairs by co-disagreement, labels that other pairs share (Ma et al., TIP 2024)",
        ),
        "l2rm": Entry(
            "pairsift.methods.l2rm:L2RM",
            "noisy pairs learn from a transport plan of their images and captions (Han et al., CVPR 2024)",
        ),
        "mscn": Entry(
            "pairsift.methods.mscn:MSCN",
            "a meta network, learned from verified pairs, corrects similarities; needs such pairs (Han et al., CVPR "
            "2023)",
        ),
    },
    "pairsift.methods.base:Method",
)


def __getattr__(name: str) -> object:
    """Import a method when it is first asked for."""
    if name == "Method":
        from pairsift.methods.base import Method

        return Method
    return METHODS.attribute(__name__, name)


def __dir__() -> list[str]:
    return [*METHODS.attributes(), "METHODS", "Method"]
