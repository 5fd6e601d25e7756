"""L2RM's steps against plain loops: the cost, the plan of noisy pairs, and what reads the truth, which is nothing."""

import math

import numpy as np
import pytest
import torch
from method_helpers import SETTING, batch_of, excluded, make_networks, naive_hinge, similarities

from pairsift.errors import InputError
from pairsift.loss.ranking import Hinge, InfoNCE
from pairsift.methods.l2rm import L2RM, SimilarityCost, log_partial_plan, rematching, symmetric_cross_entropy
from pairsift.steps import Step, not_negatives

CLEAN, NOISY = [0, 3, 6, 7, 8], [2, 4, 5, 9]


def stepped(ranking, matched=None, **options):
    method = L2RM(**options)
    network = make_networks(method)[0]
    method = method.begin(SETTING(ranking, matched, networks=1))
    batches = {"clean": batch_of(CLEAN), "noisy": batch_of(NOISY)}
    terms = method.step(Step([network], 0, batches, method.phases()[-1]))
    return method, network, {term.name: term for term in terms}


def test_the_cost_falls_with_the_similarity_alone_and_is_a_smooth_rectifier():
    cost, s = SimilarityCost(), torch.linspace(-1, 1, 201)
    with torch.no_grad():
        found = cost(s)
        assert (found.diff() < 0).all() and (found >= 0).all()
        expected = [math.log1p(math.exp(10 * (0.5 - x))) / 10 for x in s.tolist()]
        assert found.tolist() == pytest.approx(expected, rel=1e-5)
        cost.log_sharpness.fill_(math.log(1e4))
        torch.testing.assert_close(cost(s), (0.5 - s).clamp(min=0), atol=1e-4, rtol=0)
        block, order = torch.rand(5, 5), torch.randperm(5)
        assert torch.equal(cost(block)[order][:, order], cost(block[order][:, order]))  # whatever the order of a batch


def test_the_cost_learns_from_clean_pairs_against_their_negatives():
    _, network, terms = stepped(InfoNCE())
    batch = batch_of(CLEAN)
    s, mask, expected = similarities(network, batch), excluded(batch), []
    for i in range(len(s)):
        others = [math.log1p(math.exp(10 * (s[i, j] - 0.5))) for j in range(len(s)) if j != i and not mask[i, j]]
        expected.append((math.log1p(math.exp(-10 * (s[i, i] - 0.5))) + sum(others) / len(others)) / 2)
    assert terms["cost"].values.tolist() == pytest.approx(expected, rel=1e-4)
    assert terms["cost"].weight == 0.01
    terms["cost"].reduced().backward()
    assert all(parameter.grad is None for parameter in network.matcher.parameters())
    assert all(parameter.grad.item() != 0 for parameter in network.head.parameters())


def test_a_learned_cost_tells_matches_from_others():
    rng, cost = np.random.default_rng(0), SimilarityCost()
    s = torch.from_numpy(rng.normal(0.1, 0.1, (64, 64)) + 0.6 * np.eye(64)).float()
    optimizer = torch.optim.Adam(cost.parameters(), 0.05)
    for _ in range(300):
        optimizer.zero_grad()
        cost.loss(s, torch.eye(64, dtype=torch.bool)).mean().backward()
        optimizer.step()
    assert 0.3 < cost.threshold.item() < 0.6
    with torch.no_grad():
        own, others = cost(s.diagonal()).mean(), cost(s)[~torch.eye(64, dtype=torch.bool)].mean()
    assert own < 0.05 and others > 0.2


@pytest.mark.parametrize("temperature", [0.0, 0.05])
@pytest.mark.parametrize("forbid", [True, False])
def test_noisy_pairs_approach_a_plan_by_the_cost(forbid, temperature):
    options = {"forbid_given": forbid, "temperature": temperature, "mass": 0.3, "epsilon": 0.1}
    _, network, terms = stepped(InfoNCE(), rematching=options)
    s = torch.from_numpy(similarities(network, batch_of(NOISY)))
    scale = 1 / temperature if temperature else float(network.matcher.scale())
    cost = torch.tensor([[math.log1p(math.exp(10 * (0.5 - v))) / 10 for v in row] for row in s.tolist()]).double()
    plan = log_partial_plan(cost, 0.3, 0.1, torch.from_numpy(excluded(batch_of(NOISY))) if forbid else None, 50)
    assert terms["noisy"].values.tolist() == pytest.approx(rematching(s * scale, plan).tolist(), rel=1e-3)
    terms["noisy"].reduced().backward()
    assert all(parameter.grad is None for parameter in network.head.parameters())  # the plan has no gradient


def test_clean_pairs_train_with_the_full_margin_and_all_pairs_with_both_cross_entropies():
    method, network, terms = stepped(Hinge())
    batch = batch_of(CLEAN)
    s = similarities(network, batch)
    assert terms["clean"].values.tolist() == pytest.approx(naive_hinge(s, [0.2] * 5, excluded(batch), True), abs=1e-6)
    (term,) = method.step(Step([network], 0, {"all": batch}, method.phases()[0]))
    expected = symmetric_cross_entropy(torch.from_numpy(s) / 0.05, not_negatives(batch))
    assert term.values.tolist() == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-6)


def test_the_truth_changes_nothing():
    values = []
    for matched in (None, np.ones(12, bool), np.zeros(12, bool)):
        torch.manual_seed(0)
        _, _, terms = stepped(InfoNCE(), matched)
        values.append([term.values.tolist() for term in terms.values()])
    assert values[0] == values[1] == values[2]


def test_options_out_of_bounds_are_told():
    for bad in ({"mass": 0}, {"mass": 1}, {"epsilon": 0}, {"steps": 0}, {"temperature": -1}):
        with pytest.raises(InputError, match="must be"):
            L2RM(rematching=bad)


def test_nothing_moves_to_any_caption_that_the_image_is_given_with():
    method, network, _ = stepped(InfoNCE(), rematching={"mass": 0.3})
    batch = batch_of([2, 3, 4, 5, 8])
    plan = method.plan(network, torch.from_numpy(similarities(network, batch)).float(), not_negatives(batch))
    given = torch.from_numpy(excluded(batch))
    assert given.sum() == 9 and plan[given].isneginf().all()
    assert plan.exp().sum().item() == pytest.approx(0.3, abs=1e-3) and (plan[~given] > -100).all()
