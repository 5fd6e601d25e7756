"""Thresholds other than the usual, and networks that note different things: each decision reads its own."""

import numpy as np
import pytest
from method_helpers import SETTING, cosine, softmax

from pairsift.loss.ranking import Hinge
from pairsift.methods.bicro import BiCro
from pairsift.methods.ncr import NCR
from pairsift.methods.npc import NPC
from pairsift.methods.parts import pseudo_captions
from pairsift.methods.pc2 import PC2
from pairsift.methods.pcsr import PCSR

IDS, ROWS = SETTING(Hinge()).ids, SETTING(Hinge()).image_of
HEAPS = np.array([0.04, 0.42, 0.6, 0.83, 1.0, 1.28, 1.33, 1.61, 1.73, 2.15])  # as losses they leave doubts


def begun(method):
    method = method.begin(SETTING(Hinge(), networks=method.networks))
    return method


@pytest.mark.parametrize("kind", [NCR, PC2, PCSR, BiCro])
def test_pairs_are_clean_above_the_threshold_given(kind):
    method = begun(kind(division={"threshold": 0.8}))
    method.division.state["clean_probability"][:, IDS] = [np.linspace(0.05, 0.95, 10), np.linspace(1, 0.1, 10)]
    assert method.subset("clean", 1).tolist() == [8, 9] and method.subset("noisy", 1).tolist() == list(range(8))
    assert method.subset("clean", 0).tolist() == [0, 1] and method.subset("noisy", 0).tolist() == list(range(2, 10))


def notes(loss, predictions):
    """What a pass over the training pairs notes, with the predictions of the images."""
    return {
        "division.loss": np.asarray(loss, np.float32),
        "classifier.predictions": predictions[ROWS[IDS]].astype(np.float32),
    }


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.8])
def test_tau_moves_by_the_noisy_pairs_of_its_own_network_at_the_threshold_given(threshold):
    method = PCSR(
        epochs={"warmup": 0, "clean": 0, "refine": 2, "all": 2},
        classifier={"classes": 3},
        division={"threshold": threshold},
        consistency={"counted_from": 1},
    )
    method = begun(method)
    method.consistency.state["tau"][:] = 0.4
    method.consistency.state["counts"][:, :5] = [[6, 0, 0], [4, 2, 0], [5, 1, 0], [3, 3, 0], [3, 3, 0]]
    orders = np.arange(10), np.array([4, 8, 1, 9, 0, 6, 2, 7, 5, 3])
    method.update([notes(HEAPS[order], np.eye(3)[[2] * 5]) for order in orders], 0)
    scores = [5 / 7, 2 / 7, 4 / 7, 0.0, 0.0]
    w, different = method.division.state["clean_probability"], set()
    for k in range(2):
        moved = []
        for owner, at in ((k, threshold), (1 - k, threshold), (k, 0.5)):
            noisy = [i for i in IDS if w[owner, i] <= at]
            use = sum(scores[ROWS[i]] >= 0.4 for i in noisy) / len(noisy)
            moved.append(0.4 - 0.7 * 0.2 * (0.4 + 0.5 / 4 - use))
        assert method.consistency.state["tau"][k] == pytest.approx(moved[0], abs=1e-6)
        different |= {n for n in (1, 2) if moved[n] != pytest.approx(moved[0], abs=1e-3)}
    assert different == ({1} if threshold == 0.5 else {1, 2})  # from the peer's pairs, and from those at 0.5


def test_verdicts_hold_for_clean_what_the_threshold_given_does():
    method = begun(PCSR(division={"threshold": 0.8}))
    method.division.state["clean_probability"][:, IDS] = np.linspace(0.05, 0.95, 10)
    method.consistency.state["tau"][:] = 0.0
    assert method.verdicts() == ["refinable"] * 8 + ["clean"] * 2


def test_all_passes_count_alike():
    lengths = {"warmup": 0, "clean": 9, "refine": 0, "all": 0}
    method = begun(PCSR(epochs=lengths, classifier={"classes": 4}, consistency={"counted_from": 1}))
    rng, counts = np.random.default_rng(4), np.zeros((2, 5, 4))
    for number in range(4):
        labels = rng.integers(0, 4, (2, 5))
        method.update([notes(HEAPS, np.eye(4)[own]) for own in labels], number)
        for k in range(2):
            for image in range(5):
                counts[k, image, labels[k, image]] += 1
    assert method.consistency.state["counts"][:, :5].tolist() == counts.tolist()
    top = np.sort(counts, 2)
    expected = (top[..., 3] - top[..., 2]) / counts.sum(2)
    assert method.consistency.state["consistency"][:, :5] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", [PC2, PCSR])
def test_captions_are_sought_for_the_noisy_pairs_among_the_clean_ones_that_a_network_trains_on(kind):
    method, rng = begun(kind(classifier={"classes": 5}, captions={"search": "epoch"})), np.random.default_rng(5)
    banks = softmax(rng.normal(0, 2, (12, 5))).reshape(2, 6, 5)
    losses = np.where(IDS < 6, 0.1, 0.9), np.where(IDS < 4, 0.9, 0.1)
    seen = [notes(loss + rng.normal(0, 0.01, 10), bank) for loss, bank in zip(losses, banks, strict=True)]
    method.update(seen, 0)
    for k, clean in ((0, range(4, 10)), (1, range(6))):  # each by the other's division
        noisy = [i for i in IDS if i not in clean]
        assert method.subset("clean", k).tolist() == list(clean) and method.subset("noisy", k).tolist() == noisy
        for i, found in zip(noisy, method.captions.captions(k, np.array(noisy)), strict=True):
            alike = {c: cosine(banks[k, ROWS[i]], banks[k, ROWS[c]]) for c in clean}
            assert found in alike and alike[found] == pytest.approx(max(alike.values()), abs=1e-6)


@pytest.mark.parametrize("kind", [PC2, PCSR])
def test_of_many_clean_pairs_captions_are_sought_among_some_that_each_epoch_draws(kind, monkeypatch):
    monkeypatch.setattr(pseudo_captions, "SEARCHED", 2)
    rng = np.random.default_rng(5)
    bank = softmax(rng.normal(0, 2, (6, 5)))
    clean = [0, 2, 4, 6]  # of images 0 to 3; pair 3 is of image 1 too, and pair 8 of image 4
    loss = np.where(np.isin(IDS, clean), 0.1, 0.9)
    seen = [notes(loss + rng.normal(0, 0.01, 10), bank) for _ in range(2)]
    drawn = []
    for epoch in (*range(12), 0):
        method = begun(kind(classifier={"classes": 5}, captions={"search": "epoch"}))
        method.update(seen, epoch)
        assert method.subset("clean", 0).tolist() == clean
        drawn.append(method.captions.captions(0, np.array([8, 3])).tolist())
    by_likeness = sorted(clean, key=lambda pair: cosine(bank[ROWS[8]], bank[ROWS[pair]]))
    others = {other for other, _ in drawn}
    assert len(others) > 1 and others <= set(by_likeness[1:])  # the least alike of all is never the best of two
    assert {same for _, same in drawn} == {2}
    assert drawn[0] == drawn[-1]


def test_the_bank_takes_pairs_from_its_own_threshold_on():
    rng = np.random.default_rng(6)
    seen = [
        {
            "bank.loss": HEAPS.astype(np.float32),
            "bank.by_image": rng.normal(size=(10, 4)),
            "bank.by_text": rng.normal(size=(10, 4)),
        }
    ]
    for threshold in (0.2, 0.8):
        method = begun(NPC(bank={"threshold": threshold, "least": 0.0}))
        method.update(seen, 0)
        w = method.bank.state["clean_probability"][0, IDS]
        clean = [i for i in IDS if w[i] >= threshold]
        assert len(clean) > 2 and set(method.bank.state["by_text"][0, clean]) == set(clean)
        assert set(method.bank.state["by_text"][0, IDS]) == set(clean)
