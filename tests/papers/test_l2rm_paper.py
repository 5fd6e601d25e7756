"""L2RM as published: batches of 128 beside the paper's equations with its reductions, and its numbers."""

import math

import numpy as np
import pytest
import torch
from given import B, begun, hardest, same, softmaxes, total

from pairsift.methods.l2rm import log_partial_plan, rematching

TAU, MASS = 0.05, 0.1


def naive_plan(cost: np.ndarray, epsilon: float, forbid: bool, steps: int) -> np.ndarray:
    """Sinkhorn's scaling of rows and columns, with one of each for what is not moved, in float64."""
    n = len(cost)
    kernel = np.ones((n + 1, n + 1))
    kernel[:n, :n] = np.exp(-cost / epsilon)
    kernel[n, n] = 0
    if forbid:
        kernel[range(n), range(n)] = 0
    held = np.array([1 / n] * n + [1 - MASS])
    right = np.ones(n + 1)
    for _ in range(steps):
        left = held / (kernel @ right)
        right = held / (kernel.T @ left)
    return (left[:, None] * kernel * right)[:n, :n]


def divergence(p: torch.Tensor, moved: np.ndarray) -> torch.Tensor:
    """The symmetric divergence of each row of probabilities from the row of a plan, clipped at 1e-10 and scaled."""
    clipped = np.maximum(moved, 1e-10)
    q = torch.from_numpy(clipped / clipped.sum(1, keepdims=True))
    return (q * torch.log(q / p)).sum(1) + (p * torch.log(p / q)).sum(1)


@pytest.mark.parametrize(
    ("preset", "epsilon", "forbid", "steps"),
    [("paper", 0.01, True, 300), ("paper_coco", 0.07, True, 50), ("paper_cc152k", 0.07, False, 50)],
)
def test_noisy_pairs_have_the_mean_of_the_divergences_beside_the_sum_of_clean_hinges(preset, epsilon, forbid, steps):
    job = begun("l2rm", preset)
    clean, noisy = job.batch(0), job.batch(B)
    first, second = job.method.step(job.step("rematch", clean=clean, noisy=noisy))
    block = job.block(clean)
    same(job, [first], clean, hardest(block, [0.2] * B), block)
    block = job.block(noisy)
    plan = naive_plan(np.maximum(0, 1 - block.detach().numpy()), epsilon, forbid, steps)
    rows, columns = softmaxes(block, TAU)
    loss = (divergence(rows, plan) + divergence(columns, plan.T)).mean() / 2
    assert total([second]).item() < 0.1 * total([first]).item()  # sums would be 128 times as much
    same(job, [second], noisy, loss, block)


def test_the_warm_up_has_the_mean_of_both_cross_entropies_of_both_directions():
    job = begun("l2rm")
    batch = job.batch(0)
    (term,) = job.method.step(job.step("warm-up", all=batch))
    block, loss = job.block(batch), 0.0
    for p in softmaxes(block, TAU):
        ordinary, reverse = -p.diagonal().log(), -math.log(1e-7) * (1 - p.diagonal())
        loss = loss + 0.5 * (ordinary + reverse).mean()
    same(job, [term], batch, loss, block)


def test_an_image_to_which_the_plan_moves_nothing_has_a_uniform_target():
    s = torch.tensor([[0.1, 0.9, 0.1], [0.9, 0.1, 0.1], [0.15, 0.1, 0.1]], dtype=torch.float64, requires_grad=True)
    plan = log_partial_plan((1 - s.detach()).clamp(min=0), MASS, 0.01, steps=300)
    assert plan[2].exp().sum() < 1e-30
    (found,) = torch.autograd.grad(rematching(s / TAU, plan).mean(), s)
    rows, columns = softmaxes(s, TAU)
    of_rows = divergence(rows, plan.exp().numpy()).mean() / 2
    of_columns = divergence(columns, plan.exp().numpy().T).mean() / 2
    (part,) = torch.autograd.grad(of_rows, s, retain_graph=True)
    assert part[2].tolist() == pytest.approx([1.62, -0.81, -0.81], abs=5e-3)
    (other,) = torch.autograd.grad(of_columns, s)
    torch.testing.assert_close(found, part + other, rtol=1e-6, atol=1e-8)


def test_the_cost_is_what_the_papers_starts_as_and_nothing_of_it_learns():
    job = begun("l2rm")
    assert job.networks[0].head is None
    batches = {"clean": job.batch(0), "noisy": job.batch(B)}
    assert [term.name for term in job.method.step(job.step("rematch", **batches))] == ["clean", "noisy"]
