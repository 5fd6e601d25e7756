"""The strength curve and the ranking losses that methods run with."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from test_infonce import case
from torch import Tensor

from pairsift.errors import InputError
from pairsift.loss import RANKING_LOSSES
from pairsift.loss.infonce import infonce
from pairsift.loss.ranking import Hinge, InfoNCE, hinge, strength

N = 5
ONE = torch.ones((), dtype=torch.float64)
HARDEST = "choose from mean, hardest or a whole number, at least 1"


@pytest.fixture
def similarity() -> Tensor:
    torch.manual_seed(1)
    return torch.rand(N, N, dtype=torch.float64) * 2 - 1


@pytest.fixture
def exclude() -> Tensor:
    torch.manual_seed(2)
    return torch.rand(N, N) < 0.2


@pytest.mark.parametrize("base", [2.0, 10.0])
def test_strength_curve(base: float) -> None:
    y = torch.linspace(0, 1, 11, dtype=torch.float64)
    got = strength(y, base)
    assert got.tolist() == pytest.approx([(base**v - 1) / (base - 1) for v in y.tolist()], abs=1e-12)
    assert got[0] == 0 and float(got[-1]) == pytest.approx(1)
    steps = got.diff()
    assert bool((steps > 0).all()) and bool((steps.diff() > 0).all())
    assert torch.autograd.gradcheck(lambda v: strength(v, base), (y.requires_grad_(),))


def test_at_base_1_the_curve_is_the_correspondence_itself() -> None:
    y = torch.linspace(0, 1, 11, dtype=torch.float64)
    assert torch.equal(strength(y, 1.0), y)
    torch.testing.assert_close(strength(y, 1 + 1e-7), y, atol=1e-6, rtol=0)


def test_hinge_scales_its_margin(similarity: Tensor, exclude: Tensor) -> None:
    y = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], dtype=torch.float64)
    loss = Hinge(margin=0.3, negatives=2, base=5.0)
    margin = torch.tensor([0.3 * (5**v - 1) / 4 for v in y.tolist()], dtype=torch.float64)
    torch.testing.assert_close(loss(similarity, ONE, y, exclude), hinge(similarity, margin, 2, exclude))
    torch.testing.assert_close(loss(similarity, ONE, y, exclude, True), hinge(similarity, margin, "mean", exclude))
    full = torch.full((N,), 0.3, dtype=torch.float64)
    torch.testing.assert_close(loss.observe(similarity, ONE, exclude), hinge(similarity, full, "mean", exclude))


def test_hinge_does_not_use_the_temperature(similarity: Tensor, exclude: Tensor) -> None:
    y = torch.full((N,), 0.5, dtype=torch.float64)
    assert torch.equal(Hinge()(similarity, ONE, y, exclude), Hinge()(similarity, 100 * ONE, y, exclude))


def test_hinge_at_zero_correspondence_still_pulls_with_margin_zero() -> None:
    similarity = torch.tensor([[0.1, 0.4], [0.0, 0.9]], dtype=torch.float64)
    loss = Hinge()(similarity, ONE, torch.zeros(2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.bool))
    assert loss.tolist() == pytest.approx([0.3, 0.0])


def test_infonce_weights_the_pair_by_the_curve(similarity: Tensor, exclude: Tensor) -> None:
    y = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], dtype=torch.float64)
    weight = torch.tensor([(10**v - 1) / 9 for v in y.tolist()], dtype=torch.float64)
    got = InfoNCE()(similarity, 7 * ONE, y, exclude)
    torch.testing.assert_close(got, weight * infonce(7 * similarity, exclude))
    assert got[0] == 0 and float(got[1]) > 0
    torch.testing.assert_close(InfoNCE().observe(similarity, 7 * ONE, exclude), infonce(7 * similarity, exclude))


@pytest.mark.parametrize("name", ["hinge", "infonce", "bce", "sigmoid"])
def test_ranking_losses_by_name_in_extremes(name: str, similarity: Tensor, exclude: Tensor) -> None:
    loss = RANKING_LOSSES[name]()
    assert loss.name == name and loss.reduction == "mean"
    hot = (similarity * 1e4).requires_grad_()
    value = loss(hot, 100 * ONE, torch.linspace(0, 1, N, dtype=torch.float64), exclude)
    value.sum().backward()
    assert value.shape == (N,) and bool((value >= 0).all()) and bool(value.isfinite().all())
    assert hot.grad is not None and bool(hot.grad.isfinite().all())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Hinge(negatives="worst"), f"negatives is 'worst'; {HARDEST}"),  # type: ignore[arg-type]
        (lambda: Hinge(negatives=0), f"negatives is 0; {HARDEST}"),
        (lambda: Hinge(margin=-0.1), "margin is -0.1; it must be a number, at least 0"),
        (lambda: Hinge(base=0.9), "base is 0.9; it must be a number, at least 1"),
        (lambda: InfoNCE(base=0.5), "base is 0.5; it must be a number, at least 1"),
        (lambda: Hinge(reduction="max"), "reduction is 'max'; choose from mean, sum"),  # type: ignore[arg-type]
        (lambda: InfoNCE(reduction="max"), "reduction is 'max'; choose from mean, sum"),  # type: ignore[arg-type]
    ],
)
def test_options_that_make_no_sense_are_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == said


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
