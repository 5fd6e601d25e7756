"""The methods, one file for each paper: what to do with pairs of little trust."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pairsift.registry import Entry, Registry

if TYPE_CHECKING:
    from pairsift.methods.base import Method

# By name, which is the module's too: the class, and a line for `pairsift list methods`.
TABLE = {
    "crossfit": (
        "Crossfit",
        "weights by models that did not see the pair; ours, the default of other matchers than two_tower",
    ),
    "sift": (
        "Sift",
        "networks as in crossfit teach new ones how the pairs of a batch relate; ours, the default of two_tower",
    ),
    "plain": ("Plain", "no protection: every pair is believed"),
    "oracle": ("Oracle", "plain on the truly matching pairs, to measure against; needs the truth"),
    "ncr": ("NCR", "mixture division, soft margins by rectified labels (Huang et al., NeurIPS 2021)"),
    "pc2": (
        "PC2",
        "pseudo-classifier, pseudo-captions for noisy pairs, rectified correspondence (Duan et al., ACM MM 2024)",
    ),
    "pc2_mscn": (
        "PC2MSCN",
        "pc2 with similarities that the meta network of mscn corrects; needs verified pairs (Duan et al., supplement)",
    ),
    "pcsr": ("PCSR", "steady noisy pairs get other captions, unsteady ones a robust loss (Liu et al.)"),
    "gsc": ("GSC", "labels by structure across and within modalities, averaged and exchanged (Zhao et al., CVPR 2024)"),
    "npc": (
        "NPC",
        "memory bank of clean pairs, weights by negative impact; for trained matchers (Zhang et al., AAAI 2024)",
    ),
    "rcl": ("RCL", "learns from negatives alone, by complementary contrastive losses (Hu et al., TPAMI 2023)"),
    "rince": ("RINCE", "robust InfoNCE, which unlikely positives pull less (Chuang et al., CVPR 2022)"),
    "crcl": (
        "CRCL",
        "active complementary loss, correspondences refined by networks that restart (Qin et al., NeurIPS 2023)",
    ),
    "osa": ("OSA", "weights by what a pretrained matcher says of the pairs; for trained matchers (Li et al., 2024)"),
    "decl": (
        "DECL",
        "evidential learning without evidence for noisy pairs, ever harder negatives (Qin et al., ACM MM 2022)",
    ),
    "bicro": ("BiCro", "labels by how alike pair and clean anchors are in both modalities (Yang et al., CVPR 2023)"),
    "cream": (
        "CREAM",
        "clean, hard and noisy pairs by co-disagreement, labels that other pairs share (Ma et al., TIP 2024)",
    ),
    "l2rm": ("L2RM", "noisy pairs learn from a transport plan of their images and captions (Han et al., CVPR 2024)"),
    "mscn": (
        "MSCN",
        "a meta network, learned from verified pairs, corrects similarities; needs such pairs (Han et al., CVPR 2023)",
    ),
    "linear": ("Linear", "no training: a linear model of the pairs that match; ours, what `pairsift check` takes"),
}

METHODS: Registry[type[Method]] = Registry(
    "method",
    {name: Entry(f"{__name__}.{name}:{kind}", summary) for name, (kind, summary) in TABLE.items()},
    "pairsift.methods.base:Method",
)


def __getattr__(name: str) -> Any:
    """Import a method's class when it is first asked for."""
    return METHODS.attribute(__name__, name)


def __dir__() -> list[str]:
    return [*METHODS.attributes(), "METHODS"]
