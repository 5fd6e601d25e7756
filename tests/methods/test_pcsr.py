"""PCSR: its step against the paper's equations in plain loops, its division, its stages, its switches."""

import math

import numpy as np
import pytest
import torch
from method_helpers import (
    FEATURES,
    SETTING,
    SHARP,
    Tiny,
    batch_of,
    cosine,
    curve,
    excluded,
    make_networks,
    naive_entropy,
    naive_hinge,
    predictions,
    rematched,
    similarities,
    softmax,
)

from pairsift.errors import InputError
from pairsift.loss.ranking import Hinge
from pairsift.methods.base import Sorting
from pairsift.methods.pc2 import PC2
from pairsift.methods.pcsr import PCSR
from pairsift.steps import Batch, Observation, Phase, Step
from pairsift.train.batches import Gatherer

IDS, ROWS = SETTING(Hinge()).ids, SETTING(Hinge()).image_of


def begun(networks: int = 2, ranking=None, **options) -> tuple[PCSR, list]:
    method = PCSR(networks=networks, **{"classifier": {"classes": 5}, **options})
    made = make_networks(method, Tiny, SHARP)
    method = method.begin(SETTING(ranking or Hinge(), networks=networks))
    method.division.state["clean_probability"] = np.random.default_rng(0).random((networks, 12)).astype(np.float32)
    return method, made


def naive_gce(p, q, gamma) -> list[float]:
    out = []
    for a, b in zip(p, q, strict=True):
        out.append((1 - a[int(np.argmax(b))] ** gamma) / gamma + (1 - b[int(np.argmax(a))] ** gamma) / gamma)
    return out


@pytest.mark.parametrize("k", [0, 1])
def test_a_step_of_the_third_stage_is_equations_1_to_13(k):
    method, networks = begun()
    clean, refinable, ambiguous = batch_of([11, 1, 6, 7]), batch_of([2, 4, 8, 10]), batch_of([3, 5, 10])
    batches = {"clean": clean, "refinable": refinable, "ambiguous": ambiguous}
    network = networks[k]
    listed = method.step(Step(networks, k, batches, Phase("all", 1)))
    terms = {term.name: term for term in listed}
    assert len(terms) == len(listed) == 7

    s = similarities(network, clean)
    expected = naive_hinge(s, [0.2] * 4, excluded(clean), True)  # Eq. 8 at the full margin
    assert terms["clean"].values.tolist() == pytest.approx(expected, abs=1e-5)
    images, texts = network.encode(clean)
    p, q = predictions(network, images), predictions(network, texts)
    pseudo = sum(-math.log(p[i, q[i].argmax()]) for i in range(4)) / 4  # Eq. 1
    assert terms["pseudo"].values.mean().item() == pytest.approx(pseudo, rel=1e-5)
    assert terms["entropy"].values.mean().item() == pytest.approx(naive_entropy(p), rel=1e-5)  # Eq. 2

    for name, batch in (("refinable", refinable), ("ambiguous", ambiguous)):
        j, alike, values = rematched(network, batch, clean)
        assert any(0.1 < value < 0.9 for value in alike) and len(set(j)) > 1 and min(values) > 0
        assert terms[name].values.tolist() == pytest.approx(values, abs=1e-5)
    images, texts = network.encode(ambiguous)
    p, q = predictions(network, images), predictions(network, texts)
    assert terms["ambiguous robust"].values.tolist() == pytest.approx(
        naive_gce(p, q, 0.7), rel=1e-4, abs=1e-6
    )  # Eq. 12
    assert terms["ambiguous entropy"].values.mean().item() == pytest.approx(naive_entropy(p), rel=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_papers_weights_stand_beside_a_sum_of_128_pairs(reduction):
    method, networks = begun(ranking=Hinge(reduction=reduction))
    batches = {"clean": batch_of([11, 1, 6, 7]), "refinable": batch_of([2, 4]), "ambiguous": batch_of([3, 5, 10])}
    terms = {term.name: term for term in method.step(Step(networks, 0, batches, Phase("all", 1)))}
    assert {term.reduction for term in terms.values()} == {reduction}
    ranking = ("clean", "refinable", "ambiguous")
    assert all(terms[name].weight == 1 for name in ranking)
    weights = {name: term.weight * 128 for name, term in terms.items() if name not in ranking}
    full = 4 / 3 if reduction == "sum" else 1.0  # the sum over three pairs of four is 3/4 of a mean's weight
    expected = {"pseudo": 1.0, "entropy": 10.0, "ambiguous robust": full, "ambiguous entropy": 10 * full}
    assert weights == pytest.approx(expected)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_entropy_of_few_ambiguous_pairs_can_count_by_the_pair(reduction):
    method, networks = begun(ranking=Hinge(reduction=reduction), noisy={"entropy_by_pair": True})
    batches = {"clean": batch_of([11, 1, 6, 7]), "ambiguous": batch_of([3, 5, 10])}
    terms = {term.name: term for term in method.step(Step(networks, 0, batches, Phase("all", 1)))}
    expected = 10.0 if reduction == "sum" else 10 * 3 / 4
    assert terms["ambiguous entropy"].weight * 128 == pytest.approx(expected)


def test_every_weight_reaches_its_term():
    method, networks = begun(weights={"ranking": 2, "pseudo": 3, "robust": 4, "entropy": 5}, noisy={"gamma": 0.3})
    batches = {"clean": batch_of([0, 3, 6]), "refinable": batch_of([2, 4]), "ambiguous": batch_of([1, 5])}
    terms = {term.name: term for term in method.step(Step(networks, 0, batches, Phase("all", 1)))}
    assert {name: term.weight for name, term in terms.items()} == {
        "clean": 2,
        "pseudo": 3 / 128,
        "entropy": 5 / 128,
        "refinable": 1,  # Eq. 11 has no weight
        "ambiguous": 2,
        "ambiguous robust": 4 / 128,
        "ambiguous entropy": 5 / 128,
    }
    images, texts = networks[0].encode(batches["ambiguous"])
    expected = naive_gce(predictions(networks[0], images), predictions(networks[0], texts), 0.3)
    assert terms["ambiguous robust"].values.tolist() == pytest.approx(expected, rel=1e-4)


def test_the_warm_up_trains_all_pairs_without_the_classifier():
    method, networks = begun()
    batch = batch_of([0, 1, 5, 6, 9])
    (term,) = method.step(Step(networks, 0, {"all": batch}, method.phases()[0]))
    expected = naive_hinge(similarities(networks[0], batch), [0.2] * 5, excluded(batch), hardest=False)
    assert term.values.tolist() == pytest.approx(expected, abs=1e-6) and term.weight == 1
    term.values.sum().backward()
    assert all(p.grad is None for p in networks[0].head.parameters())


def test_with_the_switch_the_warm_up_trains_the_classifier_too():
    method, networks = begun(classifier={"classes": 5, "in_warmup": True})
    batch = batch_of([0, 1, 5, 6, 9])
    terms = {term.name: term for term in method.step(Step(networks, 0, {"all": batch}, Phase("warm-up", 1, warm=True)))}
    assert list(terms) == ["clean", "pseudo", "entropy"]
    p = predictions(networks[0], networks[0].encode(batch)[0])
    assert terms["entropy"].values.mean().item() == pytest.approx(naive_entropy(p), rel=1e-5)
    sum(term.reduced() for term in terms.values()).backward()
    assert all(p.grad is not None for p in networks[0].head.parameters())


def test_margins_and_searches_send_no_gradient_into_the_classifier_but_the_robust_loss_does():
    method, networks = begun()
    batches = {"clean": batch_of([0, 3, 6, 7]), "refinable": batch_of([2, 4, 9]), "ambiguous": batch_of([1, 5])}
    terms = {term.name: term for term in method.step(Step(networks, 0, batches, Phase("all", 1)))}
    head = list(networks[0].head.parameters())
    triplets = terms["refinable"].values.sum() + terms["ambiguous"].values.sum()
    grads = torch.autograd.grad(triplets, head, retain_graph=True, allow_unused=True)
    assert all(grad is None or not grad.any() for grad in grads)
    grads = torch.autograd.grad(terms["ambiguous robust"].values.sum(), head)
    assert all(grad.any() for grad in grads)


@pytest.mark.parametrize(
    ("way", "refinable", "ambiguous"),
    [("own", 1, 3), ("refinable", 1, 1), ("ambiguous", 3, 3)],
)
def test_table_5_trains_both_kinds_by_one_loss(way, refinable, ambiguous):
    method, networks = begun(noisy={"loss": way})
    batches = {"clean": batch_of([0, 3, 6]), "refinable": batch_of([2, 4]), "ambiguous": batch_of([1, 5])}
    names = [term.name for term in method.step(Step(networks, 0, batches, Phase("all", 1)))][3:]
    every = ["", " robust", " entropy"]
    assert names == [f"refinable{end}" for end in every[:refinable]] + [f"ambiguous{end}" for end in every[:ambiguous]]


@pytest.mark.parametrize(
    ("noisy", "second", "third"),
    [
        ("all", ("clean", "refinable"), ("clean", "refinable", "ambiguous")),
        ("refinable", ("clean", "refinable"), ("clean", "refinable")),
        ("ambiguous", ("clean",), ("clean", "ambiguous")),
        ("none", ("clean",), ("clean",)),
    ],
)
def test_table_4_chooses_the_subsets_of_the_stages(noisy, second, third):
    phases = PCSR(noisy={"train": noisy}).phases()
    assert [p.subsets for p in phases] == [("all",), ("clean",), second, third]
    assert [(p.warm, p.observe) for p in phases] == [(True, False)] + [(False, True)] * 3


def test_presets_resolve_the_overlap_of_the_stages():
    def stages(name):
        return [phase.epochs for phase in PCSR(**PCSR.presets[name].method).phases()]

    assert stages("paper") == [5, 25, 15, 10]
    assert stages("paper_early") == [5, 19, 21, 10]
    assert stages("paper_cc152k") == [10, 25, 15, 10]
    assert sum(stages("two_tower")) == 8 and stages("two_tower")[0] == 2


def notes(loss, label_of_image, predictions=None):
    """What a pass over the training pairs notes, with an image's class, or with its predictions."""
    bank = np.eye(5)[label_of_image] if predictions is None else predictions
    return {"division.loss": np.asarray(loss, np.float32), "classifier.predictions": bank[ROWS[IDS]].astype(np.float32)}


LOSS = np.where(IDS < 4, 0.1, 0.9) + np.linspace(0, 0.05, 10)  # pairs 4 to 9, of images 2 to 4, are noisy
HISTORY = [  # classes of the five training images in six passes: 2 never wavers, 3 does once, 4 always
    [0, 1, 2, 3, 4],
    [0, 1, 2, 3, 0],
    [0, 1, 2, 0, 1],
    [0, 1, 2, 3, 2],
    [0, 1, 2, 3, 3],
    [0, 1, 2, 3, 4],
]


def naive_division(passes, tau, done, options):
    """PCS of all images, tau after this pass, by plain loops."""
    scores = []
    for image in range(5):
        seen = [labels[image] for labels in passes]
        ordered = sorted((seen.count(k) for k in range(5)), reverse=True)
        scores.append((ordered[0] - ordered[1]) / len(seen))
    noisy = [scores[ROWS[i]] for i in range(4, 10)]
    target = options["least_use"] + (options["most_use"] - options["least_use"]) * done
    if tau is None:
        tau = sorted(noisy)[math.floor((1 - target) * 5)]
    use = sum(np.float32(score) >= np.float32(tau) for score in noisy) / 6
    tau = (1 - options["rate"]) * tau + options["rate"] * (tau - options["sensitivity"] * (target - use))
    return scores, min(max(tau, 0.0), 1.0)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"sensitivity": 2.0, "rate": 1.0},
        {"counted_from": 1},
        {"least_use": 0.0},
    ],
)
def test_the_division_is_equations_3_to_6(given):
    options = {"least_use": 0.4, "most_use": 0.9, "sensitivity": 0.2, "rate": 0.7}
    options |= {"counted_from": 2} | given
    method, _ = begun(epochs={"warmup": 3, "clean": 2, "refine": 2, "all": 2}, consistency=options)
    tau = None
    for number, labels in enumerate(HISTORY, 1):
        method.update([notes(LOSS, labels), notes(LOSS, [0] * 5)], 2 + number)
        passes = HISTORY[options["counted_from"] - 1 : number]
        if not passes:
            assert not method.consistency.state["counts"].any()
            continue
        if number <= 2:
            assert np.isnan(method.consistency.state["tau"]).all() and method.verdicts() is None
            continue
        scores, tau = naive_division(passes, tau, number / 6, options)
        assert method.consistency.state["consistency"][0, :5].tolist() == pytest.approx(scores, abs=1e-6)
        assert method.consistency.state["tau"][0] == pytest.approx(tau, abs=1e-6)
        steady = [i for i in range(4, 10) if scores[ROWS[i]] >= tau]
        assert method.subset("refinable", 1).tolist() == steady  # of network 1, by the counts of network 0
        assert method.subset("ambiguous", 1).tolist() == [i for i in range(4, 10) if i not in steady]
        assert method.subset("clean", 1).tolist() == [0, 1, 2, 3]
    assert set(method.facts()) == {"noise_rate", "classes_in_use", "tau", "utilisation"}


def test_images_count_once_however_many_captions_they_have_and_the_first_pass_does_not():
    method, _ = begun(epochs={"warmup": 1})
    for epoch in (1, 2, 3):
        method.update([notes(LOSS, HISTORY[epoch])] * 2, epoch)
    counts = method.consistency.state["counts"]
    assert counts.sum(2).tolist() == [[2, 2, 2, 2, 2, 0]] * 2  # the last image has no training pair


def test_trust_comes_from_the_peer_and_a_lone_network_has_its_own():
    for networks in (2, 1):
        method, _ = begun(networks)
        w = method.division.state["clean_probability"]
        score, tau = method.consistency.state["consistency"], method.consistency.state["tau"]
        w[-1, :4], w[-1, 4:], score[-1], tau[-1] = 0.9, 0.1, np.linspace(0, 1, 6), 0.5
        assert method.subset("clean", 0).tolist() == [0, 1, 2, 3]
        assert method.subset("refinable", 0).tolist() == [6, 7, 8, 9]
        assert method.subset("ambiguous", 0).tolist() == [4, 5]
        assert method.subset("noisy", 0).tolist() == [4, 5, 6, 7, 8, 9]


def test_verdicts_are_those_of_both_networks_together():
    method, _ = begun()
    method.division.state["clean_probability"][:, :4], method.division.state["clean_probability"][:, 4:] = 0.9, 0.2
    method.division.state["clean_probability"][0, 4] = 0.9  # 0.55 in the mean
    method.consistency.state["consistency"][:] = [[0, 0, 0.9, 0.9, 0.1, 0], [0, 0, 0.1, 0.5, 0.1, 0]]
    method.consistency.state["tau"][:] = 0.6, 0.5  # 0.3 - 0.4 for image 2, 0.3 + 0 for image 3
    words = ["clean"] * 5 + ["ambiguous"] + ["refinable"] * 2 + ["ambiguous"] * 2
    assert method.verdicts() == words
    assert isinstance(method, Sorting) and not isinstance(PC2(), Sorting)


def test_epoch_search_finds_captions_and_leaves_own_ones_beside_them():
    method, networks = begun(
        captions={"search": "epoch"}, epochs={"warmup": 0, "clean": 0}, consistency={"counted_from": 1}
    )
    rng = np.random.default_rng(2)
    banks = [softmax(rng.normal(0, 2, (6, 5))) for _ in range(2)]
    method.update([notes(LOSS, None, bank) for bank in banks], 0)
    noisy = method.subset("noisy", 0)
    requests = method.requests({"clean": IDS, "refinable": noisy, "ambiguous": noisy[:3]}, 0)
    found = requests["refinable"].captions
    for i, other in zip(noisy, found, strict=True):
        alike = [cosine(banks[0][ROWS[i]], banks[0][ROWS[c]]) for c in range(4)]
        assert alike[other] == pytest.approx(max(alike), abs=1e-6)
    assert requests["clean"].captions is None and requests["clean"].ids.tolist() == IDS.tolist()
    assert [request.given_texts for request in requests.values()] == [False, False, True]
    assert requests["ambiguous"].captions.tolist() == found[:3].tolist()

    batch = Gatherer(FEATURES, ROWS, torch.device("cpu"))(requests["ambiguous"])
    assert batch.ids.tolist() == noisy[:3].tolist() and batch.given_texts is not None
    batches = {"clean": batch_of([0, 1, 2, 3]), "ambiguous": batch}
    terms = {term.name: term for term in method.step(Step(networks, 0, batches, Phase("all", 1)))}
    images, texts = networks[0].encode(batch_of(noisy[:3]))
    p, q = predictions(networks[0], images), predictions(networks[0], texts)
    assert terms["ambiguous robust"].values.tolist() == pytest.approx(naive_gce(p, q, 0.7), rel=1e-4)
    best = [cosine(banks[0][ROWS[i]], banks[0][ROWS[c]]) for i, c in zip(noisy[:3], found, strict=False)]
    _, texts = networks[0].encode(batch_of(found[:3]))
    block = networks[0].matcher.similarity(images, texts).detach().numpy().astype(float)
    rows, owners = ROWS[noisy[:3]], ROWS[found[:3]]
    mask = (rows[:, None] == rows) | (owners[:, None] == owners) | (rows[:, None] == owners)
    values = naive_hinge(block, [0.2 * curve(min(1.0, v)) for v in best], mask, True)
    assert terms["ambiguous"].values.tolist() == pytest.approx(values, abs=1e-5)


@pytest.mark.parametrize("search", ["batch", "epoch"])
@pytest.mark.parametrize("compare", ["class", "embedding"])
def test_a_pass_notes_an_images_predictions_and_embeddings_only_where_they_are_searched(search, compare):
    method, networks = begun(captions={"search": search, "compare": compare}, consistency={"counted_from": 1})
    batch: Batch = batch_of(IDS)
    with torch.no_grad():
        seen = method.observe(Observation.make(networks[0].eval(), 0, batch))
    p = predictions(networks[0], networks[0].matcher.encode_images(batch.images))
    assert seen["classifier.predictions"].numpy() == pytest.approx(p, abs=1e-5) and seen["division.loss"].shape == (10,)
    assert ("captions.embeddings" in seen) == (search == "epoch" and compare == "embedding")
    method.update([{name: value.numpy() for name, value in seen.items()}] * 2, 5)  # the first after the warm-up
    assert ("embeddings" in method.captions.state) == ("captions.embeddings" in seen)
    assert ("pseudo_caption" in method.captions.state) == (search == "epoch")
    expected = np.zeros((6, 5))
    expected[ROWS[IDS], p.argmax(1)] = 1
    assert method.consistency.state["counts"].tolist() == [expected.tolist()] * 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"classifier": {"classes": 1}}, "classifier.classes is 1; it must be a whole number, at least 2"),
        ({"noisy": {"gamma": 0.0}}, "noisy.gamma is 0.0; it must be a number from 0.001 to 1"),
        ({"networks": 3}, "networks is 3; it must be a whole number from 1 to 2"),
        ({"consistency": {"most_use": 1.2}}, "consistency.most_use is 1.2; it must be a number from 0 to 1"),
        ({"consistency": {"counted_from": 0}}, "consistency.counted_from is 0; it must be a whole number, at least 1"),
        ({"epochs": {"refine": -1}}, "epochs.refine is -1; it must be a whole number, at least 0"),
        ({"consistency": {"rate": 2.0}}, "consistency.rate is 2.0; it must be a number from 0 to 1"),
    ],
)
def test_bad_options_give_one_line(options, says):
    with pytest.raises(InputError) as error:
        PCSR(**options)
    assert str(error.value) == says
