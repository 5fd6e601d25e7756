"""One file per paper: what to do with pairs of little trust."""

from pairsift.methods.base import Method
from pairsift.methods.gsc import GSC
from pairsift.methods.ncr import NCR
from pairsift.methods.npc import NPC
from pairsift.methods.pc2 import PC2
from pairsift.methods.pcsr import PCSR
from pairsift.methods.plain import Crossfit, Oracle, Plain

METHODS: dict[str, type[Method]] = {
    method.name: method for method in (Crossfit, Plain, Oracle, NCR, PC2, PCSR, GSC, NPC)
}

__all__ = ["GSC", "METHODS", "NCR", "NPC", "PC2", "PCSR", "Crossfit", "Method", "Oracle", "Plain"]
