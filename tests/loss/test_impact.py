"""What a step did to known pairs, against plain loops, and the two directions that it is read from."""

import math

import pytest
import torch
from test_infonce import case

from pairsift.loss.impact import change, confidence
from pairsift.loss.ranking import Hinge, InfoNCE


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


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_directions_are_what_loops_give_and_make_up_the_observed_loss(seed: int) -> None:
    similarity, exclude, _ = case(seed, 6)
    s, out, scale = similarity.tolist(), exclude.tolist(), torch.tensor(2.5, dtype=torch.float64)
    right, left = InfoNCE().directions(similarity, scale, exclude)
    captions, images = Hinge(margin=0.3).directions(similarity, scale, exclude)
    for i in range(6):
        rows = [2.5 * s[i][j] for j in range(6) if j == i or not out[i][j]]
        columns = [2.5 * s[k][i] for k in range(6) if k == i or not out[k][i]]
        for found, logits in ((right, rows), (left, columns)):
            assert float(found[i]) == pytest.approx(math.log(sum(map(math.exp, logits))) - 2.5 * s[i][i], abs=1e-10)
        over_captions = [max(0.0, 0.3 + s[i][j] - s[i][i]) for j in range(6) if j != i and not out[i][j]]
        over_images = [max(0.0, 0.3 + s[k][i] - s[i][i]) for k in range(6) if k != i and not out[k][i]]
        for found, costs in ((captions, over_captions), (images, over_images)):
            assert float(found[i]) == pytest.approx(sum(costs) / max(1, len(costs)), abs=1e-10)
    torch.testing.assert_close(InfoNCE().observe(similarity, scale, exclude), (right + left) / 2)
    torch.testing.assert_close(Hinge(margin=0.3).observe(similarity, scale, exclude), captions + images)
