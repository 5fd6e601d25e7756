"""Several kinds of evidence as one, also where training pairs and others differ in rate."""

import numpy as np
import pytest
import torch
from detect_helpers import OPTIONS, permuted, small
from scipy.optimize import approx_fprime, minimize
from sklearn.linear_model import LogisticRegression

from pairsift.arrays import text_numbers, unit_rows
from pairsift.detect.calibration import calibrate_sides
from pairsift.detect.combination import combine, combine_with_siblings, odds_weights
from pairsift.detect.evidence import Evidence
from pairsift.detect.folds import Folds, make_folds

MOST = 40_000
USEFUL = np.array([1.5, 0.8, 0.4])


def kinds_of(folds, useful=USEFUL, seed=0):
    rng = np.random.default_rng(seed)
    return [Evidence(rng.normal(size=len(folds)) + more, rng.normal(size=len(folds.decoy_images))) for more in useful]


def sklearn_weights(given, decoys):
    """Half a squared weight beside losses whose weights add up to as many as there are given pairs."""
    rows = np.concatenate([given, decoys])
    label = np.repeat([1, 0], [len(given), len(decoys)])
    weight = np.where(label == 1, 0.5, 0.5 * len(given) / len(decoys))
    model = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(rows, label, sample_weight=weight)
    return model.coef_[0]


def test_weights_are_those_of_sklearn_where_all_are_positive():
    rng = np.random.default_rng(1)
    given, decoys = rng.normal(size=(400, 3)) + USEFUL, rng.normal(size=(900, 3))
    expected = sklearn_weights(given, decoys)
    assert expected.min() > 0.1
    assert odds_weights(given, decoys) == pytest.approx(expected, abs=2e-3)


def test_kinds_that_would_count_against_a_pair_weigh_nothing():
    rng = np.random.default_rng(2)
    given, decoys = rng.normal(size=(400, 3)) + np.array([1.5, -1.0, 0.5]), rng.normal(size=(900, 3))
    assert sklearn_weights(given, decoys)[1] < -0.1
    weights = odds_weights(given, decoys)
    assert weights[1] == 0
    assert weights[[0, 2]] == pytest.approx(sklearn_weights(given[:, [0, 2]], decoys[:, [0, 2]]), abs=2e-3)


def test_weights_of_kinds_that_all_speak_against_pairs_are_small_and_equal():
    rng = np.random.default_rng(3)
    weights = odds_weights(rng.normal(size=(300, 2)) - 2, rng.normal(size=(300, 2)))
    assert weights.tolist() == [1e-3, 1e-3]


def test_repeating_all_decoys_changes_nothing():
    rng = np.random.default_rng(4)
    given, decoys = rng.normal(size=(200, 2)) + 1, rng.normal(size=(300, 2))
    assert odds_weights(given, np.tile(decoys, (3, 1))) == pytest.approx(odds_weights(given, decoys), abs=1e-3)


@pytest.mark.parametrize("rate", [0.3, 0.8])
def test_weights_are_those_of_matching_pairs_whatever_share_is_mismatched(rate):
    rng = np.random.default_rng(5)
    size = 20_000
    matched = rng.random(size) >= rate
    given, decoys = rng.normal(size=(size, 3)) + USEFUL * matched[:, None], rng.normal(size=(size, 3))
    assert odds_weights(given, decoys, rate) == pytest.approx(USEFUL, abs=0.12)  # log odds of N(m, 1) to N(0, 1)
    assert odds_weights(given, decoys).max() < 0.8 * USEFUL.max()


def test_weights_are_where_the_naive_loss_is_least():
    rng = np.random.default_rng(6)
    rate, matched = 0.4, rng.random(80) >= 0.4
    given, decoys = rng.normal(size=(80, 2)) + np.array([2.0, 1.0]) * matched[:, None], rng.normal(size=(120, 2))

    def naive(theta):
        loss = sum(w * w for w in theta[:2]) / 2
        for x in given:
            odds = rate + (1 - rate) * np.exp(x @ theta[:2] + theta[2])
            loss -= np.log(odds / (1 + odds)) / 2
        for x in decoys:
            odds = rate + (1 - rate) * np.exp(x @ theta[:2] + theta[2])
            loss -= np.log(1 / (1 + odds)) / 2 * len(given) / len(decoys)
        return loss

    found = odds_weights(given, decoys, rate)
    best = minimize(naive, np.append(found, -1.0), method="Nelder-Mead", options={"xatol": 1e-5, "fatol": 1e-9})
    assert found == pytest.approx(best.x[:2], abs=5e-3)
    assert approx_fprime(best.x, naive, 1e-6) == pytest.approx(np.zeros(3), abs=1e-2)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_without_pairs_or_decoys_all_kinds_weigh_the_same(shape):
    assert odds_weights(np.ones((shape[0], 2)), np.ones((shape[1], 2))).tolist() == [1.0, 1.0]


def test_every_fold_is_weighed_by_the_others():
    folds, _, _ = small(150, 1, 3)
    kinds = kinds_of(folds)
    whole = combine(folds, kinds, MOST)
    pairs, decoys = (np.stack([getattr(kind, side) for kind in kinds], 1) for side in ("pairs", "decoys"))
    mean, spread = decoys.mean(0), decoys.std(0)
    decoy_fold = folds.fold[folds.decoy_images]
    for fold in range(3):
        weights = sklearn_weights(
            (pairs[folds.fold != fold] - mean) / spread, (decoys[decoy_fold != fold] - mean) / spread
        )
        assert weights.min() > 0
        expected = (pairs - mean) / spread @ weights, (decoys - mean) / spread @ weights
        assert whole.pairs[folds.fold == fold] == pytest.approx(expected[0][folds.fold == fold], abs=0.03)
        assert whole.decoys[decoy_fold == fold] == pytest.approx(expected[1][decoy_fold == fold], abs=0.03)


def test_evidence_of_a_folds_pairs_does_not_move_its_own_weights():
    folds, _, _ = small(150, 1, 3)
    kinds = kinds_of(folds)
    own = folds.fold == 1
    moved = [Evidence(np.where(own, 2 * kind.pairs - 9, kind.pairs), kind.decoys) for kind in kinds]
    before, after, decoys = combine(folds, kinds, MOST), combine(folds, moved, MOST), folds.fold[folds.decoy_images]
    assert (after.decoys[decoys == 1] == before.decoys[decoys == 1]).all()
    assert (after.pairs[own] != before.pairs[own]).any()
    assert np.abs(after.decoys - before.decoys)[decoys == 0].max() > 0.1


def test_units_offsets_and_order_do_not_matter():
    folds, _, _ = small(100, 1, 2)
    kinds, order = kinds_of(folds), np.random.default_rng(6).permutation(len(folds))
    whole = combine(folds, kinds, MOST)
    other = [Evidence(100 * k.pairs[order] + 7, 100 * k.decoys + 7) for k in kinds]
    again = combine(permuted(folds, order), other, MOST)
    assert again.pairs == pytest.approx(whole.pairs[order], abs=5e-3)
    assert again.decoys == pytest.approx(whole.decoys, abs=5e-3)


def test_one_kind_stays_as_it_is_and_none_is_compared_without_decoys():
    folds, _, _ = small(20, 1, 2)
    kinds = kinds_of(folds)
    assert combine(folds, kinds[:1], MOST) is kinds[0]
    bare = Folds(folds.image_of, folds.group_of, folds.fold, folds.decoy_images[:0], folds.decoy_captions[:0])
    found = combine(bare, [Evidence(kind.pairs, kind.decoys[:0]) for kind in kinds], MOST)
    assert not found.pairs.any() and not len(found.decoys)


def test_evidence_that_never_varies_is_no_evidence():
    folds, _, _ = small(40, 1, 2)
    useful = kinds_of(folds, [2.0])[0]
    flat = Evidence(np.full(len(folds), 3.0), np.full(len(folds.decoy_images), 3.0))
    with_flat, without = combine(folds, [useful, flat], MOST), combine(folds, [useful, useful], MOST)
    assert np.corrcoef(with_flat.pairs[folds.fold == 0], without.pairs[folds.fold == 0])[0, 1] > 0.999
    assert np.ptp(combine(folds, [flat, flat], MOST).decoys) == 0


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
    folds = Folds.make(image, image, text_numbers(texts), make_folds(image, 5, seed), seed, OPTIONS.decoys)

    def weak():
        return Evidence(
            0.8 * right + rng.normal(size=len(image)), rng.normal(size=len(folds.decoy_images)), np.zeros(0)
        )

    def codes(fold, members):
        images, texts = (unit_rows(side[members]) for side in (vectors, captions))
        return torch.from_numpy(images), torch.from_numpy(texts)

    kinds = {"first": weak(), "second": weak()}
    evidence, *_ = combine_with_siblings(folds, kinds, {"first": codes}, in_train, seed, OPTIONS)
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
