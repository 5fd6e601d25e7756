"""The detectors that stand beside held-out evidence, against plain loops."""

import math
from pathlib import Path

import numpy as np
import pytest

import detection
from pairsift.noise.edits import plant_edit
from pairsift.pairs.pairs import Pairs


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    image = np.repeat(np.arange(30), 2)
    x = rng.normal(size=(30, 5))[image]
    y = x @ rng.normal(size=(5, 5)) + rng.normal(size=(60, 5))
    return *(side / np.linalg.norm(side, axis=1, keepdims=True) for side in (x, y)), image


def nearest(x, image, i, k):
    others = [j for j in range(len(x)) if image[j] != image[i]]
    return sorted(others, key=lambda j: -float(x[i] @ x[j]))[:k]


def test_lemon_and_contrast_are_what_their_formulas_say(vectors, monkeypatch):
    monkeypatch.setattr(detection, "NEIGHBOURS", 4)
    monkeypatch.setattr(detection, "BLOCK", 7)
    x, y, image = vectors
    # Pairs of one image are equally near, so that which of two is the fourth neighbour is chance: one of each is taken.
    x, y, image = x[::2], y[::2], image[::2]
    found = detection.by_network(x, y, 3.0, image)
    for i in range(len(x)):
        own = 1 - float(x[i] @ y[i])
        parts = []
        for a, b in ((x, y), (y, x)):
            terms = [
                (1 - float(b[i] @ b[j]))
                * math.exp(-0.1 * (1 - float(a[i] @ a[j])))
                * math.exp(-5 * (1 - float(a[j] @ b[j])))
                for j in nearest(a, image, i, 4)
            ]
            parts.append(sum(terms) / 4)
        assert found["lemon"][i] == pytest.approx(own + 5 * sum(parts))
        assert found["cosine"][i] == pytest.approx(own)
        rows = math.log(sum(math.exp(3 * float(x[i] @ y[j])) for j in range(len(x))))
        columns = math.log(sum(math.exp(3 * float(x[j] @ y[i])) for j in range(len(x))))
        assert found["contrast"][i] == pytest.approx((rows + columns) / 2 - 3 * float(x[i] @ y[i]))


def test_a_share_of_neighbours_in_other_clusters_is_counted(vectors, monkeypatch):
    monkeypatch.setattr(detection, "NEIGHBOURS", 4)
    x, _, image = vectors
    x, image = x[::2], image[::2]
    texts = np.where(np.arange(30)[:, None] < 15, 9.0, -9.0) + np.random.default_rng(1).normal(size=(30, 3))
    monkeypatch.setattr(detection, "CLUSTERS", 2)
    found = detection.knn(x, texts, image, 0)
    centred = x - x.mean(0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    for i in range(30):
        expected = sum((j < 15) != (i < 15) for j in nearest(centred, image, i, 4)) / 4
        assert found[i] == pytest.approx(expected)


def test_quality_is_that_of_a_score_that_is_high_where_pairs_are_wrong():
    wrong = np.arange(40) < 10
    score = np.where(wrong, 2.0, 1.0) + np.linspace(0, 0.1, 40)
    found = detection.quality(score, wrong, np.arange(40), 0.25)
    assert found == {"auroc": 1.0, "low": 1.0, "high": 1.0, "ap": 1.0, "precision": 1.0}
    other = detection.quality(-score, wrong, np.arange(40), 0.25)
    assert other["auroc"] == 0.0 and other["precision"] == 0.0


def test_some_training_captions_change_places_with_each_other_and_the_truth_stays():
    image_of, split = np.repeat(np.arange(100), 2), np.repeat(["train", "test"], 100)
    names = [f"{image}.jpg" for image in range(100)]
    texts = [f"caption {pair}" for pair in range(200)]
    given = Pairs("made", names, [Path(name) for name in names], texts, image_of, split, true_image_of=image_of)
    pairs = detection.permute(given, 0.4, 1)
    moved = pairs.mismatched()
    assert 36 <= moved.sum() <= 40 and not moved[100:].any() and (given.image_of == image_of).all()
    assert sorted(pairs.image_of[moved]) == sorted(image_of[moved])
    assert (detection.permute(given, 0.4, 2).image_of != pairs.image_of).any()


def test_captions_without_a_word_that_can_be_exchanged_are_not_measured():
    captions = ["a red kite", "a blue kite", "nothing of the kind", "a red dog", "a cat", "quite another sentence"]
    paths = [Path(f"{image}.jpg") for image in range(6)]
    pairs = Pairs("made", [path.name for path in paths], paths, captions, np.arange(6), np.repeat("train", 6))
    assert detection.could_be_wrong(pairs).all()
    edited = plant_edit(pairs, 0.5, 1)
    assert edited.mismatched().sum() == 3
    assert detection.could_be_wrong(edited).tolist() == [True, True, False, True, True, False]
