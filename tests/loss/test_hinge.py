"""The triplet hinge against plain loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pairsift.loss.ranking import Negatives, hinge

MODES: list[Negatives] = ["mean", "hardest", 1, 2, 3, 50]


def case(seed: int, n: int, excluded: float = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    exclude = torch.rand(n, n) < excluded  # not symmetric: row i may leave out column j and not the other way round
    return torch.randn(n, n, dtype=torch.float64), torch.rand(n, dtype=torch.float64), exclude


def reduced(costs: list[float], mode: Negatives) -> float:
    if not costs:
        return 0.0
    if mode == "mean":
        return sum(costs) / len(costs)
    kept = sorted(costs, reverse=True)[: 1 if mode == "hardest" else int(mode)]
    return sum(kept) / len(kept)


def by_hand(similarity: Tensor, margin: Tensor, mode: Negatives, exclude: Tensor) -> list[float]:
    s, m, out, n = similarity.tolist(), margin.tolist(), exclude.tolist(), len(margin)
    losses = []
    for i in range(n):
        captions = [max(0.0, m[i] + s[i][j] - s[i][i]) for j in range(n) if j != i and not out[i][j]]
        images = [max(0.0, m[i] + s[k][i] - s[i][i]) for k in range(n) if k != i and not out[k][i]]
        losses.append(reduced(captions, mode) + reduced(images, mode))
    return losses


@given(
    seed=st.integers(0, 10**6), n=st.integers(1, 7), mode=st.sampled_from(MODES), excluded=st.sampled_from([0, 0.3, 1])
)
@settings(max_examples=60, deadline=None)
def test_hinge_matches_plain_loops(seed: int, n: int, mode: Negatives, excluded: float) -> None:
    similarity, margin, exclude = case(seed, n, excluded)
    got = hinge(similarity, margin, mode, exclude)
    assert got.tolist() == pytest.approx(by_hand(similarity, margin, mode, exclude), abs=1e-12)


def test_each_anchor_has_its_own_margin_in_both_directions() -> None:
    """With no similarity at all, a pair's loss is its margin once per direction."""
    margin = torch.tensor([0.1, 0.2, 0.4])
    for mode in MODES:
        got = hinge(torch.zeros(3, 3), margin, mode, torch.zeros(3, 3, dtype=torch.bool))
        torch.testing.assert_close(got, 2 * margin)


def test_hardest_is_the_same_as_one() -> None:
    similarity, margin, exclude = case(0, 6)
    assert torch.equal(hinge(similarity, margin, "hardest", exclude), hinge(similarity, margin, 1, exclude))


def test_excluded_pairs_have_no_say() -> None:
    similarity, margin, exclude = case(1, 6)
    loud = similarity.masked_fill(exclude & ~torch.eye(6, dtype=torch.bool), 1e9)
    for mode in MODES:
        torch.testing.assert_close(hinge(loud, margin, mode, exclude), hinge(similarity, margin, mode, exclude))


def test_a_pair_without_negatives_costs_nothing_and_has_no_gradient() -> None:
    similarity, margin, exclude = case(2, 4, 0)
    exclude[1], exclude[:, 1] = True, True
    for mode in MODES:
        leaf = similarity.clone().requires_grad_()
        loss = hinge(leaf, margin, mode, exclude)
        assert loss[1] == 0 and bool((loss[[0, 2, 3]] > 0).all())
        loss.sum().backward()
        assert leaf.grad is not None and not leaf.grad[1].any() and not leaf.grad[:, 1].any()


@pytest.mark.parametrize("mode", MODES)
def test_gradcheck(mode: Negatives) -> None:
    similarity, margin, exclude = case(3, 5)
    similarity.requires_grad_(), margin.requires_grad_()
    assert torch.autograd.gradcheck(lambda s, m: hinge(s, m, mode, exclude), (similarity, margin))


@pytest.mark.parametrize("mode", MODES)
def test_permuted_pairs_have_permuted_losses(mode: Negatives) -> None:
    similarity, margin, exclude = case(4, 6)
    order = torch.randperm(6)
    moved = hinge(similarity[order][:, order], margin[order], mode, exclude[order][:, order])
    torch.testing.assert_close(moved, hinge(similarity, margin, mode, exclude)[order])


@pytest.mark.parametrize("mode", MODES)
def test_swapping_images_and_captions_changes_nothing(mode: Negatives) -> None:
    similarity, margin, exclude = case(5, 6)
    torch.testing.assert_close(hinge(similarity.T, margin, mode, exclude.T), hinge(similarity, margin, mode, exclude))


def test_extreme_similarities_stay_finite() -> None:
    similarity = torch.tensor([[-1e30, 1e30], [1e30, -1e30]], requires_grad=True)
    loss = hinge(similarity, torch.ones(2), "mean", torch.zeros(2, 2, dtype=torch.bool))
    loss.sum().backward()
    assert bool(loss.isfinite().all()) and similarity.grad is not None and bool(similarity.grad.isfinite().all())
