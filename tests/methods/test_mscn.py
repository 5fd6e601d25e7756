"""MSCN against plain loops: the corrected similarities, the meta gradient, the purification, and verified pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from method_helpers import (
    LINEAR,
    SETTING,
    TAUGHT,
    VERIFIED,
    Tiny,
    batch_of,
    excluded,
    make_networks,
    naive_hinge,
    naive_v,
    similarities,
)
from scipy.stats import beta
from torch.func import functional_call

from pairsift.errors import InputError
from pairsift.loss.ranking import Hinge, InfoNCE
from pairsift.match.base import Codes
from pairsift.methods.mscn import MSCN
from pairsift.methods.parts.division import EDGE, fit_known_betas
from pairsift.methods.parts.meta import (
    MetaCorrection,
    MetaNetwork,
    meta_loss,
    meta_of,
    partial_products,
    partial_products_of_pairs,
)
from pairsift.runs.config import from_tree
from pairsift.runs.prepare import require_possible
from pairsift.steps import Observation, Step, not_negatives

CLEAN = [0, 2, 3, 5, 7, 8]


def begun(ranking, double=False, **options):
    """A method, and networks whose meta networks correct something."""
    method = MSCN(**{"meta": {"groups": 3, "hidden": 5}, **options})
    networks = make_networks(method)
    for network in networks:
        torch.nn.init.normal_(meta_of(network).out.weight)
        torch.nn.init.normal_(meta_of(network).mix.bias)
        network.to(torch.float64 if double else torch.float32)
    method = method.begin(SETTING(ranking))
    return method, networks


def doubled(batch):
    items = [type(side)(side.values.double()) for side in (batch.images, batch.texts)]
    return type(batch)(batch.ids, batch.image_rows, batch.caption_images, *items)


def phases(method):
    return {phase.name: phase for phase in method.phases()}


@pytest.mark.parametrize("ranking", [LINEAR, Hinge(base=1.0), InfoNCE(base=1.0)])
def test_the_ranking_loss_is_that_of_corrected_similarities_with_sharpened_correspondences(ranking):
    method, networks = begun(ranking)
    batch = batch_of(CLEAN)
    terms = method.step(Step(networks, 0, {"clean": batch, "verified": batch_of(TAUGHT)}, phases(method)["meta"]))
    assert [(term.name, term.reduction) for term in terms] == [("corrected", ranking.reduction), ("meta", "mean")]
    images, texts = networks[0].encode(batch)
    v = np.array(naive_v(networks[0], images.vectors, texts.vectors))
    assert np.ptp(np.diag(v)) > 0.1 and np.abs(v - 1 / (1 + np.exp(-4 * similarities(networks[0], batch)))).max() > 0.1
    y = [p**2 / (p**2 + (1 - p) ** 2) for p in np.diag(v)]
    if isinstance(ranking, Hinge):
        hardest = ranking.negatives == "hardest"
        expected = naive_hinge(v, [0.2 * value for value in y], excluded(batch), hardest)
    else:
        scale, mask = float(networks[0].matcher.scale()), excluded(batch)
        expected = []
        for i in range(len(v)):
            kept = [j for j in range(len(v)) if j == i or not mask[i, j]]
            sums = [sum(math.exp(scale * x) for x in side) for side in (v[i, kept], v[kept, i])]
            expected.append(-y[i] * sum(math.log(math.exp(scale * v[i, i]) / total) for total in sums) / 2)
    assert terms[0].values.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_in_the_warm_up_both_networks_learn_from_all_pairs_in_full():
    method, networks = begun(LINEAR)
    batch = batch_of(CLEAN)
    (term,) = method.step(Step(networks, 0, {"all": batch}, phases(method)["warm-up"]))
    images, texts = networks[0].encode(batch)
    v = np.array(naive_v(networks[0], images.vectors, texts.vectors))
    assert term.values.tolist() == pytest.approx(naive_hinge(v, [0.2] * 6, excluded(batch), False), abs=1e-5)
    term.reduced().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in networks[0].parameters())


@pytest.mark.parametrize("ranking", [LINEAR, Hinge(base=1.0, reduction="sum"), InfoNCE(base=1.0)])
def test_the_network_moves_by_the_gradient_of_the_ranking_loss(ranking):
    method, networks = begun(ranking, double=True)
    batch, matcher = doubled(batch_of(CLEAN)), networks[0].matcher
    batches = {"clean": batch, "verified": doubled(batch_of(TAUGHT))}
    terms = method.step(Step(networks, 0, batches, phases(method)["meta"]))
    found = torch.autograd.grad(sum(term.reduced() for term in terms), list(matcher.parameters()))
    images, texts = networks[0].encode(batch)
    v = meta_of(networks[0])(images.vectors @ texts.vectors.T, partial_products(images, texts, 3)).sigmoid()
    y = (v.diagonal() ** 2 / (v.diagonal() ** 2 + (1 - v.diagonal()) ** 2)).detach()
    values = ranking(v, matcher.scale(), y, not_negatives(batch))
    total = values.sum() if ranking.reduction == "sum" else values.mean()
    for got, whole in zip(found, torch.autograd.grad(total, list(matcher.parameters())), strict=True):
        torch.testing.assert_close(got, whole, rtol=1e-6, atol=1e-9)
    assert any(float(g.abs().max()) > 1e-3 for g in found)


def meta_objective(network, batch, verified, y, rate, ranking, meta=None, graph=False):
    """M( theta - alpha grad L(theta, Theta), Theta ) by differentiating twice, as its definition says."""
    theta = {f"matcher.{n}": p.detach().requires_grad_() for n, p in network.matcher.named_parameters()}
    given = {} if meta is None else {f"head.meta.{n}": p for n, p in meta.items()}

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.matcher, self.head = network.matcher, network.head

        def forward(self, pairs):
            images, texts = (
                self.matcher.encode_images(pairs.images),
                self.matcher.encode_texts(pairs.texts),
            )
            return self.head.meta(images.vectors @ texts.vectors.T, partial_products(images, texts, 3))

    both = Both()
    inner = ranking(
        functional_call(both, {**theta, **given}, (batch,)).sigmoid(), torch.tensor(1 / 0.07), y, not_negatives(batch)
    )
    g = torch.autograd.grad(inner.sum(), list(theta.values()), create_graph=graph, allow_unused=True)
    moved = {n: p - rate * d for (n, p), d in zip(theta.items(), g, strict=True)}
    return meta_loss(functional_call(both, {**moved, **given}, (verified,)), not_negatives(verified))


@pytest.mark.parametrize("ranking", [LINEAR, InfoNCE(base=1.0, reduction="sum")])
@pytest.mark.parametrize(("peak", "share"), [(0.0, 1.0), (2e-4, 1.0), (2e-4, 0.1), (0.05, 1.0), (0.5, 0.1)])
def test_the_meta_gradient_is_that_through_the_virtual_step_at_the_present_rate(monkeypatch, ranking, peak, share):
    monkeypatch.setattr("pairsift.methods.parts.meta.STEP_LENGTH", 1e-5)  # what a float64 allows
    method, networks = begun(ranking, double=True, meta={"groups": 3, "hidden": 5, "rate": peak})
    batch, verified, network = doubled(batch_of(CLEAN)), doubled(batch_of(TAUGHT)), networks[0]
    rate, phase = peak * share, phases(method)["meta"]
    terms = method.step(Step(networks, 0, {"clean": batch, "verified": verified}, phase, share))
    meta = dict(meta_of(network).named_parameters())
    found = torch.autograd.grad(terms[1].reduced(), [*meta.values(), *network.matcher.parameters()], allow_unused=True)
    assert all(g is None for g in found[len(meta) :])  # verified pairs teach the meta network alone
    assert all(
        g is None
        for g in torch.autograd.grad(terms[0].reduced(), list(meta.values()), allow_unused=True, retain_graph=True)
    )
    v = np.diag(naive_v(network, *(codes.vectors for codes in network.encode(batch))))
    y = torch.tensor([p**2 / (p**2 + (1 - p) ** 2) for p in v])
    losses = meta_objective(network, batch, verified, y, rate, ranking, graph=True)
    assert terms[1].values.tolist() == pytest.approx(losses.tolist(), rel=1e-9)
    expected = torch.autograd.grad(losses.mean(), list(meta.values()))
    direct = torch.autograd.grad(meta_objective(network, batch, verified, y, rate, ranking).mean(), list(meta.values()))
    for got, whole in zip(found, expected, strict=False):
        torch.testing.assert_close(got, whole, rtol=1e-4, atol=1e-7 + 1e-3 * rate)
    through = max(float((a - b).abs().max()) for a, b in zip(expected, direct, strict=True))
    assert (through > 0) == (rate > 0) and (rate < 0.05 or through > 0.01)  # what the difference has to find
    for number, (name, value) in enumerate(meta.items()):  # and by moving every entry of the meta network
        for place in range(value.numel()):
            sides = []
            for side in (1e-5, -1e-5):
                other = {n: p.detach().clone() for n, p in meta.items()}
                other[name].view(-1)[place] += side
                sides.append(meta_objective(network, batch, verified, y, rate, ranking, other).mean().item())
            got = found[number].reshape(-1)[place].item()
            assert got == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-3, abs=1e-6 + 1e-2 * rate)


@pytest.mark.parametrize("ranking", [LINEAR, InfoNCE(base=1.0, reduction="sum")])
def test_the_difference_as_it_is_taken_has_the_direction_of_the_derivative(ranking):
    method, networks = begun(ranking, meta={"groups": 3, "hidden": 5, "rate": 0.05})
    batch, verified, network = batch_of(CLEAN), batch_of(TAUGHT), networks[0]
    terms = method.step(Step(networks, 0, {"clean": batch, "verified": verified}, phases(method)["meta"]))
    meta = list(meta_of(network).parameters())
    v = torch.tensor(np.diag(naive_v(network, *(codes.vectors for codes in network.encode(batch)))).astype(np.float32))
    y = v**2 / (v**2 + (1 - v) ** 2)
    whole = torch.autograd.grad(
        meta_objective(network, batch, verified, y, 0.05, ranking, graph=True).mean(), meta, retain_graph=True
    )
    direct = torch.autograd.grad(meta_objective(network, batch, verified, y, 0.05, ranking).mean(), meta)
    found = torch.autograd.grad(terms[1].reduced(), meta)
    got, expected = (
        torch.cat([(a - b).flatten() for a, b in zip(side, direct, strict=True)]) for side in (found, whole)
    )
    assert expected.norm() > 0.02 * torch.cat([d.flatten() for d in direct]).norm()
    assert (got - expected).norm() < 0.1 * expected.norm()


class Dropping(Tiny):
    """A matcher with dropout and a batch norm."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(8)

    def encode_images(self, items):
        code = torch.nn.functional.dropout(self.norm(items.values), 0.5, self.training)
        return Codes(torch.nn.functional.normalize(self.image(code), dim=1))


def test_looking_ahead_changes_no_statistics_and_costs_no_randomness():
    method = MSCN(meta={"groups": 3, "hidden": 5, "rate": 0.01})
    networks = make_networks(method, Dropping)
    method = method.begin(SETTING(LINEAR))
    state = torch.get_rng_state()
    torch.randint(2**31, ())
    after = torch.get_rng_state()
    torch.set_rng_state(state)
    terms = method.step(
        Step(networks, 0, {"clean": batch_of(CLEAN), "verified": batch_of(TAUGHT)}, phases(method)["meta"])
    )
    assert torch.equal(torch.get_rng_state(), after)
    assert networks[0].matcher.norm.num_batches_tracked == 1  # of the real step
    assert all(torch.isfinite(term.values).all() for term in terms)


def test_a_new_meta_network_rises_with_the_similarity_alone():
    torch.manual_seed(0)
    s, parts = torch.rand(6, 7) * 2 - 1, torch.randn(4, 6, 7)
    torch.testing.assert_close(MetaNetwork(4, 5)(s, parts), 4 * s)


def test_the_logits_do_not_depend_on_how_many_are_computed_at_once(monkeypatch):
    torch.manual_seed(0)
    meta, s, parts = MetaNetwork(4, 5), torch.randn(7, 6), torch.randn(4, 7, 6)
    torch.nn.init.normal_(meta.out.weight)
    of_pairs, whole = meta(s.diagonal(), parts.diagonal(dim1=1, dim2=2)), meta(s, parts)
    torch.testing.assert_close(whole.diagonal(), of_pairs)
    for least in (1, 60, 90):  # one, two and three images at once
        monkeypatch.setattr("pairsift.methods.parts.meta.HIDDEN_IN_CACHE", least)
        torch.testing.assert_close(meta(s, parts), whole, rtol=0, atol=1e-6)
        torch.testing.assert_close(meta(s.diagonal(), parts.diagonal(dim1=1, dim2=2)), of_pairs, rtol=0, atol=1e-6)


def test_partial_products_add_up_to_the_inner_product():
    torch.manual_seed(0)
    images, texts = (Codes(torch.nn.functional.normalize(torch.randn(5, 10), dim=1)) for _ in range(2))
    for groups in (1, 3, 10, 16):
        parts = partial_products(images, texts, groups)
        assert parts.shape == (groups, 5, 5)
        torch.testing.assert_close(parts.mean(0), images.vectors @ texts.vectors.T)
        torch.testing.assert_close(partial_products_of_pairs(images, texts, groups), parts.diagonal(dim1=1, dim2=2))


def test_a_pass_notes_v_of_each_pair_and_of_an_image_with_the_next_caption():
    method, networks = begun(LINEAR)
    ids = [0, 1, 4, 6, 9]  # 0 and 1 show one image
    network = networks[1].eval()
    with torch.no_grad():
        notes = method.observe(Observation.make(network, 1, batch_of(ids)))
    images, texts = network.encode(batch_of(ids))
    v = naive_v(network, images.vectors, texts.vectors)
    assert notes["division.corrected"].tolist() == pytest.approx([v[i][i] for i in range(5)], abs=1e-5)
    following = [v[i][(i + 1) % 5] for i in range(5)]
    assert math.isnan(notes["division.mismatched"][0]) and notes["division.mismatched"][1:].tolist() == pytest.approx(
        following[1:], abs=1e-5
    )


def naive_known_betas(values, low, high, steps=10):
    """EM by loops over pairs, from the moments of known values."""

    def matched(x, weights):
        mean = sum(w * v for w, v in zip(weights, x, strict=True)) / sum(weights)
        variance = sum(w * (v - mean) ** 2 for w, v in zip(weights, x, strict=True)) / sum(weights)
        size = min(500.0, max(0.01, mean * (1 - mean) / max(variance, 1e-12) - 1))
        return mean * size, (1 - mean) * size

    x, low, high = ([min(1 - EDGE, max(EDGE, v)) for v in group] for group in (values, low, high))
    components, shares = [matched(group, [1.0] * len(group)) for group in (low, high)], [0.5, 0.5]
    for step in range(steps + 1):
        densities = [[share * beta.pdf(v, *c) for share, c in zip(shares, components, strict=True)] for v in x]
        posterior = [[d / sum(row) for d in row] for row in densities]
        if step < steps:
            components = [matched(x, [row[k] for row in posterior]) for k in range(2)]
            shares = [sum(row[k] for row in posterior) / len(x) for k in range(2)]
    return components, shares, [row[0] for row in posterior]


def test_betas_begin_with_those_of_known_values():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.beta(2, 9, 60), rng.beta(6, 3, 40)])
    low, high = rng.beta(2, 9, 12), rng.beta(6, 3, 30)
    mixture = fit_known_betas(values, low, high)
    components, shares, posterior = naive_known_betas(values.tolist(), low.tolist(), high.tolist())
    assert mixture.a.tolist() == pytest.approx([c[0] for c in components], rel=1e-6)
    assert mixture.weights.tolist() == pytest.approx(shares, rel=1e-6)
    inside = (values > mixture.means[0]) & (values < mixture.means[1])
    assert inside.sum() > 20
    assert mixture.low(values)[inside].tolist() == pytest.approx(np.array(posterior)[inside].tolist(), abs=1e-6)
    with pytest.raises(InputError, match="finite"):
        fit_known_betas(np.array([0.1, math.nan]), low, high)


def test_each_network_leaves_out_what_its_peer_takes_for_mismatched():
    method, _ = begun(LINEAR)
    rng = np.random.default_rng(1)
    notes = []
    for wrong in ([0, 2, 8], [3, 5, 7]):
        v = rng.uniform(0.8, 0.9, 10).astype(np.float32)
        v[wrong] = rng.uniform(0.05, 0.15, 3)
        mismatched = rng.uniform(0.05, 0.15, 10).astype(np.float32)
        mismatched[4] = math.nan
        notes.append({"division.corrected": v, "division.mismatched": mismatched})
    method.update(notes, 0)
    assert method.subset("clean", 1).tolist() == [3, 5, 7] and method.subset("clean", 0).tolist() == [0, 2, 8]
    assert method.subset("verified", 0).tolist() == VERIFIED.tolist()
    assert method.subset("all", 0).tolist() == [0, 2, 3, 5, 7, 8]
    assert method.division.state["loss"][1, 3] == 1 - notes[1]["division.corrected"][3]


def test_it_is_refused_without_verified_pairs(tmp_path):
    with pytest.raises(InputError, match=r"^mscn learns from pairs that are known to match: give --verified or"):
        require_possible(from_tree({"source": str(tmp_path), "method": "mscn"}))
    for verified in ([], [0], [0, 1]):  # 0 and 1 show one image
        with pytest.raises(InputError, match="of at least 2 images"):
            MSCN().begin(SETTING(LINEAR, verified=np.array(verified, np.int64)))


def test_its_purification_has_betas_alone():
    assert MSCN().division.mixture == "beta"
    with pytest.raises(InputError, match="mixture"):
        MSCN(division={"mixture": "gaussian"})


def test_options_out_of_bounds_are_told():
    for bad in (
        {"meta": {"groups": 0}},
        {"meta": {"hidden": 0}},
        {"meta": {"rate": -1}},
        {"division": {"threshold": 2}},
    ):
        with pytest.raises(InputError, match="must be"):
            MSCN(**bad)
    assert MetaCorrection().head().other is None
