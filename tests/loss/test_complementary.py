"""The complementary losses of RCL and CRCL against plain loops, in value and gradient, and at the ends of float32."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pairsift.loss.complementary import Form, active_complementary, complementary

FORMS = get_args(Form)


def case(seed: int, n: int, excluded: float = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, a mask that is not symmetric, and correspondences with both ends among them."""
    torch.manual_seed(seed)
    y = torch.rand(n, dtype=torch.float64)
    y[0], y[-1] = 0.0, 1.0
    return 3 * torch.randn(n, n, dtype=torch.float64), torch.rand(n, n) < excluded, y


def probabilities(logits: Tensor, exclude: Tensor, i: int) -> list[list[float]]:
    """Of pair i over captions and over images: first its own probability, then those of its negatives."""
    s, out, n = logits.tolist(), exclude.tolist(), len(logits)
    captions = [s[i][j] for j in range(n) if j != i and not out[i][j]]
    images = [s[k][i] for k in range(n) if k != i and not out[k][i]]
    found = []
    for others in (captions, images):
        parts = [math.exp(value) for value in (s[i][i], *others)]
        found.append([part / sum(parts) for part in parts])
    return found


def of_one(form: Form, p: float, q: float) -> float:
    return {
        "log": -math.log(1 - p),
        "tan": math.tan(p),
        "exp": math.exp(p - 1),
        "mae": p,
        "gce": (1 - (1 - p) ** q) / q,
    }[form]


def by_hand(logits: Tensor, exclude: Tensor, form: Form, q: float) -> list[float]:
    return [
        sum(of_one(form, p, q) for direction in probabilities(logits, exclude, i) for p in direction[1:]) / 2
        for i in range(len(logits))
    ]


@pytest.mark.parametrize("form", FORMS)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 7), q=st.floats(0.05, 1), excluded=st.sampled_from([0, 0.3, 1]))
@settings(max_examples=30, deadline=None)
def test_every_form_matches_plain_loops(form: Form, seed: int, n: int, q: float, excluded: float) -> None:
    logits, exclude, _ = case(seed, n, excluded)
    assert complementary(logits, exclude, form, q).tolist() == pytest.approx(
        by_hand(logits, exclude, form, q), abs=1e-9
    )


@given(seed=st.integers(0, 10**6), n=st.integers(2, 7), excluded=st.sampled_from([0, 0.3, 1]))
@settings(max_examples=40, deadline=None)
def test_the_active_complementary_loss_matches_plain_loops(seed: int, n: int, excluded: float) -> None:
    logits, exclude, y = case(seed, n, excluded)
    active, negative = active_complementary(logits, exclude, y)
    for i in range(n):
        directions, label = probabilities(logits, exclude, i), float(y[i])
        assert float(active[i]) == pytest.approx(-label * sum(math.log(p[0]) for p in directions), abs=1e-9)
        expected = sum(sum(map(math.tan, p[1:])) / sum(map(math.tan, p)) ** (1 - label) for p in directions)
        assert float(negative[i]) == pytest.approx(expected, abs=1e-9)


def test_a_pair_that_is_not_believed_costs_at_most_1_in_each_direction_and_a_believed_one_its_tangents() -> None:
    logits, exclude, _ = case(1, 6)
    active, negative = active_complementary(20 * logits, exclude, torch.zeros(6, dtype=torch.float64))
    assert bool((active == 0).all()) and float(negative.max()) <= 2
    _, negative = active_complementary(logits, exclude, torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(negative, 2 * complementary(logits, exclude, "tan"))


@pytest.mark.parametrize("form", FORMS)
def test_gradcheck(form: Form) -> None:
    logits, exclude, y = case(3, 5)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: complementary(s, exclude, form), (logits,))
    assert torch.autograd.gradcheck(lambda s: active_complementary(s, exclude, y), (logits,))


@pytest.mark.parametrize("form", FORMS)
def test_masked_negatives_change_nothing_and_get_no_gradient(form: Form) -> None:
    logits, exclude, y = case(4, 6)
    other = torch.where(exclude & ~torch.eye(6, dtype=torch.bool), logits + 50, logits)
    assert not torch.equal(other, logits)
    torch.testing.assert_close(complementary(other, exclude, form), complementary(logits, exclude, form))
    torch.testing.assert_close(active_complementary(other, exclude, y), active_complementary(logits, exclude, y))
    exclude = exclude | exclude.T  # without the one direction a gradient may come by the other
    logits.requires_grad_()
    (
        complementary(logits, exclude, form).sum()
        + sum(part.sum() for part in active_complementary(logits, exclude, y))
    ).backward()
    assert logits.grad is not None
    assert bool((logits.grad[exclude & ~torch.eye(6, dtype=torch.bool)] == 0).all())
    assert bool((logits.grad.diagonal() != 0).any())


def test_gce_lies_between_log_and_mae() -> None:
    logits, exclude, _ = case(5, 6)
    torch.testing.assert_close(complementary(logits, exclude, "gce", 1.0), complementary(logits, exclude, "mae"))
    torch.testing.assert_close(complementary(logits, exclude, "gce", 1e-9), complementary(logits, exclude, "log"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(("own", "other"), [(-100.0, 100.0), (100.0, -100.0), (-1e4, 1e4), (0.0, 0.0)])
def test_values_and_gradients_are_finite_in_float32(form: Form, autocast: bool, own: float, other: float) -> None:
    logits = torch.full((3, 3), -other).fill_diagonal_(own)
    logits[0, 1] = logits[1, 2] = logits[2, 0] = other
    logits.requires_grad_()
    exclude, y = torch.zeros(3, 3, dtype=torch.bool), torch.tensor([0.0, 0.5, 1.0])
    exclude[2] = exclude[:, 2] = True  # a pair without negatives
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        values = [complementary(logits, exclude, form), *active_complementary(logits, exclude, y)]
    assert all(value.dtype == torch.float32 and bool(value.isfinite().all()) for value in values)
    assert all(float(value[2].detach()) == 0 for value in values)
    torch.stack(values).sum().backward()
    assert logits.grad is not None and bool(logits.grad.isfinite().all())


def test_the_logarithm_stays_exact_where_a_negative_has_nearly_all_the_probability() -> None:
    logits = torch.tensor([[0.0, 60.0], [-200.0, 0.0]], requires_grad=True)
    rows = complementary(logits, torch.zeros(2, 2, dtype=torch.bool))
    expected = [(60 + math.exp(-200)) / 2, (math.exp(-200) + 60) / 2]  # by float64: -log(1 - e^60 / (1 + e^60)) is 60
    assert rows.tolist() == pytest.approx(expected, rel=1e-6)
    rows[0].backward()
    assert logits.grad is not None and logits.grad[0].tolist() == pytest.approx([-0.5, 0.5])


@pytest.mark.parametrize("form", FORMS)
def test_permuted_pairs_have_permuted_losses(form: Form) -> None:
    logits, exclude, _ = case(6, 6)
    order = torch.randperm(6)
    moved = complementary(logits[order][:, order], exclude[order][:, order], form)
    torch.testing.assert_close(moved, complementary(logits, exclude, form)[order])
