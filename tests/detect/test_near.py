"""Near decoys, whose captions read like those that they replace, and how well evidence tells them."""

import numpy as np
import pytest
from detect_helpers import LIGHT, OPTIONS, judged_of, unit

from pairsift.detect.evidence import Evidence
from pairsift.detect.folds import Folds, make_folds
from pairsift.detect.judgement import judge_pairs, near_decoy_auroc


def test_near_decoys_read_like_the_caption_that_they_replace():
    rng = np.random.default_rng(0)
    image_of = np.repeat(np.arange(250), 2)
    vectors = rng.normal(size=(500, 6)).astype(np.float32)
    texts = [f"caption {n // 3}" for n in range(500)]
    fold = make_folds(image_of, 2, 0)
    folds = Folds.make(image_of, image_of, texts, fold, 0, OPTIONS.decoys, vectors)
    plain = Folds.make(image_of, image_of, texts, fold, 0, OPTIONS.decoys)
    assert np.array_equal(folds.decoy_images, plain.decoy_images) and not len(plain.near_decoy_images)
    assert len(folds.near_decoy_images) > 4000 and set(folds.near_decoy_images.tolist()) == set(range(500))
    rows = unit(vectors)
    for image, caption in zip(
        folds.near_decoy_images[::37].tolist(), folds.near_decoy_captions[::37].tolist(), strict=True
    ):
        others = [
            pair
            for pair in range(500)
            if fold[pair] == fold[image] and image_of[pair] != image_of[image] and texts[pair] != texts[image]
        ]
        nearest = sorted(others, key=lambda pair: -float(rows[image] @ rows[pair]))[: round(0.01 * (fold == 0).sum())]
        assert caption in nearest


@pytest.mark.parametrize("seed", [0, 1])
def test_the_auroc_is_a_weighted_count_of_cases(seed):
    rng = np.random.default_rng(seed)
    evidence = Evidence(np.round(rng.normal(1, 1, 40), 1), np.zeros(0), np.round(rng.normal(0, 1, 90), 1))
    given, probability = rng.integers(0, 40, 90), rng.random(40) * (rng.random(40) < 0.8)
    won = total = 0.0
    for pair in range(40):
        for decoy in range(90):
            weight = probability[pair] * probability[given[decoy]]
            total += weight
            won += weight * (0.5 * (evidence.pairs[pair] == evidence.near_decoys[decoy]))
            won += weight * (evidence.pairs[pair] > evidence.near_decoys[decoy])
    assert near_decoy_auroc(evidence, given, probability) == pytest.approx(won / total)
    assert near_decoy_auroc(Evidence(evidence.pairs, evidence.decoys), given[:0], probability) is None
    assert near_decoy_auroc(evidence, given, np.zeros(40)) is None


def scenes_of_classes(noise, seed=0, images=900, classes=30):
    """Images of few classes, whose captions differ by a little; a share is exchanged within classes."""
    rng = np.random.default_rng(seed)
    of_class = np.arange(images) % classes
    hidden = 3 * rng.normal(size=(classes, 12))[of_class] + 0.7 * rng.normal(size=(images, 12))
    source = np.arange(images)
    for place in rng.permutation(images)[: round(noise * images / 2)]:
        others = np.flatnonzero((of_class == of_class[place]) & (source == np.arange(images)))
        others = others[others != place]
        if source[place] == place and len(others):
            source[place], source[others[0]] = others[0], place
    left = hidden @ rng.normal(size=(12, 40)) + 0.3 * rng.normal(size=(images, 40))
    right = (hidden @ rng.normal(size=(12, 30)) + 0.3 * rng.normal(size=(images, 30)))[source]
    return judged_of(left, right, np.arange(images)), source == np.arange(images)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_captions_of_the_same_class_are_harder_to_tell_than_those_of_any_image(noise):
    judged, matched = scenes_of_classes(noise)
    judgement = judge_pairs(judged, 0, options=LIGHT)
    assert 0.4 < judgement.near_auroc < judgement.auroc
    if noise:  # the nearest captions of a class are harder to tell than any of the class
        wrong, right = judgement.probability[~matched], judgement.probability[matched]
        cases = (right[:, None] > wrong).mean() + (right[:, None] == wrong).mean() / 2
        assert judgement.near_auroc < cases < judgement.auroc
    few = judged_of(judged.images[:300], judged.captions[:300], judged.image_of[:300])
    assert judge_pairs(few, 0, options=LIGHT).near_auroc is None  # folds of 30 pairs have no near captions
