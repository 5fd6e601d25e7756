"""Consistency mining against plain loops, and the soft targets that it completes."""

import math

import numpy as np
import pytest
import torch

from pairsift.loss.infonce import infonce
from pairsift.methods.cream import mining, shares

N, SCALE = 6, 5.0


def drawn(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Similarities in [-1, 1], labels, and a mask in which 0 and 1 are siblings."""
    rng = np.random.default_rng(seed)
    exclude = torch.eye(N, dtype=torch.bool)
    exclude[0, 1] = exclude[1, 0] = True
    s = torch.from_numpy(rng.uniform(-0.6, 1, (N, N)))
    return s, torch.from_numpy(rng.random(N)), exclude


def naive_shares(row: list[float], others: list[int], least: float) -> list[float]:
    """One row's shares by plain loops."""
    best = max([row[j] for j in others] + [0.0])
    kept = [j for j in others if row[j] > 0 and row[j] >= least * best]
    total = sum(row[j] for j in kept)
    return [row[j] / total if j in kept else 0.0 for j in range(len(row))]


def naive(s, y, exclude, least: float, diagonal: bool) -> list[float]:
    """The soft-target cross-entropy of both directions by plain loops, with the diagonal's part or without."""
    found = []
    for i in range(N):
        loss = 0.0
        for row, mask in ((s[i], exclude[i]), (s[:, i], exclude[:, i])):
            row = row.tolist()
            others = [j for j in range(N) if j != i and not mask[j]]
            total = sum(math.exp(SCALE * row[j]) for j in [i, *others])
            share = naive_shares(row, others, least)
            loss -= float(y[i]) * math.log(math.exp(SCALE * row[i]) / total) * diagonal
            loss -= sum((1 - float(y[i])) * share[j] * math.log(math.exp(SCALE * row[j]) / total) for j in others)
        found.append(loss / 2)
    return found


@pytest.mark.parametrize("least", [0.0, 0.4, 1.0])
def test_mining_and_weighed_infonce_are_the_loss_with_soft_targets(least: float) -> None:
    s, y, exclude = drawn()
    found = mining(s * SCALE, s, y, exclude, least)
    assert found.tolist() == pytest.approx(naive(s, y, exclude, least, diagonal=False), abs=1e-9)
    whole = y * infonce(s * SCALE, exclude) + found
    assert whole.tolist() == pytest.approx(naive(s, y, exclude, least, diagonal=True), abs=1e-9)
    assert torch.autograd.gradcheck(lambda logits: mining(logits, s, y, exclude, least), (s * SCALE).requires_grad_())


def test_shares_sum_to_one_and_leave_out_siblings_the_pair_and_negative_similarities() -> None:
    s, _, exclude = drawn(3)
    for least in (0.0, 0.5, 0.9, 1.0):
        found = shares(s, least, exclude)
        assert found.sum(1).tolist() == pytest.approx([1.0] * N)  # nothing is lost to the filter
        assert not found[exclude].any() and not found[s < 0].any()
    assert (shares(s, 1.0, exclude) > 0).sum(1).tolist() == [1] * N
    assert (shares(s, 0.0, exclude) > 0).sum() == ((s > 0) & ~exclude).sum()


def test_a_row_without_positive_similarities_spends_nothing() -> None:
    s, y, exclude = drawn()
    s = -s.abs()
    logits = (s * SCALE).requires_grad_()
    found = mining(logits, s, y, exclude, 0.5)
    found.sum().backward()
    assert not found.any() and not logits.grad.any()


def test_a_label_of_one_leaves_nothing_and_permutations_do_not_matter() -> None:
    s, y, exclude = drawn(5)
    assert not mining(s * SCALE, s, torch.ones_like(y), exclude, 0.5).any()
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    moved = s[order][:, order]
    expected = mining(s * SCALE, s, y, exclude, 0.5)[order]
    found = mining(moved * SCALE, moved, y[order], exclude[order][:, order], 0.5)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("least_weight", [0.0, 0.2])
def test_gradients_are_finite_where_siblings_have_no_probability(least_weight: float) -> None:
    s, y, exclude = drawn(7)
    s.requires_grad_()
    mining(s * SCALE, s, y, exclude, 0.0, least_weight).sum().backward()
    assert s.grad.isfinite().all() and s.grad[0, 1] == 0
