"""CREAM's sets, labels and losses against plain loops."""

import math

import numpy as np
import pytest
import torch
from method_helpers import SETTING, batch_of, curve, excluded, make_networks, naive_hinge, similarities

from pairsift.loss.ranking import Hinge, InfoNCE
from pairsift.methods.cream import CREAM, mining
from pairsift.steps import Prior, Step, not_negatives

W = np.array([[0.9, 0.8, 0.1, 0.2, 0.7, 0.6, 0.3, 0.4, 0.95, 0.05], [0.8, 0.3, 0.2, 0.9, 0.6, 0.1, 0.4, 0.7, 0.9, 0.3]])
CLEAN, HARD, NOISY = [0, 4, 8], [1, 3, 5, 7], [2, 6, 9]
SETS = {"clean": CLEAN, "hard": HARD, "noisy": NOISY}


def begun(ranking, w=W, **more):
    method = CREAM()
    method = method.begin(SETTING(ranking, **more))
    method.division.state["clean_probability"][:, :10] = w
    return method


def stepped(ranking):
    method = begun(ranking)
    networks = [network.train() for network in make_networks(method)]
    batches = {name: batch_of(ids) for name, ids in SETS.items()}
    return networks, {term.name: term for term in method.step(Step(networks, 0, batches, method.phases()[3]))}


def predicted(network, batch) -> list[float]:
    """c by plain loops."""
    s, mask, scale = similarities(network.eval(), batch), excluded(batch), float(network.matcher.scale())
    network.train()
    n, found = len(s), []
    for i in range(n):
        row = sum(math.exp(scale * s[i, j]) for j in range(n) if j == i or not mask[i, j])
        column = sum(math.exp(scale * s[j, i]) for j in range(n) if j == i or not mask[i, j])
        found.append(math.exp(scale * s[i, i]) * (1 / row + 1 / column) / 2)
    return found


def labels(networks, name: str) -> list[float]:
    """The labels of network 0 by plain loops."""
    c = [predicted(network, batch_of(SETS[name])) for network in networks]
    found = []
    for place, i in enumerate(SETS[name]):
        w = W[1, i] if name == "clean" else (W[0, i] + W[1, i]) / 2
        found.append((c[0][place] + c[1][place]) / 2 if name == "noisy" else w + (1 - w) * c[0][place])
    return found


def test_pairs_are_clean_to_all_noisy_to_all_or_hard():
    method = begun(InfoNCE())
    for k in range(2):
        assert {name: method.subset(name, k).tolist() for name in SETS} == SETS
        assert method.subset("all", k).tolist() == list(range(10))
    assert method.facts()["hard"] == 0.4


def test_a_network_alone_has_no_hard_pairs_and_some_pair_is_always_clean():
    alone = CREAM(networks=1)
    alone = alone.begin(SETTING(InfoNCE(), networks=1))
    alone.division.state["clean_probability"][0, :10] = W[0]
    assert len(alone.subset("hard", 0)) == 0 and alone.subset("clean", 0).tolist() == [0, 1, 4, 5, 8]
    crossed = np.stack([np.linspace(0, 1, 10), np.linspace(0.9, 0, 10)])
    method = begun(InfoNCE(), np.where(crossed > 0.5, crossed, 0.1))
    assert len(method.subset("clean", 0)) > 0
    parts = [set(method.subset(name, 0).tolist()) for name in SETS]
    assert set.union(*parts) == set(range(10)) and sum(map(len, parts)) == 10


def test_held_out_evidence_bounds_the_noisy_pairs():
    method = begun(InfoNCE(), prior=Prior(np.ones(12, np.float32), 0.1, 0.1))
    assert len(method.subset("noisy", 0)) <= 1


@pytest.mark.parametrize("name", SETS)
def test_labels_weigh_infonce_and_what_they_leave_is_mined(name):
    networks, terms = stepped(InfoNCE(base=1.0))
    batch, y = batch_of(SETS[name]), labels(networks, name)
    s, mask, scale = similarities(networks[0], batch), excluded(batch), float(networks[0].matcher.scale())
    for i in range(len(y)):
        sums = [
            sum(math.exp(scale * side[j]) for j in range(len(y)) if j == i or not mask[i, j])
            for side in (s[i], s[:, i])
        ]
        loss = -sum(math.log(math.exp(scale * s[i, i]) / total) for total in sums) / 2
        assert terms[name].values[i].item() == pytest.approx(y[i] * loss, rel=1e-4, abs=1e-5)
    block = torch.from_numpy(s)
    expected = mining(block * scale, block, torch.tensor(y, dtype=torch.float64), not_negatives(batch), float(W.mean()))
    assert terms[f"{name} mining"].values.tolist() == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-5)


def test_labels_set_the_margin_of_the_hinge():
    networks, terms = stepped(Hinge())
    for name, ids in SETS.items():
        batch, margins = batch_of(ids), [0.2 * curve(v) for v in labels(networks, name)]
        expected = naive_hinge(similarities(networks[0], batch), margins, excluded(batch), hardest=True)
        assert terms[name].values.tolist() == pytest.approx(expected, abs=1e-6)


def test_mining_begins_with_the_hard_pairs_and_can_be_left_out():
    method = begun(InfoNCE())
    networks = make_networks(method)
    warm, clean, hard, last = method.phases()
    for phase, mined in ((warm, 0), (clean, 0), (hard, 2), (last, 3)):
        batches = {name: batch_of(SETS.get(name, range(10))) for name in phase.subsets}
        terms = method.step(Step(networks, 0, batches, phase))
        assert sum(term.name.endswith("mining") for term in terms) == mined and len(terms) == len(batches) + mined
    without = CREAM(mining=0)
    without = without.begin(SETTING(InfoNCE()))
    batches = {name: batch_of(ids) for name, ids in SETS.items()}
    assert [term.name for term in without.step(Step(networks, 0, batches, last))] == list(SETS)


def test_labels_carry_no_gradient():
    networks, terms = stepped(InfoNCE(base=1.0))
    terms["noisy mining"].reduced().backward()
    assert all(parameter.grad is None for parameter in networks[1].parameters())
    assert networks[0].training and networks[1].training
