"""PC2: its step against the paper's equations in plain loops, its search, its oscillation, its switches."""

import math

import numpy as np
import pytest
import torch
from method_helpers import (
    FEATURES,
    IMAGE_OF,
    SETTING,
    SHARP,
    batch_of,
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

from pairsift.loss.ranking import Hinge
from pairsift.methods.parts.division import fit_mixture
from pairsift.methods.parts.pseudo_captions import CleanBatch
from pairsift.methods.pc2 import PC2
from pairsift.steps import Phase, Request, Step, related
from pairsift.train.batches import Gatherer, Likeness

CLEAN, NOISY = [11, 1, 6, 7], [2, 4, 8, 10]  # 6 and 7 show one image, and so do 10 and 11


def begun(ranking=None, **options):
    method = PC2(classifier={"classes": 5}, **options)
    method = method.begin(SETTING(ranking or Hinge()))
    method.division.state["clean_probability"] = np.random.default_rng(1).random((2, 12)).astype(np.float32) / 2
    method.stability.state["stability"][:, CLEAN] = [[0.95, 0.55, 0.65, 0.2], [0.6, 0.9, 0.7, 0.3]]
    return method, make_networks(method, sharp=SHARP)


def stepped(method, networks, k=0):
    batches = {"clean": batch_of(CLEAN), "noisy": batch_of(NOISY)}
    return {term.name: term for term in method.step(Step(networks, k, batches, Phase("all", 1)))}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("k", [0, 1])
def test_pc2_is_equations_2_to_10(k, reduction):
    method, networks = begun(Hinge(reduction=reduction))
    clean, network = batch_of(CLEAN), networks[k]
    terms = stepped(method, networks, k)

    images, texts = network.encode(clean)
    p, q = predictions(network, images), predictions(network, texts)
    assert len(set(q.argmax(1))) > 1 and (p.argmax(1) != q.argmax(1)).any()
    pseudo = sum(-math.log(p[i, q[i].argmax()]) for i in range(4)) / 4  # Eq. 2
    assert terms["pseudo"].values.mean().item() == pytest.approx(pseudo, rel=1e-5)
    assert terms["entropy"].values.mean().item() == pytest.approx(naive_entropy(p), rel=1e-5)  # Eq. 3

    w, o = method.division.state["clean_probability"][1 - k], method.stability.state["stability"][1 - k]  # the peer's
    y = [w[i] + (1 - w[i]) * (o[i] if o[i] >= 0.5 else 0.0) for i in CLEAN]
    ranked = naive_hinge(similarities(network, clean), [0.2 * curve(v) for v in y], excluded(clean), True)
    assert terms["clean"].values.tolist() == pytest.approx(ranked, abs=1e-5)  # Eq. 8 and 9

    j, alike, values = rematched(network, batch_of(NOISY), clean)
    assert any(0.1 < value < 0.9 for value in alike) and max(alike) > 0.95 and len(set(j)) > 1 and min(values) > 0
    assert terms["noisy"].values.tolist() == pytest.approx(values, abs=1e-5)  # Eq. 4 to 6

    assert [(term.name, term.weight, term.reduction) for term in terms.values()] == [
        ("clean", 1.0, reduction),
        ("pseudo", 1.0 / 128, reduction),  # in the paper 1 and 10 times a mean, beside the sum of 128 pairs
        ("entropy", 10.0 / 128, reduction),
        ("noisy", 1.0, reduction),
    ]
    total = sum(term.weight * term.reduced().item() for term in terms.values())  # Eq. 10
    shares = (1, 1) if reduction == "sum" else (len(CLEAN), len(NOISY))
    auxiliary = (pseudo + 10 * naive_entropy(p)) * (4 if reduction == "sum" else 1) / 128
    expected = sum(ranked) / shares[0] + sum(values) / shares[1] + auxiliary
    assert total == pytest.approx(expected, rel=1e-5)


def test_pc2_star_leaves_out_captions_below_its_threshold_and_no_others():
    _, alike, values = rematched(begun()[1][0], batch_of(NOISY), batch_of(CLEAN))
    low, high = sorted(alike)[1:3]
    assert 0.02 < high - low < 0.98 and min(values) > 0
    for threshold in (0.0, (low + high) / 2, high - 0.01, high + 0.01):
        method, networks = begun(captions={"mismatch_threshold": threshold})
        expected = [v if s >= threshold else 0.0 for v, s in zip(values, alike, strict=True)]
        assert stepped(method, networks)["noisy"].values.tolist() == pytest.approx(expected, abs=1e-5)


def test_pc2_rectifies_from_its_threshold_on_or_not_at_all():
    clean = batch_of(CLEAN)
    method, networks = begun(division={"threshold": 0.8})
    w, o = method.division.state["clean_probability"][1], method.stability.state["stability"][1]
    y = [w[i] + (1 - w[i]) * (o[i] if o[i] >= 0.8 else 0.0) for i in CLEAN]
    assert method.correspondence(Step(networks, 0, {"clean": clean}, Phase("clean", 1))).tolist() == pytest.approx(y)
    plain, networks = begun(stability={"rectify": False})
    margins = [0.2 * curve(w[i]) for i in CLEAN]
    expected = naive_hinge(similarities(networks[0], clean), margins, excluded(clean), True)
    assert stepped(plain, networks)["clean"].values.tolist() == pytest.approx(expected, abs=1e-5)
    assert stepped(method, networks)["clean"].values.tolist() != pytest.approx(expected, abs=1e-3)


def test_pc2_weights_reach_their_terms():
    method, networks = begun(weights={"noisy": 0.3, "pseudo": 0.4, "entropy": 5.0})
    weights = {name: term.weight for name, term in stepped(method, networks).items()}
    assert weights == {"clean": 1.0, "pseudo": 0.4 / 128, "entropy": 5.0 / 128, "noisy": 0.3}


def test_pc2_stability_is_equation_7_in_each_networks_own_history():
    method = PC2(classifier={"classes": 3})
    method = method.begin(SETTING(Hinge()))
    ids, rows = SETTING(Hinge()).ids, SETTING(Hinge()).image_of
    rng = np.random.default_rng(6)
    banks = softmax(rng.normal(0, 3, (2, 2, 5, 3)).reshape(20, 3)).reshape(2, 2, 5, 3)  # pass, network, image
    for number, bank in enumerate(banks):
        seen = [
            {"division.loss": rng.random(10), "classifier.predictions": one[rows[ids]].astype(np.float32)}
            for one in bank
        ]
        method.update(seen, number)
    found = []
    for k in range(2):
        now, before = banks[1, k], banks[0, k]
        ways = [
            [sum(a * math.log(a / b) for a, b in zip(*pair, strict=True)) for pair in zip(*order, strict=True)]
            for order in ((now, before), (before, now))
        ]
        stability, reverse = (fit_mixture(np.array(o)[rows[ids]], 0).low(np.array(o)[rows[ids]]) for o in ways)
        assert np.abs(stability - reverse).max() > 0.5
        assert method.stability.state["stability"][k, ids] == pytest.approx(stability, abs=1e-3)
        found.append(stability)
    assert np.abs(found[0] - found[1]).max() > 0.5


def test_pc2_margins_send_no_gradient_into_the_classifier():
    method = PC2(classifier={"classes": 5})
    networks = make_networks(method)
    method = method.begin(SETTING(Hinge()))
    terms = method.step(
        Step(networks, 0, {"clean": batch_of([0, 3, 6, 7]), "noisy": batch_of([2, 4, 9])}, Phase("all", 1))
    )
    noisy = next(t for t in terms if t.name == "noisy")
    noisy.values.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in networks[0].head.parameters())
    assert any(p.grad is not None and p.grad.any() for p in networks[0].matcher.parameters())


@pytest.mark.parametrize("compare", ["class", "embedding"])
def test_pc2_epoch_search_takes_the_nearest_clean_image_by_the_networks_own_bank(compare):
    method = PC2(classifier={"classes": 4}, captions={"search": "epoch", "compare": compare})
    method = method.begin(SETTING(Hinge()))
    ids = SETTING(Hinge()).ids
    rng = np.random.default_rng(2)
    seen = []
    for _ in range(2):
        loss = np.where(ids < 6, 0.1, 0.9) + rng.normal(0, 0.01, len(ids))
        images = softmax(rng.normal(0, 2, (6, 4)))
        seen.append(
            {"division.loss": loss, "classifier.predictions": images[SETTING(Hinge()).image_of[ids]].astype(np.float32)}
        )
        if compare == "embedding":
            seen[-1]["captions.embeddings"] = rng.normal(size=(6, 7))[SETTING(Hinge()).image_of[ids]].astype(np.float32)
    method.update(seen, 0)
    for k in range(2):
        clean, noisy = method.subset("clean", k), method.subset("noisy", k)
        assert set(clean) == set(range(6))
        assert set(noisy) == {6, 7, 8, 9}
        bank = (method.classifier.state["predictions"] if compare == "class" else method.captions.state["embeddings"])[
            k
        ]
        requests = method.requests({"clean": clean, "noisy": noisy}, k)
        for i, found in zip(noisy, requests["noisy"].captions, strict=True):
            a = bank[SETTING(Hinge()).image_of[i]]
            scores = []
            for c in clean:
                b = bank[SETTING(Hinge()).image_of[c]]
                scores.append(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)))
            assert scores[clean.tolist().index(found)] == pytest.approx(max(scores), abs=1e-6)
        assert requests["clean"].captions is None  # each its own
        assert [requests[name].ids.tolist() for name in ("clean", "noisy")] == [clean.tolist(), noisy.tolist()]


def test_pc2_epoch_search_compares_the_images_themselves_not_the_first_of_their_near_duplicates():
    method = PC2(classifier={"classes": 5}, captions={"search": "epoch"})
    method = method.begin(SETTING(Hinge()))
    network = make_networks(method)[0]
    bank = method.classifier.state["predictions"]
    bank[:] = softmax(np.random.default_rng(4).normal(0, 2, bank.shape))
    bank[:, 5] = 0  # of an image outside training, whose near-duplicates the images 0 and 2 are
    ids, found = np.array([0, 2, 4]), np.array([6, 8, 3])
    method.captions.state["pseudo_caption"][0, ids] = found
    alike = Likeness(np.array([5, 1, 5, 3, 4, 5]), np.arange(12))
    gather = Gatherer(FEATURES, IMAGE_OF, torch.device("cpu"), alike)
    noisy, clean = gather(Request(ids, found)), gather(Request(np.array([1, 6, 7])))
    images, texts = network.encode(clean)
    beside = CleanBatch(clean, images, texts, network.logits(images))
    _, likeness = method.captions.rematch(
        network, 0, noisy, network.matcher.encode_images(noisy.images), beside, method.classifier
    )
    a, b = (bank[0][IMAGE_OF[pairs]].astype(float) for pairs in (ids, found))
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert likeness.tolist() == pytest.approx(cosine.tolist(), abs=1e-5)


def test_pc2_batch_search_by_embeddings_takes_the_caption_of_the_most_similar_image():
    method = PC2(
        classifier={"classes": 5},
        captions={"compare": "embedding"},
        weights={"pseudo": 0.0, "entropy": 0.0},
        stability={"rectify": False},
    )
    networks = make_networks(method)
    method = method.begin(SETTING(Hinge()))
    clean, noisy = batch_of([0, 3, 6, 7]), batch_of([2, 4, 9])
    terms = {t.name: t for t in method.step(Step(networks, 0, {"clean": clean, "noisy": noisy}, Phase("all", 1)))}
    matcher = networks[0].matcher
    images, texts = (matcher.encode_images(noisy.images), matcher.encode_texts(clean.texts))
    own = matcher.encode_images(clean.images).vectors.detach().numpy().astype(float)
    alike = [[float(a @ b) for b in own] for a in images.vectors.detach().numpy().astype(float)]
    j = [int(np.argmax(row)) for row in alike]
    block = matcher.similarity(images, texts).detach().numpy()[:, j].astype(float)
    mask = related(noisy.image_rows, clean.caption_images[j]).numpy()
    margins = [0.2 * curve(min(1.0, max(0.0, *row))) for row in alike]
    expected = [
        v if max(row) >= 0 else 0.0 for v, row in zip(naive_hinge(block, margins, mask, True), alike, strict=True)
    ]
    assert terms["noisy"].values.tolist() == pytest.approx(expected, abs=1e-5)
    assert (terms["pseudo"].weight, terms["entropy"].weight) == (0.0, 0.0)


def test_pc2_oscillation_compares_adjacent_passes():
    method = PC2(classifier={"classes": 3})
    method = method.begin(SETTING(Hinge()))
    ids, rows = SETTING(Hinge()).ids, SETTING(Hinge()).image_of
    steady = np.tile(np.array([0.8, 0.1, 0.1], np.float32), (len(ids), 1))
    loss = np.linspace(0, 1, len(ids), dtype=np.float32)
    method.update([{"division.loss": loss, "classifier.predictions": steady}] * 2, 0)
    assert (method.stability.state["stability"] == 1).all()  # nothing to compare with yet
    moved = steady.copy()
    flips = rows[ids] == rows[ids[-1]]
    moved[flips] = [0.1, 0.1, 0.8]
    method.update([{"division.loss": loss, "classifier.predictions": moved}] * 2, 1)
    stability = method.stability.state["stability"][0, ids]
    assert stability[flips].max() < 0.5 < stability[~flips].min()
    method.update([{"division.loss": loss, "classifier.predictions": moved}] * 2, 2)
    assert method.stability.state["stability"][0, ids].min() > 0.5  # adjacent epochs agree again
