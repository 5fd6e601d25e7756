"""BiCro's labels against plain loops, and what they say of planted mismatches."""

import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from pairsift.loss.ranking import InfoNCE
from pairsift.methods.bicro import BiCro, consistency
from pairsift.steps import Setting

N, IMAGES = 60, 20
IDS, OWNER = np.arange(N) + 5, np.repeat(np.arange(IMAGES), 3)
IMAGE_OF = np.concatenate([np.zeros(5, int), OWNER])  # ids are not rows


def cosine(a, b) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def ratio(x: float, y: float) -> float:
    x, y = (min(1.0, max(0.0, cosine)) for cosine in (x, y))
    return min(x, y) / max(x, y) if max(x, y) > 1e-6 else 0.0


def naive_consistency(images, texts, anchors) -> list[float]:
    found = []
    for k in range(len(images)):
        by_image = max(anchors, key=lambda a: cosine(images[k], images[a]))
        by_text = max(anchors, key=lambda a: cosine(texts[k], texts[a]))
        q = [ratio(cosine(images[k], images[a]), cosine(texts[k], texts[a])) for a in (by_image, by_text)]
        found.append(sum(q) / 2)
    return found


def notes_of(seed: int, noisy: int = 24) -> dict[str, np.ndarray]:
    """Losses in two groups, and vectors that have directions in common, of any length."""
    rng = np.random.default_rng(seed)
    loss = np.where(rng.permutation(N) < noisy, 6.0, 1.0) + 0.3 * rng.random(N)
    images = rng.normal(0.3, 1, (IMAGES, 7)).astype(np.float32)
    texts = (rng.normal(0.3, 1, (N, 7)) * rng.uniform(0.2, 5, (N, 1))).astype(np.float32)
    return {"division.loss": loss.astype(np.float32), "anchors.by_image": images[OWNER], "anchors.by_text": texts}


def begun(networks: int = 2, **options) -> BiCro:
    method = BiCro(networks=networks, **options)
    method = method.begin(Setting(IDS, IMAGE_OF, IMAGES, None, InfoNCE(), 0, networks))
    return method


def test_consistency_matches_plain_loops_and_stays_between_0_and_1() -> None:
    notes = notes_of(0)
    images = np.random.default_rng(9).normal(size=(N, 7)).astype(np.float32)  # an image of its own for every pair
    anchors = np.array([7, 3, 40, 41, 22])
    q = consistency(images, notes["anchors.by_text"], np.arange(N), anchors)
    assert q.tolist() == pytest.approx(naive_consistency(images, notes["anchors.by_text"], anchors.tolist()), abs=1e-5)
    assert q.min() >= 0 and q.max() <= 1 and q[anchors].tolist() == pytest.approx([1.0] * 5, abs=1e-6)
    assert (q == 0).any()  # where a cosine is negative


def test_zero_vectors_have_the_label_of_a_mismatch() -> None:
    images = np.ones((4, 3), np.float32)
    texts = np.stack([np.ones(3), np.zeros(3), -np.ones(3), np.ones(3)]).astype(np.float32)
    assert consistency(images, texts, np.arange(4), np.array([0])).tolist() == pytest.approx([1, 0, 0, 1], abs=1e-6)


@pytest.mark.parametrize("share", [0.02, 0.25, 1.0])
def test_labels_belong_to_their_pairs_and_follow_the_rule_of_their_set(share: float) -> None:
    method = begun(anchors={"share": share})
    notes = [notes_of(0), notes_of(1)]
    method.update(notes, 0)
    for k in range(2):
        noted, w = notes[k], method.division.state["clean_probability"][k, IDS]
        clean = [i for i in range(N) if w[i] > 0.5]
        assert len(clean) == 36 and all(noted["division.loss"][i] < 2 for i in clean)
        anchors = sorted(clean, key=lambda i: noted["division.loss"][i])[: math.ceil(share * len(clean))]
        # of the captions of an image, the nearest anchor is the one of least loss
        q = naive_consistency(noted["anchors.by_image"], noted["anchors.by_text"], anchors)
        for i in range(N):
            y = 1.0 if i in anchors else (1 + q[i]) / 2 if i in clean else q[i]
            assert method.anchors.state["soft_label"][k, i + 5] == pytest.approx(y, abs=1e-5)
    assert (method.anchors.state["soft_label"][:, :5] == 1).all()  # not for training


def test_labels_of_a_permuted_collection_are_the_permuted_labels() -> None:
    notes, order = notes_of(3), np.random.default_rng(0).permutation(N)
    one, other = begun(1), BiCro(networks=1)
    one.update([notes], 0)
    image_of = np.concatenate([np.zeros(5, int), OWNER[order]])
    other = other.begin(Setting(IDS, image_of, IMAGES, None, InfoNCE(), 0, 1))
    other.update([{name: values[order] for name, values in notes.items()}], 0)
    np.testing.assert_allclose(
        other.anchors.state["soft_label"][0, IDS], one.anchors.state["soft_label"][0, IDS][order], atol=1e-6
    )


def test_planted_mismatches_have_low_labels() -> None:
    rng = np.random.default_rng(5)
    n = 600
    hidden = rng.normal(size=(40, 8))[rng.integers(0, 40, n)]  # forty things, each shown several times
    wrong = np.arange(n) < 200
    said = hidden.copy()
    said[wrong] = np.roll(hidden[wrong], 7, axis=0)
    images, texts = (x + 0.4 * rng.normal(size=x.shape) for x in (hidden @ rng.normal(size=(8, 8)), said))
    loss = np.where(np.arange(n) < 280, 5, 1) + rng.normal(0, 1, n)  # 80 matching pairs look mismatched
    method = BiCro(networks=1)
    method = method.begin(Setting(np.arange(n), np.arange(n), n, ~wrong, InfoNCE(), 0, 1))
    method.update([{"division.loss": loss.astype(np.float32), "anchors.by_image": images, "anchors.by_text": texts}], 0)
    noisy = method.subset("noisy", 0)
    labels = method.anchors.state["soft_label"][0]
    assert 70 < (~wrong[noisy]).sum() < 90
    assert roc_auc_score(~wrong[noisy], labels[noisy]) > 0.9
    kept = noisy[labels[noisy] >= 0.5]
    assert (~wrong[kept]).mean() > 0.7 > 2 * (~wrong[noisy]).mean()
    assert method.facts()["dropped"] == pytest.approx((labels < 0.5).mean())


def test_dropped_pairs_are_noisy_ones_whatever_labels_clean_ones_have() -> None:
    method, notes = BiCro(networks=1, anchors={"mismatch_threshold": 0.95}), notes_of(3)
    method = method.begin(Setting(IDS, np.concatenate([np.zeros(5, int), OWNER]), IMAGES, None, InfoNCE(), 0, 1))
    method.update([notes], 0)
    labels, noisy = method.anchors.state["soft_label"][0], set(method.subset("noisy", 0).tolist())
    low = [i for i in IDS.tolist() if labels[i] < 0.95]
    assert len(low) > len([i for i in low if i in noisy]) > 0
    assert method.facts()["dropped"] == pytest.approx(len([i for i in low if i in noisy]) / N)
