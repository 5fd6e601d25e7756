"""Training pairs and others with different rates of mismatches, where images have several captions."""

import numpy as np
import pytest
import torch
from detect_helpers import OPTIONS

from pairsift.arrays import unit_rows
from pairsift.detect.calibration import calibrate_sides
from pairsift.detect.combination import combine_with_siblings
from pairsift.detect.evidence import Evidence
from pairsift.detect.folds import Folds, make_folds

IMAGES, TRAINING, SHARE = 1300, 1000, 0.8  # of the training captions, four in five are mismatched, and no other


@pytest.mark.parametrize("seed", [0, 1])
def test_siblings_do_not_blur_the_two_sides(seed):
    rng = np.random.default_rng(seed)
    image = np.repeat(np.arange(IMAGES), 5)
    in_train = image < TRAINING
    moved = rng.permutation(np.flatnonzero(in_train))[: int(SHARE * in_train.sum())]
    right, source = np.ones(len(image)), image.copy()
    right[moved], source[moved] = 0, image[rng.permutation(moved)]
    topics = rng.normal(size=(IMAGES, 16))
    captions = (topics[source] + 0.8 * rng.normal(size=(len(image), 16))).astype(np.float32)
    vectors = (topics[image] + 3 * rng.normal(size=(len(image), 16))).astype(np.float32)
    texts = [f"caption {pair}" for pair in range(len(image))]
    folds = Folds.make(image, image, texts, make_folds(image, 5, seed), seed, OPTIONS.decoys)

    def weak():
        return Evidence(
            0.8 * right + rng.normal(size=len(image)), rng.normal(size=len(folds.decoy_images)), np.zeros(0)
        )

    def codes(fold, members):
        images, texts = (unit_rows(side[members]) for side in (vectors, captions))
        return torch.from_numpy(images), torch.from_numpy(texts)

    kinds = {"first": weak(), "second": weak()}
    evidence = combine_with_siblings(folds, kinds, {"first": codes}, in_train, seed, OPTIONS)
    calibration, group = calibrate_sides(evidence, in_train, seed, 0, OPTIONS.calibration)
    assert "first_siblings" in kinds and group == 1
    assert calibration.rates[0] < 0.05 and abs(calibration.rates[1] - SHARE) < 0.1


@pytest.mark.parametrize("seed", range(4))
def test_few_other_pairs_do_not_hide_the_rate_of_the_training_pairs(seed):
    rng = np.random.default_rng(seed)
    in_train = np.arange(200) < 160  # a small collection, drawn 80 to 10 to 10
    wrong = in_train & (rng.random(200) < 0.6)
    evidence = Evidence(rng.normal(size=200) + 3 * ~wrong, rng.normal(size=4000))
    calibration, group = calibrate_sides(evidence, in_train, seed, 20, OPTIONS.calibration)
    assert group == 1 and calibration.rates[0] < 0.05
    assert calibration.rates[1] == pytest.approx(wrong[in_train].mean(), abs=0.1)


def test_few_other_pairs_with_the_same_rate_are_seldom_taken_apart():
    in_train, wrong, apart = np.arange(200) < 160, np.arange(200) % 10 < 3, 0
    for seed in range(16):
        rng = np.random.default_rng(seed)
        evidence = Evidence(rng.normal(size=200) + 3 * ~wrong, rng.normal(size=4000))
        apart += calibrate_sides(evidence, in_train, seed, 0, OPTIONS.calibration)[1]
    assert apart <= 2
