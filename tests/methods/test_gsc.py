"""GSC against the paper's equations in plain loops, and whose labels are used when."""

import math

import numpy as np
import pytest
import torch
from method_helpers import IMAGE_OF, SETTING, Tiny, batch_of, make_networks

from pairsift.errors import InputError
from pairsift.loss.ranking import Hinge, InfoNCE
from pairsift.methods.gsc import GSC
from pairsift.methods.parts.division import fit_mixture
from pairsift.runs.config import flattened, from_tree
from pairsift.steps import Observation, Phase, Step
from pairsift.train.schedule import learning_rate

PAPERS = InfoNCE(base=1.0)
TRAIN = Phase("train", 1, observe=True)


class Exact(Tiny):
    """The tiny matcher in float64."""

    def __init__(self):
        super().__init__()
        self.double()

    def encode_images(self, items):
        return super().encode_images(type(items)(items.values.double(), items.mask))

    def encode_texts(self, items):
        return super().encode_texts(type(items)(items.values.double(), items.mask))


def begun(ranking=PAPERS, seed=None, **options):
    method = GSC(**options)
    method = method.begin(SETTING(ranking, networks=method.networks))
    if seed is not None:
        rng = np.random.default_rng(seed)
        for name, array in method.indicators.state.items():
            method.indicators.state[name] = rng.random(array.shape).astype(np.float32)
    return method, make_networks(method, Exact)


def structures(network, batch):
    """Similarities across, among images, among captions."""
    images, texts = (codes.vectors.detach().numpy() for codes in network.encode(batch))
    return images @ texts.T, images @ images.T, texts @ texts.T


def negatives(batch, i):
    """The pair itself and the pairs of other images."""
    rows = batch.image_rows.tolist()
    return [j for j in range(len(rows)) if j == i or rows[j] != rows[i]]


def equation_6(s, y, batch, tau):
    out = []
    for i in range(len(s)):
        some = negatives(batch, i)
        rows = math.log(math.exp(s[i, i] / tau) / sum(math.exp(s[i, j] / tau) for j in some))
        columns = math.log(math.exp(s[i, i] / tau) / sum(math.exp(s[j, i] / tau) for j in some))
        out.append(-y[i] * (rows + columns) / 2)
    return out


def equation_7(inner, outer, y, batch, tau):
    n, out = len(y), []
    for i in range(n):
        logit = [sum(y[k] * inner[i, k] * y[k] * outer[j, k] for k in range(n)) / tau for j in range(n)]
        out.append(-math.log(math.exp(logit[i]) / sum(math.exp(logit[j]) for j in negatives(batch, i))))
    return out


def label(method, owner, i, names=("cross_modal", "intra_modal")):
    return min(float(method.indicators.state[name][owner, i]) for name in names)


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("weigh", [True, False])
def test_a_step_is_equations_5_6_7_and_9_by_the_peers_labels(k, weigh):
    method, networks = begun(seed=0, intra_modal={"gamma": 0.03, "tau2": 0.5, "weigh": weigh}, indicators={"tau1": 0.2})
    batch = batch_of([0, 1, 3, 5, 6, 9])  # 0 and 1 show the same image
    terms = method.step(Step(networks, k, {"all": batch}, TRAIN))
    assert [(t.name, t.weight, t.reduction) for t in terms] == [
        ("cross_modal", 1, "mean"),
        ("intra_modal", 0.03, "mean"),
    ]
    y = [label(method, 1 - k, i) for i in batch.ids]
    s, images, texts = structures(networks[k], batch)
    cross, intra = equation_6(s, y, batch, 0.2), equation_7(images, texts, y, batch, 0.5)
    intra = [v * w for v, w in zip(intra, y, strict=True)] if weigh else intra
    assert terms[0].values.tolist() == pytest.approx(cross, abs=1e-6)
    assert terms[1].values.tolist() == pytest.approx(intra, abs=1e-6)
    total = sum(t.reduced().item() * t.weight for t in terms)
    assert total == pytest.approx(sum(cross) / 6 + 0.03 * sum(intra) / 6, abs=1e-6)


def test_both_losses_reach_both_encoders_and_labels_are_constants():
    method, networks = begun(seed=1)
    for term in method.step(Step(networks, 0, {"all": batch_of([0, 2, 4, 6])}, TRAIN)):
        grads = torch.autograd.grad(term.values.sum(), list(networks[0].parameters()), retain_graph=True)
        assert all(grad.abs().sum() > 0 for grad in grads)


def test_intra_modal_similarity_is_the_matchers_own_where_it_has_a_module(monkeypatch):
    method, networks = begun(seed=8)
    monkeypatch.setattr(Tiny, "intra_similarity", lambda _, codes: (3 * codes.vectors @ codes.vectors.T - 1).sigmoid())
    batch = batch_of([0, 2, 4, 6])
    _, intra = method.step(Step(networks, 0, {"all": batch}, TRAIN))
    _, images, texts = (1 / (1 + np.exp(1 - 3 * side)) for side in structures(networks[0], batch))
    y = [label(method, 1, i) for i in batch.ids]
    expected = [v * w for v, w in zip(equation_7(images, texts, y, batch, 1.0), y, strict=True)]
    assert intra.values.tolist() == pytest.approx(expected, abs=1e-6)


def test_gamma_0_leaves_the_intra_modal_loss_out_and_its_similarities_uncomputed(monkeypatch):
    method, networks = begun(intra_modal={"gamma": 0.0})
    monkeypatch.setattr(Tiny, "intra_similarity", lambda *_: pytest.fail("not needed"))
    assert [t.name for t in method.step(Step(networks, 0, {"all": batch_of([0, 2, 4])}, TRAIN))] == ["cross_modal"]


def test_the_matchers_own_temperature_stands_in_for_tau1():
    batch = batch_of([0, 3, 5, 6])
    given, networks = begun(seed=2, indicators={"tau1": 1 / 25})
    own, _ = begun(seed=2, indicators={"tau1": 0.0})
    for network in networks:
        network.matcher.scale = lambda: torch.tensor(25.0)
    one, two = (m.step(Step(networks, 0, {"all": batch}, TRAIN))[0].values for m in (given, own))
    torch.testing.assert_close(one, two)
    seen, again = (m.observe(Observation.make(networks[0], 0, batch))["indicators.probability"] for m in (given, own))
    torch.testing.assert_close(seen, again)


def test_a_hinge_takes_the_labels_as_margins_and_warms_up_before_the_first_estimate():
    method, networks = begun(Hinge(reduction="sum"), seed=3)
    batch = batch_of([0, 3, 5, 6])
    y = [label(method, 1, i) for i in batch.ids]
    s, _, _ = structures(networks[0], batch)
    for phase, reduce in ((TRAIN, max), (Phase("first", 1), lambda costs: sum(costs) / len(costs))):
        cross, intra = method.step(Step(networks, 0, {"all": batch}, phase))
        margin = [0.2 * (10**v - 1) / 9 for v in y]
        expected = []
        for i in range(4):
            ways = (s[i], s[:, i])
            costs = [[max(0.0, margin[i] + way[j] - s[i, i]) for j in range(4) if j != i] for way in ways]
            expected.append(sum(map(reduce, costs)))
        assert cross.values.tolist() == pytest.approx(expected, abs=1e-6)
        assert cross.reduction == intra.reduction == "sum"


def test_a_hinge_is_warned_of_unless_no_label_comes_from_across(caplog):
    begun(Hinge())
    assert "margins" in caplog.text and "infonce" in caplog.text
    caplog.clear()
    begun(Hinge(), indicators={"use": "intra_modal"})
    begun()
    assert not caplog.text


@pytest.mark.parametrize("networks", [1, 2])
def test_a_pass_notes_equation_3_within_blocks_and_8_over_all_at_hand_by_the_labels_trained_by(networks):
    method, nets = begun(seed=4, networks=networks, indicators={"block": 4, "tau1": 0.3})
    batch = batch_of([8, 0, 1, 3, 5, 6, 9, 2])
    for own in range(networks):
        notes = method.observe(Observation.make(nets[own], own, batch))
        assert notes["indicators.probability"].shape == notes["indicators.agreement"].shape == (8,)
        for start in (0, 4):
            part = batch_of(batch.ids[start : start + 4])
            s, _, _ = structures(nets[own], part)
            for i in range(4):
                some, own_similarity = negatives(part, i), math.exp(s[i, i] / 0.3)
                rows = own_similarity / sum(math.exp(s[i, j] / 0.3) for j in some)
                columns = own_similarity / sum(math.exp(s[j, i] / 0.3) for j in some)
                assert notes["indicators.probability"][start + i].item() == pytest.approx(
                    (rows + columns) / 2, abs=1e-6
                )
        _, images, texts = structures(nets[own], batch)
        y = [label(method, (own + 1) % networks, n) for n in batch.ids]
        for i in range(8):
            a, b = ([y[j] * side[i, j] for j in range(8)] for side in (images, texts))
            cosine = sum(p * q for p, q in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)
            assert notes["indicators.agreement"][i].item() == pytest.approx(cosine, abs=1e-6)


def test_fewer_pairs_than_a_block_are_one_block():
    few, networks = begun(seed=5, indicators={"block": 4})
    one, _ = begun(seed=5, indicators={"block": 128})
    ids = [0, 2, 5, 8, 9]
    seen, whole = (
        method.observe(Observation.make(networks[0], 0, batch_of(ids)))["indicators.probability"]
        for method in (few, one)
    )
    torch.testing.assert_close(seen, whole)


def observed(seed):
    """What two networks' passes over the ten training pairs might note: agreement in two heaps."""
    rng = np.random.default_rng(seed)
    high = rng.random((2, 10)) < 0.6
    agreement = np.where(high, 0.8, 0.2) + 0.05 * rng.normal(size=high.shape)
    probability = rng.random((2, 10))
    return [
        {"indicators.probability": p.astype(np.float32), "indicators.agreement": a.astype(np.float32)}
        for p, a in zip(probability, agreement, strict=True)
    ]


def test_estimates_become_labels_by_equations_4_10_and_5_of_the_peer():
    method, _ = begun(indicators={"beta1": 0.6, "beta2": 0.9})
    assert all((array == 1).all() and array.shape == (2, 12) for array in method.indicators.state.values())
    averages = np.ones((2, 2, 12))
    for epoch in (1, 2, 3):
        seen = observed(epoch)
        method.update(seen, epoch)
        for k in range(2):
            agreement = seen[k]["indicators.agreement"].astype(float)
            model = fit_mixture(agreement, 0)
            low, high = (
                w * np.exp(-(((agreement - m) / d) ** 2) / 2) / d
                for m, d, w in zip(model.means, model.deviations, model.weights, strict=True)
            )
            inside = (agreement > model.means[0]) & (agreement < model.means[1])  # beyond, it is kept monotone
            clean = 1 - model.low(agreement)
            assert clean[inside] == pytest.approx((high / (low + high))[inside], abs=1e-9)  # Eq. 4
            assert clean[agreement > 0.6].min() > 0.9 and clean[agreement < 0.4].max() < 0.1
            averages[0, k, :10] = 0.6 * seen[k]["indicators.probability"] + 0.4 * averages[0, k, :10]
            averages[1, k, :10] = 0.9 * clean + 0.1 * averages[1, k, :10]
            assert (method.indicators.state["structure"][k, :10] == seen[k]["indicators.agreement"]).all()
    assert method.values_of_pairs()["structure"].shape == (2, 10)
    assert method.indicators.state["cross_modal"] == pytest.approx(averages[0], abs=1e-5)
    assert method.indicators.state["intra_modal"] == pytest.approx(averages[1], abs=1e-3)
    ids, cpu = np.array([3, 0, 7]), torch.device("cpu")
    for k in range(2):
        expected = averages[:, 1 - k][:, ids].min(0)
        assert method.indicators.labels(k, ids, cpu).numpy() == pytest.approx(expected, abs=1e-3)
    assert method.facts()["noise_rate"] == pytest.approx(1 - averages[1][:, :10].mean(), abs=1e-3)


def test_without_averages_the_label_is_the_last_estimate():
    method, _ = begun(indicators={"beta1": 1.0, "beta2": 1.0}, epochs={"warmup": 5})
    method.update(observed(1), 5)
    seen = observed(2)
    method.update(seen, 6)
    assert (method.indicators.state["cross_modal"][0, :10] == seen[0]["indicators.probability"]).all()
    assert [(p.epochs, p.observe) for p in method.phases()] == [(5, False), (59, True)]


@pytest.mark.parametrize("which", ["cross_modal", "intra_modal"])
def test_an_indicator_alone_is_the_label(which):
    method, networks = begun(seed=6, indicators={"use": which})
    batch = batch_of([0, 3, 5, 6])
    y = [float(method.indicators.state[which][1, i]) for i in batch.ids]
    (cross, _) = method.step(Step(networks, 0, {"all": batch}, TRAIN))
    s, _, _ = structures(networks[0], batch)
    assert cross.values.tolist() == pytest.approx(equation_6(s, y, batch, 0.07), abs=1e-6)


def test_a_network_alone_believes_itself():
    method, networks = begun(seed=7, networks=1)
    batch = batch_of([0, 3, 5, 6])
    y = [label(method, 0, i) for i in batch.ids]
    (cross, _) = method.step(Step(networks[:1], 0, {"all": batch}, TRAIN))
    s, _, _ = structures(networks[0], batch)
    assert cross.values.tolist() == pytest.approx(equation_6(s, y, batch, 0.07), abs=1e-6)


def test_agreement_in_one_heap_doubts_nobody():
    method, _ = begun()
    flat = {
        "indicators.probability": np.full(10, 0.5, np.float32),
        "indicators.agreement": np.full(10, 0.7, np.float32),
    }
    method.update([flat, flat], 1)
    assert (method.indicators.state["intra_modal"] == 1).all()
    assert method.indicators.state["cross_modal"][0, :10] == pytest.approx(0.65)
    assert (method.indicators.state["cross_modal"][:, 10:] == 1).all()  # dev and test pairs are not touched
    assert len(IMAGE_OF) == 12


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"indicators": {"beta1": 1.5}}, "indicators.beta1 is 1.5; it must be a number from 0 to 1"),
        ({"indicators": {"beta2": -0.1}}, "indicators.beta2 is -0.1; it must be a number from 0 to 1"),
        ({"intra_modal": {"gamma": -1.0}}, "intra_modal.gamma is -1.0; it must be a number, at least 0"),
        ({"indicators": {"tau1": -0.07}}, "indicators.tau1 is -0.07; it must be a number, at least 0"),
        ({"intra_modal": {"tau2": 0.0}}, "intra_modal.tau2 is 0.0; it must be a number, at least 1e-06"),
        ({"indicators": {"block": 1}}, "indicators.block is 1; it must be a whole number, at least 2"),
        ({"indicators": {"use": "all"}}, "indicators.use is 'all'; choose from both, cross_modal, intra_modal"),
        ({"networks": 3}, "networks is 3; it must be a whole number from 1 to 2"),
        ({"epochs": {"train": -1}}, "epochs.train is -1; it must be a whole number, at least 0"),
    ],
)
def test_options_that_make_no_sense_are_one_line(options, said):
    with pytest.raises(InputError) as caught:
        GSC(**options)
    assert str(caught.value) == said


def test_the_papers_preset_is_its_schedule_and_every_ablation_is_an_option():
    named = {"source": ".", "method": "gsc", "matcher": "sgr"}
    config = from_tree(named)
    options, method = config.train, config.method
    assert config.loss == PAPERS
    assert (options.batch_size, options.weight_decay, sum(phase.epochs for phase in method.phases())) == (128, 0, 60)
    rates = [learning_rate(options, epoch, 0.0, 60, 0) for epoch in range(60)]
    assert rates == pytest.approx([2e-4 * 0.2 ** (epoch // 15) for epoch in range(60)])
    changed = {
        "epochs": {"warmup": 5},
        "indicators": {"use": "cross_modal", "beta1": 0.5, "beta2": 1.0, "tau1": 0.1},
        "intra_modal": {"gamma": 0.1, "tau2": 2.0},
        "networks": 1,
    }
    ablated = from_tree({**named, "gsc": changed}).method
    assert flattened(changed).items() <= flattened(ablated.model_dump()).items()
    coco = from_tree({**named, "preset": "paper_coco"}).method
    assert sum(phase.epochs for phase in coco.phases()) == 30
