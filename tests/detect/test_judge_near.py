"""Probabilities about captions of any images and about near ones together."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from detect_helpers import LIGHT, judged_of, planted, scenes_of_classes

from pairsift.detect.combination import combine_by_rate
from pairsift.detect.evidence import Evidence
from pairsift.detect.folds import Folds
from pairsift.detect.judgement import Judgement, judge_pairs
from pairsift.detect.near_mismatches import _fitting, join, judge_near_mismatches

pytestmark = pytest.mark.slow


def near(**values):
    """Light options, with others for the second judgement."""
    return LIGHT.changed({"near_mismatches": values})


def judged_near(judged, vectors, memory, options=LIGHT):
    return judge_near_mismatches(judged, vectors, 0, memory, options=options)


def judged_beside_any(judged):
    return judge_pairs(judged, 0, options=LIGHT)


def memory_of(matched, shift=3.0, asked=None):
    """Evidence of networks that learned the pairs: higher for matching ones, and for swaps as for mismatched ones."""
    learned = shift * matched + np.random.default_rng(1).normal(size=len(matched))

    def memory(folds, rows):
        if asked is not None:
            asked.append(rows)
        return Evidence(learned[rows], np.random.default_rng(2).normal(size=len(folds.decoy_images)))

    return memory


def classes_of(n, seed=1):
    """Vectors that make the captions of a class near each other."""
    rng = np.random.default_rng(seed)
    return (np.eye(30)[np.arange(n) % 30] + 0.01 * rng.normal(size=(n, 30))).astype(np.float32)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_probabilities_are_about_near_captions_where_these_are_expected(noise):
    judged, matched = scenes_of_classes(noise)
    judgement = judged_near(judged, classes_of(len(matched)), memory_of(matched))
    share = float(np.mean(~matched))
    assert judgement.counts_near and judgement.verdicts and "memory" in judgement.detectors
    assert judgement.rate == pytest.approx(share, abs=0.06) and judgement.low <= judgement.rate <= judgement.high
    if noise:
        random = judged_beside_any(judged)
        errors = [abs(one.probability.mean() - matched.mean()) for one in (judgement, random)]
        assert errors[0] < 0.06 < errors[1] / 2
        wrong, right = judgement.probability[~matched], judgement.probability[matched]
        assert (right[:, None] > wrong).mean() == pytest.approx(judgement.near_auroc, abs=0.05)


@pytest.mark.parametrize("seed", [0, 1])
def test_both_kinds_of_mismatches_together_are_counted(seed):
    judged, matched = scenes_of_classes(0.25, seed)
    rng = np.random.default_rng(seed)
    moved = rng.permutation(len(matched))[: len(matched) // 4]
    captions, vectors = judged.captions.copy(), classes_of(len(matched))
    captions[moved], vectors[moved] = captions[np.roll(moved, 1)], vectors[np.roll(moved, 1)]
    texts = judged.text_of.copy()
    texts[moved] = texts[np.roll(moved, 1)]
    judged, matched = replace(judged, captions=captions, text_of=texts), matched.copy()
    matched[moved] = False
    asked = []
    judgement = judged_near(judged, vectors, memory_of(matched, asked=asked))
    assert judgement.counts_near
    assert judgement.rate == pytest.approx(float(np.mean(~matched)), abs=0.07)
    assert np.isin(moved, asked[0]).mean() < 0.25  # networks of copies learn the pairs that fit


def test_swaps_that_do_not_fit_are_no_decoys():
    first = Evidence(np.array([5.0, 1.0, 3.0, 2.0, 4.0]), np.zeros(0), np.array([0.5, 2.5, 3.5, np.nan, 9.0]))
    in_train, kept = np.array([True, True, True, False, False]), np.array([0, 2, 4])
    # The least of the kept pairs is 3 in training and 4 elsewhere; decoys have the images of pairs 0, 1, 2, 0 and 3.
    assert _fitting(first, kept, np.array([0, 1, 2, 0, 3]), in_train).tolist() == [False, False, True, False, True]
    assert not _fitting(first, kept[:2], np.array([3, 4, 4, 3, 3]), in_train).any()  # no pair elsewhere was kept


@pytest.mark.parametrize(("noise", "many"), [(0.0, False), (0.4, True)])
def test_captions_of_any_images_among_near_ones_are_noticed(noise, many):
    judged, matched = planted(500, noise=noise)
    all_kept = near(min_probability=0.0)  # as if the first judgement had taken none out
    judgement = judged_near(judged, judged.captions, memory_of(matched, 0.0), all_kept)
    assert (judgement.below_near > 0.2) is many and not (many and judgement.counts_near)
    assert judged_beside_any(judged).below_near == 0.0


def test_where_near_captions_cannot_be_told_the_judgement_stays_about_any_images():
    judged, matched = scenes_of_classes(0.3)
    judgement = judged_near(judged, classes_of(len(matched)), memory_of(matched, 0.0))
    assert judgement.near_auroc < 0.8 and judgement.counts_near is False
    alone = judged_beside_any(judged)
    assert judgement.verdicts and judgement.rate == alone.rate and (judgement.probability == alone.probability).all()


def test_where_too_few_pairs_fit_near_captions_are_not_counted():
    judged, matched = planted(300, noise=0.3)
    none_kept = near(min_probability=1.1)
    judgement = judged_near(judged, judged.captions, memory_of(matched), none_kept)
    assert judgement.counts_near is False and judgement.verdicts and "memory" not in judgement.detectors


def test_where_too_few_swaps_fit_no_network_learns_them_and_near_captions_are_not_counted():
    judged, matched = planted(500, noise=0.3)
    by_chance, asked = np.random.default_rng(3).normal(size=(len(judged), 8)).astype(np.float32), []
    judgement = judged_near(judged, by_chance, memory_of(matched, asked=asked))  # swaps look like any captions
    alone = judged_beside_any(judged)
    assert not asked and judgement.counts_near is False and judgement.near_auroc is None
    assert judgement.verdicts and (judgement.probability == alone.probability).all()


def test_pairs_outside_train_are_judged_beside_near_captions_too():
    judged, matched = scenes_of_classes(0.3)
    in_train = np.arange(len(matched)) % 3 > 0
    clean, _ = scenes_of_classes(0.0)
    captions = np.where(in_train[:, None], judged.captions, clean.captions)
    matched = matched | ~in_train
    judged = replace(judged, captions=captions, in_train=in_train)
    judgement = judged_near(judged, classes_of(len(matched)), memory_of(matched))
    assert judgement.counts_near
    assert judgement.rate == pytest.approx(float(np.mean(~matched[in_train])), abs=0.08)
    assert judgement.probability[~in_train].mean() > 0.9


def test_verdicts_that_the_first_judgement_gives_are_not_lost():
    judged, matched = scenes_of_classes(0.3)
    never = LIGHT.changed({"verdicts": {"max_below_near": -1.0}})
    judgement = judged_near(judged, classes_of(len(matched)), memory_of(matched), never)
    assert judgement.counts_near is False and judgement.verdicts


def test_collections_without_near_captions_are_judged_beside_captions_of_any_images():
    judged, matched = planted(300, noise=0.3)
    alike = judged_of(judged.images, judged.captions, judged.image_of, texts=["the same"] * len(judged))
    judgement = judged_near(alike, alike.captions, memory_of(matched))
    assert isinstance(judgement, Judgement) and judgement.counts_near is False


def test_pairs_outside_train_without_swaps_of_their_own_are_judged_with_the_others():
    rng, pairs = np.random.default_rng(0), np.arange(500)
    in_train, wrong = pairs >= 150, (pairs >= 150) & (pairs % 2 == 0)
    images, captions = rng.integers(150, 500, 300), rng.integers(150, 500, 300)
    folds = Folds(pairs, pairs, pairs % 5, images, captions)
    kinds = {
        name: Evidence(rng.normal(size=500) + 5 * ~wrong, rng.normal(size=300)) for name in ("linear", "near_images")
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evidence, _ = combine_by_rate(folds, kinds, in_train, 0, LIGHT)
    assert len(evidence.decoys) == 300 and np.isfinite(evidence.pairs).all()
    assert evidence.pairs[~in_train].mean() == pytest.approx(evidence.pairs[in_train & ~wrong].mean(), rel=0.1)


N = 1000
IN_TRAIN = np.arange(N) >= 200
KEPT = np.flatnonzero(np.arange(N) % 10 > 0)


def judgements():
    """A judgement about any captions, which takes out a tenth of the pairs, and one about near captions."""
    rng = np.random.default_rng(0)
    probability = np.where(np.arange(N) % 10 == 0, 0.1, 0.95)
    fold = np.zeros(N, np.int64)
    evidence = rng.random(N)
    any_images = Judgement(probability, 0.14, 0.11, 0.16, 0.98, fold, detectors={"linear": evidence}, near_auroc=0.7)
    quantiles = {"linear": evidence[KEPT] / 2, "memory": evidence[KEPT]}
    of_kept = Judgement(rng.random(len(KEPT)), 0.2, 0.16, 0.25, 0.9, fold[KEPT], detectors=quantiles, below_near=0.03)
    return any_images, of_kept


def test_pairs_that_were_taken_out_keep_their_probability_and_the_others_have_that_beside_near_captions():
    judgement, near = judgements()
    found = join(judgement, near, KEPT, IN_TRAIN)
    of_kept = iter(near.probability)
    expected = [0.1 if row % 10 == 0 else next(of_kept) for row in range(N)]
    assert found.probability.tolist() == expected
    assert judgement.probability[1] == 0.95  # of the first judgement nothing has changed
    assert found.auroc == 0.98 and found.below_near == 0.03
    assert found.detectors["linear"] is judgement.detectors["linear"]
    memory = iter(near.detectors["memory"])
    assert found.detectors["memory"].tolist() == [0.0 if row % 10 == 0 else next(memory) for row in range(N)]


def test_the_rate_is_that_of_both_parts_of_the_training_pairs_and_its_interval_has_both_errors():
    judgement, near = judgements()
    found = join(judgement, near, KEPT, IN_TRAIN)
    assert found.rate == pytest.approx(0.1 * 0.9 + 0.9 * 0.2)
    assert found.rate - found.low == pytest.approx(((0.9 * 0.04) ** 2 + 0.03**2) ** 0.5)
    assert found.high - found.rate == pytest.approx(((0.9 * 0.05) ** 2 + 0.02**2) ** 0.5)
    assert found.rate_outside_train is None


def test_pairs_outside_train_have_a_rate_of_their_own_where_one_of_the_two_judgements_found_that():
    judgement, near = judgements()
    found = join(replace(judgement, rate_outside_train=0.3), near, KEPT, IN_TRAIN)
    assert found.rate_outside_train == pytest.approx(0.1 * 0.9 + 0.9 * 0.2)
    found = join(judgement, replace(near, rate_outside_train=0.05), KEPT, IN_TRAIN)
    assert found.rate_outside_train == pytest.approx(0.1 * 0.9 + 0.9 * 0.05)
