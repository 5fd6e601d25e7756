"""The terms of sift against a derivation in numpy, and its phases."""

import numpy as np
import pytest
import torch
from method_helpers import SETTING, Tiny, batch_of, make_networks

from pairsift.loss.ranking import InfoNCE
from pairsift.methods.crossfit import Crossfit
from pairsift.methods.sift import Sift, SiftEpochs
from pairsift.options import OptionError
from pairsift.steps import Prior, Setting, Step

PROBABILITY = np.linspace(0, 1, 12).astype(np.float32)
IDS = [0, 3, 6, 9]


def log_softmax(values, axis):
    return values - np.log(np.exp(values).sum(axis, keepdims=True))


def terms_of(method, teachers, rate=0.3):
    setting = SETTING(InfoNCE(base=1.0), prior=Prior(PROBABILITY, rate, 1.0))
    method = method.begin(setting)
    setting.teachers[:] = teachers
    networks = make_networks(method, Tiny)
    return networks, method.step(Step(networks, 0, {"all": batch_of(IDS)}, method.phases()[-1]))


def similarities(network):
    with torch.no_grad():
        similarity, scale = network(batch_of(IDS))
    return similarity.numpy().astype(np.float64) * float(scale)


def test_without_teachers_it_is_crossfit():
    crossfit = Crossfit()
    crossfit = crossfit.begin(SETTING(InfoNCE(base=1.0), prior=Prior(PROBABILITY, 0.3, 1.0)))
    (expected,) = crossfit.step(Step(make_networks(crossfit, Tiny), 0, {"all": batch_of(IDS)}, crossfit.phases()[1]))
    _, (term,) = terms_of(Sift(), [])
    assert torch.equal(term.values, expected.values) and term.weight == expected.weight == 1


@pytest.mark.parametrize("balance", [True, False])
def test_the_teaching_is_the_equation_of_the_docstring(balance):
    method = Sift(teaching={"weight": 3.0, "sharpness": 0.6, "balance": balance})
    teachers = [network.eval() for network in make_networks(method, Tiny)[::-1]]
    networks, (_, term) = terms_of(method, teachers)
    q = np.mean([similarities(network) for network in teachers], 0)
    if balance:
        q = q - np.log(np.exp(q).sum(1, keepdims=True)) - np.log(np.exp(q).sum(0, keepdims=True))
    s, q = similarities(networks[0]), 0.6 * q
    expected = [
        -(np.exp(log_softmax(q, 1)) * log_softmax(s, 1)).sum(1)[i] / 2
        - (np.exp(log_softmax(q, 0)) * log_softmax(s, 0)).sum(0)[i] / 2
        for i in range(len(IDS))
    ]
    assert term.name == "teaching" and term.weight == 3.0
    assert term.values.detach().numpy() == pytest.approx(expected, abs=1e-5)


def test_teachers_learn_nothing_and_mismatched_pairs_teach():
    method = Sift()
    teachers = [network.requires_grad_(False) for network in make_networks(method, Tiny)]
    networks, terms = terms_of(method, teachers)
    assert float(terms[0].values[0].detach()) == 0.0  # a pair that is surely mismatched has no part in the ranking
    terms[1].values[0].backward()
    assert float(networks[0].matcher.image.weight.grad.abs().sum()) > 0
    assert all(parameter.grad is None for network in teachers for parameter in network.parameters())


@pytest.mark.parametrize(
    ("pairs", "size", "train", "taught"), [(3_000, 512, 30, 90), (8_000, 512, 13, 39), (30_000, 512, 4, 12)]
)
def test_its_phases_are_open_in_length_and_the_last_one_restarts(pairs, size, train, taught):
    ids = np.arange(pairs)
    method = Sift(epochs={"warmup": 0, "train": None, "taught": None})
    method = method.begin(Setting(ids, ids, pairs, None, InfoNCE(), 0, batch_size=size))
    names = [(phase.name, phase.epochs, phase.restarts) for phase in method.phases()]
    assert names == [("warm-up", 0, False), ("train", train, False), ("taught", taught, True)]
    scaled = SiftEpochs(warmup=0, train=None, taught=None).scaled(8)
    for again in (scaled, scaled.scaled(4).scaled(8)):
        assert [phase.epochs for phase in again.phases(method.setting)] == [0, 2, 6]
    assert [phase.epochs for phase in scaled.scaled(1).phases(method.setting)] == [0, 1, 0]


@pytest.mark.parametrize(("taught", "expected"), [(None, [0, 18, 0]), (3, [0, 9, 3])])
def test_few_pairs_are_not_taught_unless_it_is_asked_for(taught, expected):
    ids = np.arange(2_999)
    method = Sift(epochs={"warmup": 0, "train": None, "taught": taught})
    method = method.begin(Setting(ids, ids, len(ids), None, InfoNCE(), 0, batch_size=128))
    assert [phase.epochs for phase in method.phases()] == expected
    open_epochs = SiftEpochs(warmup=0, train=None, taught=taught).scaled(10)
    assert [phase.epochs for phase in open_epochs.phases(method.setting)] == (
        [0, 10, 0] if taught is None else [0, 5, 5]
    )
    with pytest.raises(OptionError):
        Sift(teaching={"sharpness": 0})
