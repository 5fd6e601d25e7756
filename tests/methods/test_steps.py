"""Each method's step against the papers' equations in plain loops."""

import numpy as np
import pytest
import torch
from method_helpers import SETTING, Tiny, batch_of, curve, excluded, make_networks, naive_hinge, similarities

from pairsift.loss.ranking import Hinge, InfoNCE
from pairsift.methods import METHODS
from pairsift.methods.ncr import NCR
from pairsift.methods.oracle import Oracle
from pairsift.methods.plain import Plain
from pairsift.steps import Phase, Step, related


@pytest.mark.parametrize("warm", [True, False])
def test_plain_is_the_hinge_of_equation_1(warm):
    method, (network, _) = Plain(), make_networks(Plain())
    method = method.begin(SETTING(Hinge()))
    batch = batch_of([0, 1, 5, 6, 9])
    (term,) = method.step(Step([network], 0, {"all": batch}, Phase("p", 1, warm=warm)))
    expected = naive_hinge(similarities(network, batch), [0.2] * 5, excluded(batch), hardest=not warm)
    assert term.values.tolist() == pytest.approx(expected, abs=1e-6)


def test_siblings_in_a_batch_are_no_negatives_of_each_other():
    ids = [0, 1, 6]  # 0 and 1 are captions of the same image
    assert SETTING(Hinge()).image_of[0] == SETTING(Hinge()).image_of[1]
    mask = related(*(batch_of(ids).image_rows,) * 2)
    assert mask.tolist() == [[True, True, False], [True, True, False], [False, False, True]]


def test_rematched_captions_exclude_siblings_owners_and_duplicates():
    images, owners = torch.tensor([1, 2, 3, 4]), torch.tensor([7, 7, 1, 8])
    mask = related(images, owners)
    for i in range(4):
        for j in range(4):
            same = i == j or images[i] == images[j] or owners[i] == owners[j] or images[i] == owners[j]
            assert bool(mask[i, j]) == bool(same)


def test_oracle_trains_on_true_pairs_only():
    method = Oracle()
    method = method.begin(SETTING(Hinge(), matched=np.arange(12) % 3 != 0))
    assert method.subset("all", 0).tolist() == [i for i in range(10) if i % 3]


def test_ncr_labels_follow_own_prediction_when_clean_and_both_when_noisy():
    method = NCR()
    networks = make_networks(method)
    method = method.begin(SETTING(Hinge()))
    rng = np.random.default_rng(0)
    method.division.state["clean_probability"] = rng.random((2, 12)).astype(np.float32)
    clean, noisy = batch_of([0, 3, 6, 7, 8]), batch_of([2, 4, 5, 9])
    terms = {t.name: t for t in method.step(Step(networks, 0, {"clean": clean, "noisy": noisy}, Phase("all", 1)))}

    def predict(network, batch):
        s, out = similarities(network.eval(), batch), []
        network.train()
        for i in range(len(s)):
            mask = excluded(batch)
            both = naive_hinge(s, [0.2] * len(s), mask, hardest=False)[i]
            out.append(min(0.2, max(0.0, 0.2 - both / 2)))
        top = sorted(out)[-(len(out) // 10 + 1) :]
        return [min(1.0, p / (sum(top) / len(top))) for p in out]

    w = method.division.state["clean_probability"][1]  # the peer's
    own = predict(networks[0], clean)
    y = [w[i] + (1 - w[i]) * p for i, p in zip(clean.ids, own, strict=True)]
    margins = [0.2 * curve(v) for v in y]
    s = similarities(networks[0], clean)
    assert terms["clean"].values.tolist() == pytest.approx(naive_hinge(s, margins, excluded(clean), True), abs=1e-5)
    both = [(a + b) / 2 for a, b in zip(predict(networks[0], noisy), predict(networks[1], noisy), strict=True)]
    s = similarities(networks[0], noisy)
    expected = naive_hinge(s, [0.2 * curve(v) for v in both], excluded(noisy), True)
    assert terms["noisy"].values.tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["ncr", "pc2", "bicro"])
def test_trust_comes_from_the_peer(name):
    method = METHODS[name]()
    method = method.begin(SETTING(InfoNCE()))
    probability = method.division.state["clean_probability"]
    probability[0, :5], probability[0, 5:], probability[1, :3], probability[1, 3:] = 0.9, 0.1, 0.1, 0.9
    assert method.subset("clean", 1).tolist() == [0, 1, 2, 3, 4]
    assert method.subset("noisy", 1).tolist() == [5, 6, 7, 8, 9]
    assert method.subset("clean", 0).tolist() == [3, 4, 5, 6, 7, 8, 9]
    alone = METHODS[name](networks=1)
    alone = alone.begin(SETTING(InfoNCE(), networks=1))
    alone.division.state["clean_probability"][0, :5] = 0.1
    assert alone.subset("clean", 0).tolist() == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("ranking", [Hinge(), InfoNCE()])
@pytest.mark.parametrize("name", sorted(set(METHODS) - {"linear"}))  # it has no step
def test_every_method_runs_with_either_loss_and_gives_one_value_per_pair(name, ranking):
    method = METHODS[name]()
    networks = make_networks(method, Tiny)
    method = method.begin(SETTING(ranking, np.ones(12, bool), method.networks))
    for phase in method.phases():
        batches = {name: batch_of([0, 3, 6, 7] if n == 0 else [2, 4, 9]) for n, name in enumerate(phase.subsets)}
        terms = method.step(Step(networks, 0, batches, phase))
        assert len({t.name for t in terms}) == len(terms)
        assert all(t.values.shape in ((4,), (3,)) and torch.isfinite(t.values).all() for t in terms)
        assert terms[0].reduction == ranking.reduction
