"""BiCro's steps against plain loops: whose labels, which pairs, and what is dropped."""

import math

import numpy as np
import pytest
import torch
from method_helpers import SETTING, batch_of, curve, excluded, make_networks, naive_hinge, similarities

from pairsift.errors import InputError
from pairsift.loss.ranking import Hinge, InfoNCE
from pairsift.methods.bicro import BiCro
from pairsift.steps import Step

CLEAN, NOISY = [0, 3, 6, 7, 8], [2, 4, 5, 9]


def stepped(ranking, labels, **options):
    method = BiCro(**options)
    networks = make_networks(method)
    method = method.begin(SETTING(ranking))
    method.anchors.state["soft_label"] = labels
    last = method.phases()[-1]
    batches = {"clean": batch_of(CLEAN), "noisy": batch_of(NOISY)}
    return networks, {term.name: term for term in method.step(Step(networks, 0, batches, last))}


def drawn_labels() -> np.ndarray:
    labels = np.random.default_rng(0).uniform(0.5, 1, (2, 12)).astype(np.float32)
    labels[1, [2, 9]] = 0.3, 0.49
    labels[0, NOISY] = 0.1, 0.9, 0.2, 0.9
    return labels


@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.6])
def test_the_peers_labels_set_margins_and_low_ones_drop_noisy_pairs(threshold):
    labels = drawn_labels()
    networks, terms = stepped(Hinge(), labels, anchors={"mismatch_threshold": threshold})
    for name, ids in (("clean", CLEAN), ("noisy", NOISY)):
        y, batch = [float(labels[1, i]) for i in ids], batch_of(ids)
        margins = [0.2 * curve(v) for v in y]
        expected = naive_hinge(similarities(networks[0], batch), margins, excluded(batch), hardest=True)
        if name == "noisy":
            without = sum(v < threshold and loss > 0 for v, loss in zip(y, expected, strict=True))
            expected = [loss if v >= threshold else 0.0 for v, loss in zip(y, expected, strict=True)]
        assert terms[name].values.tolist() == pytest.approx(expected, abs=1e-6)
    assert without >= 1 or threshold == 0


def test_a_dropped_pair_has_no_gradient_under_the_hinge():
    labels = drawn_labels()
    labels[1, NOISY] = 0.2
    networks, terms = stepped(Hinge(negatives="mean"), labels)
    terms["noisy"].reduced().backward()
    assert all(not parameter.grad.any() for parameter in networks[0].parameters() if parameter.grad is not None)
    networks, terms = stepped(Hinge(negatives="mean"), labels, anchors={"mismatch_threshold": 0})
    terms["noisy"].reduced().backward()
    assert any(parameter.grad.any() for parameter in networks[0].parameters() if parameter.grad is not None)


def test_labels_weigh_infonce():
    labels = drawn_labels()
    networks, terms = stepped(InfoNCE(), labels)
    batch = batch_of(CLEAN)
    s, mask, scale = similarities(networks[0], batch), excluded(batch), float(networks[0].matcher.scale())
    for i, pair in enumerate(CLEAN):
        sums = [0.0, 0.0]
        for j in range(len(CLEAN)):
            if i == j or not mask[i, j]:
                sums = [sums[0] + math.exp(scale * s[i, j]), sums[1] + math.exp(scale * s[j, i])]
        loss = -sum(math.log(math.exp(scale * s[i, i]) / total) for total in sums) / 2
        assert terms["clean"].values[i].item() == pytest.approx(
            curve(float(labels[1, pair])) * loss, rel=1e-4, abs=1e-6
        )


@pytest.mark.parametrize(("share", "kept"), [(0.3, 2), (0.5, 3), (1.0, 6), (0.01, 1)])
@pytest.mark.parametrize("ranking", [Hinge(), InfoNCE()])
def test_the_warm_up_trains_on_the_least_losses_of_a_batch(ranking, share, kept):
    ids = [0, 2, 4, 6, 8, 9]
    whole, part = (BiCro(warmup_share=one) for one in (1.0, share))
    networks, values = make_networks(whole), []
    for method in (whole, part):
        method = method.begin(SETTING(ranking))
        (term,) = method.step(Step(networks, 0, {"all": batch_of(ids)}, method.phases()[0]))
        values.append(term.values)
    if isinstance(ranking, Hinge):
        batch = batch_of(ids)
        means = naive_hinge(similarities(networks[0], batch), [0.2] * 6, excluded(batch), hardest=False)
        assert values[0].tolist() == pytest.approx(means, abs=1e-6)
    least = values[0].argsort()[:kept]
    mask = torch.zeros(6).index_fill(0, least, 1.0)
    torch.testing.assert_close(values[1], values[0] * mask)


def test_options_out_of_bounds_are_told():
    for bad in ({"warmup_share": 0}, {"anchors": {"share": 0}}, {"anchors": {"mismatch_threshold": 1.1}}):
        with pytest.raises(InputError, match="must be"):
            BiCro(**bad)
