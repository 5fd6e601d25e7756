"""The effect of a step on known pairs, against plain loops (NPC)."""

import math

import pytest
import torch

from pairsift.methods.npc import change, confidence


def test_change_is_equation_7() -> None:
    torch.manual_seed(0)
    p, q, later_p, later_q = torch.rand(4, 9, dtype=torch.float64) + 0.1
    found = change((p, q), (later_p, later_q), eps=0.0)
    for i in range(9):
        expected = 0.5 * (float(p[i]) / float(later_p[i]) + float(q[i]) / float(later_q[i]))
        assert float(found[i]) == pytest.approx(expected, rel=1e-12)


def test_pairs_without_any_loss_are_as_good_as_before() -> None:
    zero, one = torch.zeros(1), torch.ones(1)
    assert change((zero, zero), (zero, zero)).tolist() == [1.0]
    assert torch.isfinite(change((one, one), (zero, zero))).all()
    assert 0 < float(change((zero, zero), (one, one))) < 1e-5


def test_the_weight_is_equation_8_and_jumps_where_nothing_changed() -> None:
    r = torch.tensor([0.0, 0.3, 0.999999, 1.0, 1.000001, 7.0], dtype=torch.float64)
    expected = [math.tanh(v) if v < 1 else 1.0 for v in r.tolist()]
    assert confidence(r).tolist() == pytest.approx(expected, abs=1e-12)
    below = math.nextafter(1.0, 0.0)
    under, at = confidence(torch.tensor([below, 1.0], dtype=torch.float64)).tolist()
    assert (round(under, 3), at) == (0.762, 1.0)
    curve = confidence(torch.linspace(0, 3, 200))
    assert bool((curve.diff() >= 0).all()) and float(curve.max()) == 1.0
