"""DECL: its step and its division in plain loops, whose division counts, and how the negatives become fewer."""

import math

import numpy as np
import pytest
import torch
from method_helpers import SETTING, Tiny, batch_of, excluded, make_networks, similarities

from pairsift.loss.ranking import Hinge, InfoNCE
from pairsift.methods.decl import DECL, evidence, evidential_loss
from pairsift.runs.config import from_tree
from pairsift.steps import Observation, Prior, Step

IDS = [0, 1, 3, 5, 6, 9]  # 0 and 1 show the same image


class Raw(Tiny):
    """A matcher whose raw scores are not a multiple of its similarities."""

    def logits(self, images, texts):
        return 3 * self.similarity(images, texts) - 1


def begun(ranking=None, kind=Raw, **options):
    method = DECL(**options)
    method = method.begin(SETTING(ranking or InfoNCE(), networks=method.networks))
    return method, make_networks(method, kind)


def naive_hinges(t, margin, k, mask):
    """The mean over the k hardest negatives of each direction, summed."""
    n, out = len(t), []
    for i in range(n):
        others = [j for j in range(n) if j != i and not mask[i][j]]
        sides = ([t[i, j] for j in others], [t[j, i] for j in others])
        costs = [sorted((max(0.0, margin + other - t[i, i]) for other in side), reverse=True)[:k] for side in sides]
        out.append(sum(sum(side) / len(side) if side else 0.0 for side in costs))
    return out


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("anneal", [0.0, 1.0])
def test_a_step_is_the_hinge_of_believed_pairs_and_the_evidence_of_all_by_the_peers_division(k, anneal):
    method, networks = begun(dynamic={"anneal": anneal, "least": 2, "margin": 0.3, "weight": 0.7}, regularisation=0.2)
    method.state["believed"][:] = np.arange(24).reshape(2, 12) % 3 > 0
    batch = batch_of(IDS)
    method.state["steps"][k] = 2  # this step is the third
    first, second = method.step(Step(networks, k, {"all": batch}, method.phases()[1]))
    assert [(first.name, first.weight), (second.name, second.weight)] == [("hinge", 0.7), ("evidence", 1 / 128)]
    assert first.reduction == second.reduction == "mean"
    y = method.state["believed"][1 - k, IDS]
    assert 0 < y.sum() < len(IDS)
    r = 3 * similarities(networks[k], batch) - 1
    hinges = naive_hinges(np.tanh(r), 0.3, 3 if anneal else 6, excluded(batch))
    assert first.values.tolist() == pytest.approx([a * b for a, b in zip(y, hinges, strict=True)], abs=1e-5)
    e = evidence(torch.from_numpy(r), 0.1)
    expected = evidential_loss(e, torch.from_numpy(y).double(), torch.from_numpy(excluded(batch)), 0.2)
    assert second.values.tolist() == pytest.approx(expected.tolist(), rel=1e-3)
    assert method.state["steps"].tolist() == [3 * (k == 0), 3 * (k == 1)]


def test_the_sum_of_128_hinges_stands_beside_the_mean_of_the_evidential_loss():
    method, networks = begun(Hinge(reduction="sum"))
    terms = method.step(Step(networks, 0, {"all": batch_of(IDS)}, method.phases()[1]))
    hinges, evidences = (term.values.sum().item() for term in terms)
    total = sum(term.weight * term.reduced().item() for term in terms)
    assert total == pytest.approx(0.8 * hinges + evidences / 128, rel=1e-5)


def test_negatives_become_fewer_with_the_steps_of_a_network():
    method, _ = begun()
    found = []
    for steps in (0, 1, 40, 41, 4919, 4920, 10**6):
        method.state["steps"][1] = steps
        found.append((method.negatives(1, 128), method.negatives(0, 128)))
    assert found == [(128, 128), (127, 128), (127, 128), (126, 128), (5, 128), (5, 128), (5, 128)]


@pytest.mark.parametrize("block", [5, 100])
def test_a_pair_is_believed_where_no_other_of_its_block_has_more_evidence(block):
    method, networks = begun(division={"block": block})
    ids = np.random.default_rng(1).permutation(10).tolist()
    with torch.no_grad():
        notes = [
            method.observe(Observation.make(network.eval(), k, batch_of(ids))) for k, network in enumerate(networks)
        ]
    order = np.argsort(ids)
    method.update([{name: value.numpy()[order] for name, value in note.items()} for note in notes], 5)
    for k, network in enumerate(networks):
        for part in [ids[:5], ids[5:]] if block == 5 else [ids]:
            batch = batch_of(part)
            mask, r = excluded(batch), 3 * similarities(network, batch) - 1
            e = np.exp(np.tanh(r) / 0.1)
            for i, pair in enumerate(part):
                others = [j for j in range(len(part)) if j != i and not mask[i][j]]
                first = all(e[i, i] + e[i, i] > e[i, j] + e[j, i] for j in others)
                assert bool(method.state["believed"][k, pair]) == first
    believed = method.state["believed"][:, :10]
    assert 0 < believed.sum() < 20
    assert method.facts()["noise_rate"] == pytest.approx(1 - believed.mean())


def test_held_out_evidence_bounds_how_many_pairs_lose_theirs():
    method = DECL()
    method = method.begin(SETTING(InfoNCE(), prior=Prior(np.full(12, 0.5, np.float32), 0.2, 0.3)))
    method.update([{"division.share": np.linspace(0.01, 0.4, 10, dtype=np.float32)}] * 2, 0)
    assert (method.state["believed"][:, :10] == ([0] * 3 + [1] * 7)).all()


@pytest.mark.parametrize(("kind", "scale"), [(Tiny, 0.0), (Tiny, 2.5), (Raw, 2.5)])
def test_a_cosine_is_taken_as_it_is_or_scaled_as_given(kind, scale):
    method, networks = begun(kind=kind, division={"scale": scale})
    batch = batch_of(IDS)
    term = method.step(Step(networks, 0, {"all": batch}, method.phases()[0]))[0]
    t = np.tanh(similarities(networks[0], batch) * (scale or 1))
    assert term.values.tolist() == pytest.approx(naive_hinges(t, 0.2, 6, excluded(batch)), abs=1e-5)


def test_both_losses_reach_both_encoders():
    method, networks = begun()
    for term in method.step(Step(networks, 0, {"all": batch_of(IDS)}, method.phases()[0])):
        grads = torch.autograd.grad(term.values.sum(), list(networks[0].parameters()), retain_graph=True)
        assert all(grad.abs().sum() > 0 and grad.isfinite().all() for grad in grads)


def test_the_papers_preset_is_as_printed():
    config = from_tree({"source": ".", "method": "decl", "matcher": "sgr", "preset": "paper"})
    method, options = config.method, config.train
    assert [(phase.epochs, phase.warm) for phase in method.phases()] == [(5, True), (40, False)]
    assert (method.networks, method.division.tau, method.regularisation, method.dynamic.weight) == (1, 0.1, 0.1, 0.8)
    assert (options.lr, options.decay_epoch, options.batch_size, config.loss.reduction) == (2e-4, 20, 128, "sum")
    assert math.ceil((128 - method.dynamic.least) / method.dynamic.anneal) == 4920
