"""RCL and RINCE: their steps in plain loops, their warm-up, and which pairs they leave out."""

import math
from dataclasses import replace

import pytest
import torch
from method_helpers import SETTING, batch_of, excluded, make_networks, similarities

from pairsift.errors import InputError
from pairsift.loss.ranking import Hinge, InfoNCE
from pairsift.match.two_tower import TwoTower
from pairsift.methods.rcl import RCL
from pairsift.methods.rince import RINCE
from pairsift.runs.config import from_tree
from pairsift.steps import Batch, Step

RANKING = InfoNCE()
IDS = [0, 1, 3, 5, 6, 9]  # 0 and 1 show the same image


def directions(s, mask, i):
    """Logits of pair i over captions and over images: its own first, then those of its negatives."""
    others = [j for j in range(len(s)) if j != i and not mask[i][j]]
    return [[s[i, i], *(s[i, j] for j in others)], [s[i, i], *(s[j, i] for j in others)]]


def term_of(method, batch, ranking=RANKING, warm=False):
    method = method.begin(SETTING(ranking, networks=method.networks))
    networks = make_networks(method)
    phase = replace(method.phases()[1], warm=warm)
    (term,) = method.step(Step(networks, 0, {"all": batch}, phase))
    return networks[0], term


@pytest.mark.parametrize(("tau", "reduction"), [(0.2, "mean"), (0.0, "sum")])
def test_rcl_pushes_negatives_apart_at_its_temperature_or_the_matchers(tau, reduction):
    batch = batch_of(IDS)
    network, term = term_of(RCL(tau=tau, form="tan"), batch, InfoNCE(reduction=reduction))
    s, expected = similarities(network, batch) / (tau or 0.07), []
    for i in range(len(IDS)):
        parts = [[math.exp(value) for value in side] for side in directions(s, excluded(batch), i)]
        expected.append(sum(math.tan(part / sum(side)) for side in parts for part in side[1:]) / 2)
    assert (term.name, term.weight, term.reduction) == ("complementary", 1, reduction)
    assert term.values.tolist() == pytest.approx(expected, rel=1e-4)


def test_a_temperature_is_that_of_similarities_up_to_1():
    batch = batch_of(IDS)
    for small, large in ((RCL(tau=0.3), RCL(tau=0.05)), (RINCE(tau=0.6), RINCE(tau=0.1))):
        found = []
        for method, largest in ((small, 1.0), (large, 6.0)):
            method = method.begin(SETTING(RANKING, networks=method.networks))
            networks = make_networks(method)
            networks[0].matcher.largest = largest
            (term,) = method.step(Step(networks, 0, {"all": batch}, replace(method.phases()[1], warm=False)))
            found.append(term.values.tolist())
        assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_rince_is_the_papers_loss_in_both_directions():
    batch, q = batch_of(IDS), 0.4
    network, term = term_of(RINCE(q=q, tau=0.3, density=0.02), batch)
    s, expected = similarities(network, batch) / 0.3, []
    for i in range(len(IDS)):
        sides = [
            -math.exp(q * side[0]) / q + (0.02 * sum(map(math.exp, side))) ** q / q
            for side in directions(s, excluded(batch), i)
        ]
        expected.append(sum(sides) / 2)
    assert (term.name, term.weight) == ("rince", 1)
    assert term.values.tolist() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("density", "drifts"), [(0.0, 0.0), (0.1, -1.0), (0.4, 1.0)])
def test_equal_similarities_drift_together_by_the_density_and_the_size_of_a_batch(density, drifts):
    ids, method = [0, 2, 4, 6, 8], RINCE(q=0.5, tau=0.5, density=density)
    method = method.begin(SETTING(InfoNCE()))
    network, s = make_networks(method)[0], torch.full((5, 5), 0.3, requires_grad=True)
    network.matcher.similarity = lambda images, texts: s
    (term,) = method.step(Step([network], 0, {"all": batch_of(ids)}, method.phases()[1]))
    term.reduced().backward()
    assert float(s.grad.sum()) * drifts > 0 if drifts else abs(float(s.grad.sum())) < 1e-6


@pytest.mark.parametrize("method", [RCL(), RINCE()], ids=["rcl", "rince"])
def test_their_warm_up_is_the_runs_ranking_loss_and_there_is_none_by_default(method):
    assert [phase.epochs for phase in method.phases()] == [0, 40]
    batch, ranking = batch_of(IDS), Hinge()
    network, term = term_of(method, batch, ranking, warm=True)
    similarity, scale = network(batch)
    exclude = torch.from_numpy(excluded(batch))
    torch.testing.assert_close(term.values, ranking(similarity, scale, torch.ones(6), exclude, True))


@pytest.mark.parametrize("method", [RCL(), RINCE()], ids=["rcl", "rince"])
def test_near_duplicates_and_equal_captions_push_nothing_apart(method):
    batch = batch_of([0, 2, 4, 6])
    same = Batch(**{**vars(batch), "caption_texts": torch.tensor([5, 5, 1, 2])})
    changed = {}
    for name, given in (("apart", batch), ("same", same)):
        network, term = term_of(method, given)
        term.values[0].backward()
        changed[name] = term.values.detach()
        gradient = network.matcher.text.weight.grad
        assert gradient.isfinite().all() and gradient.abs().sum() > 0
    moved = (changed["apart"] - changed["same"]).abs()
    assert bool((moved[:2] > 1e-6).all()) and bool((moved[2:] < 1e-6).all())


def test_the_temperature_of_rince_learns_nothing():
    batch = batch_of(IDS)
    method = RINCE()
    method = method.begin(SETTING(InfoNCE(), networks=2))
    network = make_networks(method, lambda: TwoTower(8, 6))[0]
    (term,) = method.step(Step([network], 0, {"all": batch}, method.phases()[1]))
    term.reduced().backward()
    assert network.matcher.log_scale.grad is None
    assert network.matcher.image_head.project[2].weight.grad.abs().sum() > 0


def test_a_temperature_that_overflows_is_one_line():
    with pytest.raises(InputError, match=r"^rince\.tau is 0\.01, too small for rince\.q = 1: .* at least 0\.0125$"):
        RINCE(q=1.0, tau=0.01).check(TwoTower, False)
    RINCE(q=0.1, tau=0.01).check(TwoTower, False)


def test_presets_keep_one_network_where_the_paper_has_one():
    for name, rate in (("rcl", 5e-4), ("rince", 2e-4)):
        config = from_tree({"source": ".", "method": name, "matcher": "sgr", "preset": "paper"})
        assert (config.method.networks, config.train.batch_size, config.train.lr) == (1, 128, rate)
        assert (config.train.decay_epoch, [phase.epochs for phase in config.method.phases()]) == (30, [0, 40])
    coco = from_tree({"source": ".", "method": "rcl", "matcher": "sgr", "preset": "paper_coco"})
    assert (coco.train.lr, coco.train.decay_epoch, coco.method.epochs.train) == (5e-4, 10, 20)
