"""Partial transport against linear programming and a naive Sinkhorn, and the losses of L2RM against plain loops."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from pairsift.methods.l2rm import log_partial_plan, rematching, symmetric_cross_entropy

N, M = 7, 9


def costs(seed: int = 0, n: int = N, m: int = M) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((n, m)))


def best_cost(cost: np.ndarray, mass: float) -> float:
    """The least cost of moving this mass, by a linear programme."""
    n, m = cost.shape
    rows, columns = np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))
    limits = [1 / n] * n + [1 / m] * m
    found = linprog(cost.ravel(), np.vstack([rows, columns]), limits, np.ones((1, n * m)), [mass])
    return float(found.fun)


def naive_sinkhorn(cost: np.ndarray, mass: float, epsilon: float, steps: int) -> np.ndarray:
    """Scaling by rows and columns, with one of each for what is not moved."""
    n, m = cost.shape
    kernel = [[math.exp(-cost[i, j] / epsilon) if i < n and j < m else 1.0 for j in range(m + 1)] for i in range(n)]
    kernel.append([1.0] * m + [0.0])
    for i in range(n):
        kernel[i][m] = 1.0
    left, right = [1.0] * (n + 1), [1.0] * (m + 1)
    for _ in range(steps):
        for i in range(n + 1):
            held = 1 / n if i < n else 1 - mass
            left[i] = held / sum(kernel[i][j] * right[j] for j in range(m + 1))
        for j in range(m + 1):
            held = 1 / m if j < m else 1 - mass
            right[j] = held / sum(kernel[i][j] * left[i] for i in range(n + 1))
    return np.array([[left[i] * kernel[i][j] * right[j] for j in range(m)] for i in range(n)])


def plan_of(*given, **more) -> torch.Tensor:
    return log_partial_plan(*given, **more).exp()


@pytest.mark.parametrize("mass", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("steps", [1, 7, 60])
def test_the_plan_is_that_of_a_naive_sinkhorn(mass: float, steps: int) -> None:
    cost = costs()
    plan = plan_of(cost, mass, 0.1, steps=steps)
    np.testing.assert_allclose(plan.numpy(), naive_sinkhorn(cost.numpy(), mass, 0.1, steps), atol=1e-12)


@pytest.mark.parametrize("mass", [0.1, 0.4, 0.9])
def test_with_little_entropy_the_plan_costs_what_the_linear_programme_says(mass: float) -> None:
    cost = costs(3)
    plan = plan_of(cost, mass, 0.002, steps=5000)
    assert (plan * cost).sum().item() == pytest.approx(best_cost(cost.numpy(), mass), abs=2e-4)
    assert plan.sum().item() == pytest.approx(mass, abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.07, 1.0])
def test_no_row_or_column_moves_more_than_it_holds_and_the_mass_is_moved(epsilon: float) -> None:
    plan = plan_of(costs(5, 40, 30).float(), 0.3, epsilon, steps=2000)
    assert plan.dtype == torch.float32 and plan.min() >= 0
    assert plan.sum(1).max() <= 1 / 40 + 1e-5 and plan.sum(0).max() <= 1 / 30 + 1e-5
    assert plan.sum().item() == pytest.approx(0.3, abs=1e-3)


def test_nothing_is_moved_where_it_is_forbidden_and_the_mass_goes_elsewhere() -> None:
    cost = costs(7, 8, 8)
    cost.diagonal().fill_(-1)  # where everything would go
    own = torch.eye(8, dtype=torch.bool)
    free, forbidden = plan_of(cost, 0.5, 0.02, steps=3000), plan_of(cost, 0.5, 0.02, own, 3000)
    assert free.diagonal().sum() > 0.49 and not forbidden.diagonal().any()
    assert forbidden.sum().item() == pytest.approx(0.5, abs=1e-4)
    alone = plan_of(costs(1, 1, 1), 0.3, 0.1, torch.ones(1, 1, dtype=torch.bool))
    assert alone.tolist() == [[0.0]]


def test_plans_come_in_batches_and_follow_the_order_of_rows_and_columns() -> None:
    several = torch.stack([costs(k) for k in range(3)])
    plans = plan_of(several, 0.3, 0.05)
    for cost, plan in zip(several, plans, strict=True):
        torch.testing.assert_close(plan, plan_of(cost, 0.3, 0.05))
    rows, columns = torch.randperm(N), torch.randperm(M)
    torch.testing.assert_close(plan_of(several[0][rows][:, columns], 0.3, 0.05), plans[0][rows][:, columns])


def test_large_costs_do_not_overflow() -> None:
    plan = plan_of(1e4 * costs().float(), 0.3, 0.01, steps=50)
    assert bool(torch.isfinite(plan).all())


def test_rematching_is_the_symmetric_divergence_of_both_directions() -> None:
    rng = np.random.default_rng(2)
    logits, plan = torch.from_numpy(rng.normal(0, 2, (6, 6))), torch.from_numpy(rng.random((6, 6)) ** 4)
    plan.diagonal().zero_()
    expected = []
    for i in range(6):
        total = 0.0
        for s, q in ((logits[i], plan[i]), (logits[:, i], plan[:, i])):
            p = [math.exp(v) / sum(math.exp(u) for u in s.tolist()) for v in s.tolist()]
            moved = [max(v, 1e-10) for v in q.tolist()]
            t = [v / sum(moved) for v in moved]
            total += sum(b * math.log(b / a) + a * math.log(a / b) for a, b in zip(p, t, strict=True))
        expected.append(total / 2)
    assert rematching(logits, plan.log()).tolist() == pytest.approx(expected, rel=1e-6)
    assert torch.autograd.gradcheck(lambda x: rematching(x, plan.log()), logits.requires_grad_())


def test_rematching_is_zero_at_the_plan_itself_and_for_equal_scores_without_a_plan() -> None:
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 5)))
    joint = logits.exp()
    for _ in range(2000):  # a plan whose rows and columns are both softmaxes of one block
        joint = joint / joint.sum(1, keepdim=True)
        joint = joint / joint.sum(0, keepdim=True)
    assert rematching(joint.log(), joint.log()).max().item() < 1e-9
    nothing = torch.zeros(5, 5, dtype=torch.float64).log()
    assert rematching(torch.full((5, 5), 0.3), nothing).tolist() == pytest.approx([0.0] * 5, abs=1e-9)


@pytest.mark.parametrize("low", [0.1, -0.3, -0.6, -0.9])
def test_an_image_that_moves_hardly_anything_is_rematched_as_in_double_precision(low: float) -> None:
    torch.manual_seed(0)
    s = torch.rand(32, 32)
    s[0] = low + 0.1 * torch.rand(32)
    cost, own = torch.nn.functional.softplus(10 * (0.5 - s)) / 10, torch.eye(32, dtype=torch.bool)
    single, double = (
        rematching((s / 0.05).to(kind), log_partial_plan(cost.to(kind), 0.1, 0.01, own, 300))
        for kind in (torch.float32, torch.float64)
    )
    assert double[0] > 1
    torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-3)


def test_symmetric_cross_entropy_matches_plain_loops() -> None:
    rng = np.random.default_rng(4)
    logits, exclude = torch.from_numpy(rng.normal(0, 2, (5, 5))), torch.eye(5, dtype=torch.bool)
    exclude[1, 2] = exclude[2, 1] = True
    expected = []
    for i in range(5):
        kept = [j for j in range(5) if j == i or not exclude[i, j]]
        total = 0.0
        for s in (logits[i], logits[:, i]):
            p = {j: math.exp(float(s[j])) / sum(math.exp(float(s[u])) for u in kept) for j in kept}
            ordinary = -math.log(p[i])
            reverse = -sum(p[j] * (0.0 if j == i else math.log(1e-7)) for j in kept)
            total += (ordinary + reverse) / 2
        expected.append(total)
    assert symmetric_cross_entropy(logits, exclude).tolist() == pytest.approx(expected, rel=1e-9)
