"""A division holds no more pairs for mismatched than held-out evidence leaves room for."""

import numpy as np
import pytest
from method_helpers import SETTING

from pairsift.loss.ranking import Hinge
from pairsift.methods.bicro import BiCro
from pairsift.methods.l2rm import L2RM
from pairsift.methods.ncr import NCR
from pairsift.methods.npc import NPC
from pairsift.methods.pc2 import PC2
from pairsift.methods.pcsr import PCSR
from pairsift.steps import Prior

IDS = np.arange(10)
W = np.array([0.1, 0.9, 0.3, 0.2, 0.8, 0.05, 0.4, 0.7, 0.45, 0.15])


def begun(kind, most):
    prior = None if most is None else Prior(np.ones(12, np.float32), 0.2, most)
    method = kind(networks=2)
    method = method.begin(SETTING(Hinge(), prior=prior))
    (method.bank if kind is NPC else method.division).state["clean_probability"][:, IDS] = W, W[::-1]
    return method


@pytest.mark.parametrize("kind", [NCR, PC2, PCSR, BiCro, L2RM])
@pytest.mark.parametrize("most", [None, 1.0, 0.7, 0.35, 0.1, 0.0])
def test_at_most_so_many_of_the_least_probable_pairs_are_noisy(kind, most):
    method = begun(kind, most)
    for k, w in enumerate((W[::-1], W)):  # each by its peer's
        doubted = [i for i in sorted(IDS, key=lambda i: w[i]) if w[i] <= 0.5]
        kept = sorted(doubted[: int((1.0 if most is None else most) * 10 + 1e-9)])
        assert method.subset("noisy", k).tolist() == kept
        assert method.subset("clean", k).tolist() == [i for i in IDS if i not in kept]
        assert method.subset("all", k).tolist() == IDS.tolist()


def test_at_zero_everyone_is_believed():
    method = begun(NCR, 0.0)
    method.division.state["clean_probability"][:] = 0
    assert [method.subset("clean", k).tolist() for k in range(2)] == [IDS.tolist()] * 2
    assert [len(method.subset("noisy", k)) for k in range(2)] == [0, 0]


@pytest.mark.parametrize("name", ["clean", "noisy"])
def test_a_method_that_divides_no_pairs_has_no_such_subset(name):
    method = begun(NPC, 0.35)
    assert method.subset("all", 0).tolist() == IDS.tolist()
    with pytest.raises(KeyError, match=f"npc has no subset '{name}'"):
        method.subset(name, 0)
