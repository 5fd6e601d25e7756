"""Each method's step against the papers' equations in plain loops."""

import math

import numpy as np
import pytest
import torch
from method_helpers import SETTING, Tiny, batch_of, make_networks

from pairsift.loss.ranking import Hinge, InfoNCE
from pairsift.methods import METHODS, NCR, PC2, Oracle, Plain
from pairsift.methods.base import Phase, related


def curve(y: float, base: float = 10.0) -> float:
    return (base**y - 1) / (base - 1)


def naive_hinge(s: np.ndarray, margins: list[float], excluded: np.ndarray, hardest: bool) -> list[float]:
    n = len(s)
    out = []
    for i in range(n):
        captions = [max(0.0, margins[i] + s[i, j] - s[i, i]) for j in range(n) if j != i and not excluded[i, j]]
        images = [max(0.0, margins[i] + s[k, i] - s[i, i]) for k in range(n) if k != i and not excluded[k, i]]
        out.append(sum((max(c) if hardest else sum(c) / len(c)) if c else 0.0 for c in (captions, images)))
    return out


def similarities(network, batch) -> np.ndarray:
    images, texts = network.encode(batch)
    return network.matcher.similarity(images, texts).detach().numpy().astype(float)


def excluded(batch) -> np.ndarray:
    rows = batch.image_rows.tolist()
    return np.array([[a == b for b in rows] for a in rows])


@pytest.mark.parametrize("warm", [True, False])
def test_plain_is_the_hinge_of_equation_1(warm):
    method, (network, _) = Plain(), make_networks(Plain())
    method.begin(SETTING(Hinge()))
    batch = batch_of([0, 3, 5, 6, 9])
    (term,) = method.step([network], 0, {"all": batch}, Phase("p", 1, warm=warm))
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
    method.begin(SETTING(Hinge(), matched=np.arange(12) % 3 != 0))
    assert method.subset("all", 0).tolist() == [i for i in range(10) if i % 3]


def test_ncr_labels_follow_own_prediction_when_clean_and_both_when_noisy():
    method = NCR()
    networks = make_networks(method)
    method.begin(SETTING(Hinge()))
    rng = np.random.default_rng(0)
    method.state["clean_probability"] = rng.random((2, 12)).astype(np.float32)
    clean, noisy = batch_of([0, 3, 6, 7, 8]), batch_of([2, 4, 9])
    terms = {t.name: t for t in method.step(networks, 0, {"clean": clean, "noisy": noisy}, Phase("all", 1))}

    def predict(network, batch):
        s, out = similarities(network.eval(), batch), []
        network.train()
        for i in range(len(s)):
            mask = excluded(batch)
            both = naive_hinge(s, [0.2] * len(s), mask, hardest=False)[i]
            out.append(min(0.2, max(0.0, 0.2 - both / 2)))
        top = sorted(out)[-(len(out) // 10 + 1) :]
        return [min(1.0, p / (sum(top) / len(top))) for p in out]

    w = method.state["clean_probability"][1]  # the peer's
    own = predict(networks[0], clean)
    y = [w[i] + (1 - w[i]) * p for i, p in zip(clean.ids, own, strict=True)]
    margins = [0.2 * curve(v) for v in y]
    s = similarities(networks[0], clean)
    assert terms["clean"].values.tolist() == pytest.approx(naive_hinge(s, margins, excluded(clean), True), abs=1e-5)
    both = [(a + b) / 2 for a, b in zip(predict(networks[0], noisy), predict(networks[1], noisy), strict=True)]
    s = similarities(networks[0], noisy)
    expected = naive_hinge(s, [0.2 * curve(v) for v in both], excluded(noisy), True)
    assert terms["noisy"].values.tolist() == pytest.approx(expected, abs=1e-5)


def softmax(rows: np.ndarray) -> np.ndarray:
    e = np.exp(rows - rows.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("threshold", [0.0, 0.97])
def test_pc2_is_equations_2_to_10(threshold):
    method = PC2(classes=5, mismatch_threshold=threshold)
    networks = make_networks(method)
    method.begin(SETTING(Hinge()))
    rng = np.random.default_rng(1)
    method.state["clean_probability"] = rng.random((2, 12)).astype(np.float32)
    method.state["stability"] = rng.random((2, 12)).astype(np.float32)
    clean, noisy = batch_of([0, 3, 6, 7, 8]), batch_of([2, 4, 9])
    network = networks[1]
    terms = {t.name: t for t in method.step(networks, 1, {"clean": clean, "noisy": noisy}, Phase("all", 1))}

    images, texts = network.encode(clean)
    p = softmax(network.logits(images).detach().numpy().astype(float))
    q = softmax(network.logits(texts).detach().numpy().astype(float))
    labels = q.argmax(1)
    pseudo = sum(-math.log(p[i, labels[i]]) for i in range(5)) / 5  # Eq. 2
    assert terms["pseudo"].values.mean().item() == pytest.approx(pseudo, rel=1e-5)
    mean = [sum(p[i, k] for i in range(5)) / 5 for k in range(5)]
    entropy = sum(m * math.log(m) for m in mean)  # Eq. 3
    assert terms["entropy"].values.mean().item() == pytest.approx(entropy, rel=1e-5)
    assert (terms["entropy"].weight, terms["pseudo"].weight, terms["noisy"].weight) == (10.0, 1.0, 1.0)

    w, o = method.state["clean_probability"][0], method.state["stability"][0]  # the peer's
    y = [w[i] + (1 - w[i]) * (o[i] if o[i] >= 0.5 else 0.0) for i in clean.ids]
    s = similarities(network, clean)
    expected = naive_hinge(s, [0.2 * curve(v) for v in y], excluded(clean), True)  # Eq. 8 and 9
    assert terms["clean"].values.tolist() == pytest.approx(expected, abs=1e-5)

    noisy_images = network.matcher.encode_images(noisy.images)
    pn = softmax(network.logits(noisy_images).detach().numpy().astype(float))
    cosine = [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in p] for a in pn]
    j = [int(np.argmax(row)) for row in cosine]  # Eq. 4
    block = network.matcher.similarity(noisy_images, texts).detach().numpy()[:, j].astype(float)
    owners = [int(clean.caption_images[b]) for b in j]
    rows = noisy.image_rows.tolist()
    mask = np.array(
        [[rows[a] == rows[b] or owners[a] == owners[b] or rows[a] == owners[b] for b in range(3)] for a in range(3)]
    )
    best = [cosine[i][j[i]] for i in range(3)]
    values = naive_hinge(block, [0.2 * curve(min(1.0, v)) for v in best], mask, True)  # Eq. 5 and 6
    expected = [v if best[i] >= threshold else 0.0 for i, v in enumerate(values)]
    assert terms["noisy"].values.tolist() == pytest.approx(expected, abs=1e-5)


def test_pc2_margins_send_no_gradient_into_the_classifier():
    method = PC2(classes=5)
    networks = make_networks(method)
    method.begin(SETTING(Hinge()))
    terms = method.step(networks, 0, {"clean": batch_of([0, 3, 6, 7]), "noisy": batch_of([2, 4, 9])}, Phase("all", 1))
    noisy = next(t for t in terms if t.name == "noisy")
    noisy.values.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in networks[0].head.parameters())
    assert any(p.grad is not None and p.grad.any() for p in networks[0].matcher.parameters())


@pytest.mark.parametrize("alike", ["class", "embedding"])
def test_pc2_epoch_search_takes_the_nearest_clean_image_by_the_networks_own_bank(alike):
    method = PC2(classes=4, search="epoch", alike=alike)
    method.begin(SETTING(Hinge()))
    ids = SETTING(Hinge()).ids
    rng = np.random.default_rng(2)
    seen = []
    for _ in range(2):
        loss = np.where(ids < 6, 0.1, 0.9) + rng.normal(0, 0.01, len(ids))
        images = softmax(rng.normal(0, 2, (6, 4)))
        seen.append({"loss": loss, "predictions": images[SETTING(Hinge()).image_of[ids]].astype(np.float32)})
        if alike == "embedding":
            seen[-1]["embeddings"] = rng.normal(size=(6, 7))[SETTING(Hinge()).image_of[ids]].astype(np.float32)
    method.update(seen, 0)
    for k in range(2):
        clean, noisy = method.subset("clean", k), method.subset("noisy", k)
        assert set(clean) == set(range(6))
        assert set(noisy) == {6, 7, 8, 9}
        bank = method.state["predictions" if alike == "class" else "embeddings"][k]
        for i, found in zip(noisy, method.captions("noisy", k, noisy), strict=True):
            a = bank[SETTING(Hinge()).image_of[i]]
            scores = []
            for c in clean:
                b = bank[SETTING(Hinge()).image_of[c]]
                scores.append(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)))
            assert scores[clean.tolist().index(found)] == pytest.approx(max(scores), abs=1e-6)
        assert method.captions("clean", k, clean).tolist() == clean.tolist()


def test_pc2_batch_search_by_embeddings_takes_the_caption_of_the_most_similar_image():
    method = PC2(classes=5, alike="embedding", pseudo_weight=0.0, entropy_weight=0.0, rectify=False)
    networks = make_networks(method)
    method.begin(SETTING(Hinge()))
    clean, noisy = batch_of([0, 3, 6, 7]), batch_of([2, 4, 9])
    terms = {t.name: t for t in method.step(networks, 0, {"clean": clean, "noisy": noisy}, Phase("all", 1))}
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
    method = PC2(classes=3)
    method.begin(SETTING(Hinge()))
    ids, rows = SETTING(Hinge()).ids, SETTING(Hinge()).image_of
    steady = np.tile(np.array([0.8, 0.1, 0.1], np.float32), (len(ids), 1))
    loss = np.linspace(0, 1, len(ids), dtype=np.float32)
    method.update([{"loss": loss, "predictions": steady}] * 2, 0)
    assert (method.state["stability"] == 1).all()  # nothing to compare with yet
    moved = steady.copy()
    flips = rows[ids] == rows[ids[-1]]
    moved[flips] = [0.1, 0.1, 0.8]
    method.update([{"loss": loss, "predictions": moved}] * 2, 1)
    stability = method.state["stability"][0, ids]
    assert stability[flips].max() < 0.5 < stability[~flips].min()
    method.update([{"loss": loss, "predictions": moved}] * 2, 2)
    assert method.state["stability"][0, ids].min() > 0.5  # adjacent epochs agree again


@pytest.mark.parametrize("name", ["ncr", "pc2"])
def test_trust_comes_from_the_peer(name):
    method = METHODS[name]()
    method.begin(SETTING(InfoNCE()))
    probability = method.state["clean_probability"]
    probability[0, :5], probability[0, 5:], probability[1, :3], probability[1, 3:] = 0.9, 0.1, 0.1, 0.9
    assert method.subset("clean", 1).tolist() == [0, 1, 2, 3, 4]
    assert method.subset("noisy", 1).tolist() == [5, 6, 7, 8, 9]
    assert method.subset("clean", 0).tolist() == [3, 4, 5, 6, 7, 8, 9]
    alone = METHODS[name](networks=1)
    alone.begin(SETTING(InfoNCE()))
    alone.state["clean_probability"][0, :5] = 0.1
    assert alone.subset("clean", 0).tolist() == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("ranking", [Hinge(), InfoNCE()])
@pytest.mark.parametrize("method", [m() for m in METHODS.values()], ids=list(METHODS))
def test_every_method_runs_with_either_loss_and_gives_one_value_per_pair(method, ranking):
    networks = make_networks(method, Tiny)
    method.begin(SETTING(ranking, matched=np.ones(12, bool)))
    for phase in method.phases():
        batches = {name: batch_of([0, 3, 6, 7] if n == 0 else [2, 4, 9]) for n, name in enumerate(phase.subsets)}
        terms = method.step(networks, 0, batches, phase)
        assert len({t.name for t in terms}) == len(terms)
        assert all(t.values.shape in ((4,), (3,)) and torch.isfinite(t.values).all() for t in terms)
        assert terms[0].reduction == ranking.reduction
