"""Images and captions that many pairs have in common: placeholders are found, and captions that fit are not."""

from dataclasses import replace

import numpy as np
import pytest
from detect_helpers import DIVIDED, OPTIONS, judged_of, planted
from sklearn.metrics import roc_auc_score

from pairsift.arrays import text_numbers
from pairsift.detect.calibration import Calibration, with_placeholders
from pairsift.detect.evidence import Evidence
from pairsift.detect.folds import Folds, fold_units, join_equal_images, make_folds
from pairsift.detect.judgement import judge_pairs
from pairsift.detect.placeholders import set_placeholders_apart

pytestmark = pytest.mark.slow


def with_common(judged, rows, side):
    """Give these pairs one image or one caption that belongs to none of them."""
    vectors = getattr(judged, side).copy()
    vectors[rows] = np.random.default_rng(9).normal(size=vectors.shape[1])
    if side == "images":
        image_of = judged.image_of.copy()
        image_of[rows] = rows[0]
        return replace(judged, images=vectors, image_of=image_of, group_of=image_of)
    texts = judged.text_of.copy()
    texts[rows] = texts.max() + 1
    return replace(judged, captions=vectors, text_of=texts)


@pytest.mark.parametrize("side", ["images", "captions"])
@pytest.mark.parametrize(("common", "noise"), [(30, 0.0), (120, 0.2)])
def test_pairs_of_a_placeholder_are_mismatched_and_the_others_are_judged_as_ever(side, common, noise):
    judged, matched = planted(600, 1, noise)
    rows = np.random.default_rng(1).permutation(600)[:common]
    judgement = judge_pairs(with_common(judged, rows, side), 0, options=DIVIDED)
    hit = np.isin(np.arange(600), rows)
    assert (judgement.in_placeholder == hit).all()
    assert (judgement.probability[hit] < 0.5).all()
    assert judgement.probability[~hit].mean() == pytest.approx(matched[~hit].mean(), abs=0.05)
    true = float(np.mean(hit | ~matched))
    assert (
        judgement.rate == pytest.approx(true, abs=0.05)
        and judgement.low <= true + 0.02
        and judgement.high >= true - 0.02
    )


def test_a_caption_that_many_images_deserve_is_no_placeholder():
    rng = np.random.default_rng(2)
    judged, _ = planted(600)
    rows = np.arange(60)
    images, captions = judged.images.copy(), judged.captions.copy()
    images[rows] = images[0] + 1.5 * rng.normal(size=(60, images.shape[1]))
    captions[rows] = captions[0]
    texts = ["a red shirt"] * 60 + [f"caption {i}" for i in range(60, 600)]
    judgement = judge_pairs(judged_of(images, captions, judged.image_of, texts), 0, options=DIVIDED)
    assert not judgement.in_placeholder.any() and (judgement.probability[rows] < 0.5).mean() < 0.1


def test_collections_without_common_images_or_captions_have_no_placeholder():
    assert not len(judge_pairs(planted(300, 2, 0.3)[0], 0, options=DIVIDED).in_placeholder)


def drawn(seed=0):
    """Evidence of decoys and of 300 pairs: 40 have one image, and 25 of the others one caption."""
    rng = np.random.default_rng(seed)
    image_of, texts = np.arange(300), [f"caption {i}" for i in range(300)]
    image_of[:40], texts[40:65] = 0, ["the same"] * 25
    folds = Folds.make(image_of, image_of, text_numbers(texts), np.zeros(300, np.int64), seed, OPTIONS.decoys)
    pairs = rng.normal(size=300)
    pairs[65:] += 2
    return folds, Evidence(pairs, rng.normal(size=len(folds.decoy_images)))


@pytest.mark.parametrize("shift", [0.0, 0.2, 2.0])
def test_placeholders_are_sets_whose_pairs_are_like_their_own_decoys(shift):
    folds, evidence = drawn()
    pairs = evidence.pairs.copy()
    pairs[40:65] += shift
    evidence = replace(evidence, pairs=pairs)
    expected = []
    for name, rows, own in (
        ("image", range(40), folds.decoy_images < 40),
        (
            "caption",
            range(40, 65),
            (folds.decoy_images >= 40) & (folds.decoy_captions >= 40) & (folds.decoy_captions < 65),
        ),
    ):
        decoys = evidence.decoys[own]
        shares = [np.mean(decoys < pairs[row]) for row in rows]
        others = [int(20 * np.mean(evidence.decoys < pairs[row])) for row in range(300) if row not in rows]
        density = [(1 + others.count(place)) * 20 / (20 + len(others)) for place in range(20)]
        few = sum(share >= 0.95 for share in shares) <= len(rows) / 20 + 3 * np.sqrt(len(rows) * 0.0475)
        ratio = sum(np.log(density[min(19, int(20 * share))]) for share in shares)
        if np.mean(shares) <= 0.5 + min(0.1, 3 / np.sqrt(12 * len(rows))) and few and ratio <= -4:
            expected.append(name)
    apart = set_placeholders_apart(folds, evidence, OPTIONS)
    assert len(set(apart.placeholder) - {-1}) == len(expected) and expected[0] == "image"
    assert (apart.placeholder[:40] >= 0).all() and (apart.placeholder[65:] == -1).all()
    assert (apart.placeholder[40:65] >= 0).all() == ("caption" in expected)
    assert len(apart.decoys) < len(evidence.decoys)


def test_small_sets_and_whole_collections_are_not_set_apart():
    folds, evidence = drawn()
    few = replace(folds, image_of=np.arange(300), text_of=np.arange(300) // 19)
    assert set_placeholders_apart(few, evidence, OPTIONS) is evidence
    rest = replace(folds, image_of=np.where(np.arange(300) < 201, 0, np.arange(300)))  # 99 pairs would be left
    assert set_placeholders_apart(rest, evidence, OPTIONS) is evidence


def test_the_rate_is_the_mean_over_placeholders_and_others():
    placeholder = np.array([-1] * 6 + [3] * 2 + [8] * 2)
    group = np.array([0, 0, 0, 1, 1, 1, 0, 0, 1, 1])
    others = Calibration(np.array([0.2, 0.4]), np.array([0.1, 0.3]), np.array([0.3, 0.5]), np.full(6, 0.7), 0.9)
    found = with_placeholders(others, placeholder, group)
    assert found.probability == pytest.approx([0.7] * 6 + [0.25] * 4)
    assert found.rates == pytest.approx([(3 * 0.2 + 2 * 0.75) / 5, (3 * 0.4 + 2 * 0.75) / 5])
    assert found.low == pytest.approx([(3 * 0.1 + 2 * 0.75) / 5, (3 * 0.3 + 2 * 0.75) / 5])
    assert found.high == pytest.approx([(3 * 0.3 + 2 * 0.75) / 5, (3 * 0.5 + 2 * 0.75) / 5]) and found.auroc == 0.9


def test_equal_images_of_many_pairs_are_one_image():
    vectors = np.random.default_rng(3).normal(size=(60, 4)).astype(np.float32)
    vectors[5:30], vectors[40:50] = vectors[5], vectors[40]
    joined = join_equal_images(100 + np.arange(60), vectors, np.arange(60), 20)
    assert len(set(joined[5:30])) == 1 and set(joined[5:30]) <= set(range(105, 130))
    rest = np.r_[0:5, 30:60]  # ten equal images are few
    assert (joined[rest] == 100 + rest).all()
    three = np.array([7, 8, 9, 7, 8])  # pairs count, not images
    many = join_equal_images(np.repeat(three, 8), np.ones((3, 2), np.float32), np.repeat(three - 7, 8), 20)
    assert set(many) == {7}


@pytest.mark.parametrize(("common", "folds"), [(19, 10), (40, 10), (80, 5), (200, 2), (300, 2), (321, 10)])
def test_a_common_image_has_at_most_half_of_a_fold_and_near_duplicates_stay_together(common, folds):
    image_of = np.concatenate([np.zeros(common, np.int64), np.arange(1, 801 - common)])
    group_of = np.where(image_of >= 450, 450, image_of)
    units, found = fold_units(image_of, group_of, 10, OPTIONS.folds)
    fold = make_folds(units, found, 0)
    assert found == folds and len(set(fold[image_of >= 450])) == 1
    assert (len(set(fold[:common])) == 1) == (common <= 320)
    dissolved = np.arange(800)  # equal images that near-duplicates leave apart
    units, found = fold_units(image_of, dissolved, 10, OPTIONS.folds)
    assert found == folds and (len(set(units[:common])) == 1) == (20 <= common <= 320)


def test_lost_images_with_all_their_captions_are_one_placeholder():
    judged, _ = planted(200, 5, 0.02)
    rows = np.flatnonzero(judged.image_of < 20)
    judgement = judge_pairs(with_common(judged, rows, "images"), 0, options=DIVIDED)
    assert judgement.in_placeholder[rows].all() and judgement.rate == pytest.approx(0.12, abs=0.03)


@pytest.mark.parametrize(("whole", "noise"), [(False, 0.6), (True, 0.4)])
def test_images_of_many_captions_are_no_placeholders_where_some_captions_fit(whole, noise):
    judged, matched = planted(30, 25, noise, whole=whole)
    judgement = judge_pairs(judged, 0, options=OPTIONS)
    wrong = ~matched if whole else np.zeros(750, np.bool_)
    assert not len(judgement.in_placeholder) or not judgement.in_placeholder[~wrong].any()
    assert roc_auc_score(matched, judgement.probability) > 0.95


def test_a_placeholder_in_one_split_is_in_the_rate_of_that_split():
    judged, matched = planted(1000, 1, 0.1)
    in_train, rows = np.arange(1000) < 700, np.random.default_rng(3).permutation(700)[:210]
    judgement = judge_pairs(replace(with_common(judged, rows, "captions"), in_train=in_train), 0, options=DIVIDED)
    wrong = np.isin(np.arange(1000), rows) | ~matched
    assert judgement.rate == pytest.approx(float(wrong[in_train].mean()), abs=0.05)
    assert judgement.rate_outside_train == pytest.approx(float(wrong[~in_train].mean()), abs=0.05)


@pytest.mark.parametrize("side", ["images", "captions"])
def test_placeholders_are_found_where_training_pairs_have_a_rate_of_their_own(side):
    clean, _ = planted(800)
    noisy, matched = planted(800, 1, 0.5)
    in_train = np.arange(800) < 500
    captions = np.where(in_train[:, None], noisy.captions, clean.captions)
    rows = np.random.default_rng(4).permutation(800)[:80]
    judged = replace(with_common(replace(noisy, captions=captions), rows, side), in_train=in_train)
    judgement = judge_pairs(judged, 0, options=DIVIDED)
    hit, wrong = np.isin(np.arange(800), rows), ~matched & in_train
    assert (judgement.in_placeholder == hit).mean() > 0.99 and judgement.rate_outside_train is not None
    assert judgement.rate == pytest.approx(float((hit | wrong)[in_train].mean()), abs=0.06)
    assert judgement.rate_outside_train == pytest.approx(float(hit[~in_train].mean()), abs=0.06)


@pytest.mark.parametrize("seed", [0, 2])
def test_a_small_placeholder_outside_train_is_found(seed):
    judged, _ = planted(800, seed=seed)
    in_train, rows = np.arange(800) < 640, np.arange(650, 687)
    judgement = judge_pairs(replace(with_common(judged, rows, "images"), in_train=in_train), 0, options=DIVIDED)
    hit = np.isin(np.arange(800), rows)
    assert (judgement.in_placeholder == hit).all() and (judgement.probability[hit] < 0.5).all()
    assert judgement.rate < 0.03 and judgement.rate_outside_train == pytest.approx(37 / 160, abs=0.05)


def test_two_placeholders_of_some_pairs_are_both_found():
    """Pairs that have both are alike, and would hide the image by their number."""
    judged, matched = planted(1200, 1, 0.1)
    rows = np.random.default_rng(0).permutation(1200)
    judged = with_common(with_common(judged, rows[:60], "images"), rows[30:90], "captions")
    judgement = judge_pairs(judged, 0, options=DIVIDED)
    hit = np.isin(np.arange(1200), rows[:90])
    assert (judgement.in_placeholder == hit).all() and (judgement.probability[hit] < 0.1).all()
    assert judgement.rate == pytest.approx(float((hit | ~matched).mean()), abs=0.03)


def test_a_placeholder_does_not_make_whole_images_look_mismatched_together():
    judged, matched = planted(200, 5, 0.2)
    judged = replace(judged, image_of=judged.image_of + 1)  # 0 is for the lost images
    hit = np.isin(judged.image_of, np.random.default_rng(7).permutation(200)[:50])
    vectors = np.where(hit[:, None], np.random.default_rng(9).normal(size=(1, judged.images.shape[1])), judged.images)
    image_of = np.where(hit, 0, judged.image_of)
    judged = replace(judged, images=vectors.astype(np.float32), image_of=image_of, group_of=image_of)
    judgement = judge_pairs(judged, 0, options=DIVIDED)
    assert judgement.in_placeholder[hit].all() and not judgement.in_placeholder[~hit].any()
    assert "linear_siblings" in judgement.detectors
    assert roc_auc_score(matched[~hit], judgement.probability[~hit]) > 0.98
