"""CRCL: its step and its correspondences in plain loops, its pieces, and what a restart keeps."""

import math

import numpy as np
import pytest
import torch
from method_helpers import SETTING, batch_of, excluded, make_networks, similarities

from pairsift.loss.ranking import InfoNCE
from pairsift.methods.crcl import CRCL
from pairsift.runs.config import from_tree
from pairsift.steps import Observation, Step
from pairsift.train.schedule import learning_rate

IDS = [0, 1, 3, 5, 6, 9]  # 0 and 1 show the same image


def begun(**options):
    method = CRCL(**options)
    method = method.begin(SETTING(InfoNCE(), networks=method.networks))
    rng = np.random.default_rng(0)
    method.correspondence.state["correspondence"][:] = rng.random((method.networks, 12))
    return method, make_networks(method)


def probabilities(s, mask, i):
    """Of pair i over captions and over images: its own first, then those of its negatives."""
    others = [j for j in range(len(s)) if j != i and not mask[i][j]]
    found = []
    for side in ([s[i, i], *(s[i, j] for j in others)], [s[i, i], *(s[j, i] for j in others)]):
        parts = [math.exp(value) for value in side]
        found.append([part / sum(parts) for part in parts])
    return found


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("tau", [0.3, 0.0])
def test_a_step_is_the_active_complementary_loss_by_the_peers_correspondences(k, tau):
    method, networks = begun(tau=tau, weights={"active": 0.5, "complementary": 3.0})
    batch = batch_of(IDS)
    terms = method.step(Step(networks, k, {"all": batch}, method.phases()[0]))
    assert [(term.name, term.weight) for term in terms] == [("active", 0.5), ("complementary", 3.0)]
    active, negative = (term.values.tolist() for term in terms)
    s = similarities(networks[k], batch) / (tau or 0.07)
    for i, pair in enumerate(IDS):
        y = float(method.correspondence.state["correspondence"][1 - k, pair])
        p = probabilities(s, excluded(batch), i)
        assert active[i] == pytest.approx(-y * sum(math.log(side[0]) for side in p), rel=1e-4)
        tangents = [[math.tan(value) for value in side] for side in p]
        expected = sum(sum(side[1:]) / sum(side) ** (1 - y) for side in tangents)
        assert negative[i] == pytest.approx(expected, rel=1e-4)


def test_correspondences_are_constants_and_both_encoders_learn():
    method, networks = begun()
    for term in method.step(Step(networks, 0, {"all": batch_of(IDS)}, method.phases()[0])):
        grads = torch.autograd.grad(term.values.sum(), list(networks[0].parameters()), retain_graph=True)
        assert all(grad.abs().sum() > 0 for grad in grads)


def test_a_pass_notes_the_mean_probability_of_each_pair_within_a_block():
    method, networks = begun(tau=0.2, correspondence={"block": 5})
    ids = list(range(10))
    with torch.no_grad():
        found = method.observe(Observation.make(networks[1].eval(), 1, batch_of(ids)))["probability"].tolist()
    expected = []
    for part in (ids[:5], ids[5:]):
        batch = batch_of(part)
        s, mask = similarities(networks[1], batch) / 0.2, excluded(batch)
        expected += [sum(side[0] for side in probabilities(s, mask, i)) / 2 for i in range(5)]
    assert found == pytest.approx(expected, rel=1e-4)


def test_correspondences_start_at_1_then_are_the_first_probabilities_then_their_averages():
    method = CRCL(epochs={"first": 4, "second": 3, "third": 0, "last": 3}, correspondence={"least": 0.25})
    method = method.begin(SETTING(InfoNCE()))
    assert (method.correspondence.state["correspondence"] == 1).all()
    assert method.facts() == {"noise_rate": 0.0}
    rng, expected = np.random.default_rng(1), np.ones((2, 10))
    for epoch in (2, 3, 6):  # the passes of these pieces, the first after two frozen epochs
        notes = [{"probability": rng.random(10).astype(np.float32)} for _ in range(2)]
        method.update(notes, epoch)
        for k in range(2):
            for i in range(10):
                p = float(notes[k]["probability"][i])
                y = p if epoch == 2 else 0.8 * expected[k, i] + 0.2 * p
                expected[k, i] = 0.0 if y < 0.25 else y
        assert method.correspondence.state["correspondence"][:, :10] == pytest.approx(expected, abs=1e-6)
    assert (expected == 0).any() and (
        method.correspondence.state["correspondence"][:, 10:] == 1
    ).all()  # dev and test stay


def test_a_piece_begins_with_new_networks_and_frozen_correspondences_and_the_last_competes():
    phases = CRCL(epochs={"first": 7, "second": 3, "third": 1, "last": 5}).phases()
    assert [(p.name, p.epochs, p.observe, p.restarts, p.competes) for p in phases] == [
        ("first frozen", 2, False, False, False),
        ("first", 5, True, False, False),
        ("second frozen", 2, False, True, False),
        ("second", 1, True, False, False),
        ("third frozen", 1, False, True, False),
        ("third", 0, True, False, False),
        ("last frozen", 2, False, True, False),
        ("last", 3, True, False, True),
    ]
    assert not any(phase.teachers for phase in phases if phase.restarts)


def test_the_papers_preset_has_its_pieces_and_rates():
    config = from_tree({"source": ".", "method": "crcl", "matcher": "sgr", "preset": "paper"})
    method, options = config.method, config.train
    assert [phase.epochs for phase in method.phases()] == [2, 5, 2, 5, 2, 5, 2, 30]
    assert (method.networks, method.tau, method.weights.active, method.weights.complementary) == (1, 0.05, 1, 5)
    assert (method.correspondence.momentum, method.correspondence.least) == (0.2, 0.1)
    assert (options.batch_size, options.weight_decay) == (128, 0.01)
    rates = [learning_rate(options, epoch, 0.5, 32, 0) for epoch in (0, 14, 15, 29, 30, 31)]
    assert rates == pytest.approx([5e-4, 5e-4, 5e-5, 5e-5, 5e-6, 5e-6])
