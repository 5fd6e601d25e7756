"""Held-out evidence on pairs with planted mismatches, on noise, and on next to nothing."""

import warnings
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from detect_helpers import LIGHT, OPTIONS, judged_of, planted, scenes_of_classes, unit
from sklearn.metrics import roc_auc_score

from pairsift.arrays import text_numbers
from pairsift.detect import judgement as judgement_module
from pairsift.detect.combination import agreement_within
from pairsift.detect.evidence import Evidence
from pairsift.detect.folds import Folds, make_folds
from pairsift.detect.judgement import (
    Folding,
    JudgedPairs,
    _whole_images,
    judge_divisions,
    judge_foldings,
    judge_pairs,
    near_decoy_auroc,
    trust_without_folds,
)
from pairsift.detect.linear import fit_canonicals


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(("images", "per"), [(300, 1), (1000, 1), (80, 5), (200, 5)])
def test_hardly_a_pair_is_flagged_where_all_match(images, per):
    judged, _ = planted(images, per)
    judgement = judge_pairs(judged, 0, options=LIGHT)
    assert (judgement.probability < 0.5).mean() <= 0.03
    assert judgement.low <= judgement.rate < 0.03


@pytest.mark.parametrize(("images", "per", "noise"), [(600, 1, 0.3), (600, 1, 0.6), (150, 5, 0.3), (150, 5, 0.6)])
def test_planted_mismatches_are_found_and_counted(images, per, noise):
    judged, matched = planted(images, per, noise)
    judgement = judge_pairs(judged, 0, options=LIGHT)
    p = judgement.probability
    assert judgement.rate == pytest.approx(noise, abs=0.08)
    assert judgement.low <= judgement.rate <= judgement.high
    assert roc_auc_score(matched, p) > 0.9
    assert p.mean() == pytest.approx(matched.mean(), abs=0.08)
    low, _, high = parts = p < 0.25, (p >= 0.25) & (p < 0.75), p >= 0.75
    assert min(low.sum(), high.sum()) >= 100
    assert matched[low].mean() == pytest.approx(p[low].mean(), abs=0.1)
    assert matched[high].mean() == pytest.approx(p[high].mean(), abs=0.1)
    assert sum(abs((matched[part] - p[part]).sum()) for part in parts) / len(p) < 0.08


def test_captions_of_an_exchanged_image_do_not_vouch_for_each_other():
    judged, matched = planted(150, 5, 0.3, whole=True)
    judgement = judge_pairs(judged, 0, options=LIGHT)
    assert judgement.rate == pytest.approx(0.3, abs=0.08)
    assert roc_auc_score(matched, judgement.probability) > 0.9
    assert judgement.probability[~matched].mean() < 0.3
    assert judgement.probability[matched].mean() > 0.8


@pytest.mark.parametrize(("whole", "least", "most"), [(True, 0.8, 1.0), (False, -0.2, 0.2)])
def test_siblings_agree_where_mismatches_come_by_whole_images_and_not_where_splits_differ(whole, least, most):
    rng = np.random.default_rng(0)
    image_of, seen = np.repeat(np.arange(400), 5), np.repeat(np.arange(400) < 300, 5)
    wrong = seen & np.repeat(rng.random(400) < 0.6, 5) if whole else seen & (rng.random(2000) < 0.6)
    probability = np.where(wrong, 0.1, 0.9) + 0.05 * rng.normal(size=2000)
    assert least <= agreement_within(image_of, probability, seen) <= most
    naive = []
    for part in (seen, ~seen):
        rows = np.flatnonzero(part)
        rest = [probability[(image_of == image_of[row]) & (np.arange(2000) != row)].mean() for row in rows]
        naive.append(np.stack([probability[rows] - probability[rows].mean(), np.array(rest) - np.mean(rest)]))
    expected = np.corrcoef(np.concatenate(naive, axis=1))[0, 1]
    assert agreement_within(image_of, probability, seen) == pytest.approx(expected)
    assert agreement_within(np.arange(2000), probability, seen) == 0


def test_folds_that_are_settled_are_used_once_and_networks_are_asked():
    judged, _ = planted(120, 1, 0.3)
    fold, asked = make_folds(judged.group_of, 3, 1), []

    def networks(folds, trust):
        asked.append((folds, trust))
        return fit_canonicals(folds, judged.images, judged.captions, LIGHT.linear).encoder(
            judged.images, judged.captions
        )

    judgement = judge_pairs(judged, 0, fold, networks, LIGHT)
    assert (judgement.fold == fold).all() and len(asked) == 1 and (asked[0][0].fold == fold).all()
    assert asked[0][1].shape == (3, 120)
    assert (judgement.probability == judge_pairs(judged, 0, fold, networks, LIGHT).probability).all()


@pytest.mark.parametrize(("few", "threads"), [(2000, 1), (100, 2)])
def test_few_pairs_are_judged_with_one_thread_and_others_are_given_back(monkeypatch, few, threads):
    monkeypatch.setattr(judgement_module, "FEW", few)
    judged, seen = planted(120, 1, 0.3)[0], []

    @contextmanager
    def progress(total):
        yield lambda count: seen.append(torch.get_num_threads())

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        judge_pairs(judged, 0, options=LIGHT, progress=progress)
        assert set(seen) == {threads} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_what_a_fold_s_models_are_told_comes_from_the_others_alone():
    judged, matched = planted(200, 1, 0.5)
    fold = make_folds(judged.group_of, 3, 1)
    trust = trust_without_folds(judged, fold, 0, 200, LIGHT)
    captions = judged.captions.copy()
    captions[fold == 1] = np.roll(captions[fold == 1], 1, 0)
    again = trust_without_folds(replace(judged, captions=captions), fold, 0, 200, LIGHT)
    assert (again[1] == trust[1]).all() and (again[0] != trust[0]).any()
    for one in range(3):
        assert (trust[one, fold == one] == 0).all()
        assert roc_auc_score(matched[fold != one], trust[one, fold != one]) > 0.85


def test_the_models_of_a_fold_learn_from_at_most_so_many_pairs_of_whole_images():
    judged, matched = planted(200, 3, 0.3)
    fold = make_folds(judged.group_of, 2, 1)
    trust = trust_without_folds(judged, fold, 0, 150, LIGHT)
    for one in range(2):
        learned = trust[one] > 0
        assert 75 <= learned.sum() <= 150 and not learned[fold == one].any()  # wrong ones are trusted by 0
    rows = _whole_images(np.arange(3, 600), judged.image_of, 150, 0)
    assert len(rows) == 150 and (np.bincount(judged.image_of[rows]) % 3 == 0).all()
    assert (_whole_images(np.arange(90), judged.image_of, 150, 0) == np.arange(90)).all()
    found = judge_pairs(judged, 0, options=LIGHT.changed({"folds": {"max_learned": 150}}))
    assert roc_auc_score(matched, found.probability) > 0.9


@pytest.mark.parametrize(("pairs", "folds"), [(999, 10), (1000, 5), (25_000, 5), (30_000, 3), (39_990, 2), (10**7, 2)])
def test_there_are_fewer_folds_where_half_of_the_pairs_are_enough_to_learn_from(pairs, folds):
    assert OPTIONS.folds.divisions(pairs)[1] == folds


def test_being_told_whom_to_believe_helps_where_most_pairs_are_mismatched():
    told, alone = [], []
    for seed in range(3):
        judged, matched = planted(300, 1, 0.6, seed=seed)
        rng = np.random.default_rng(seed)
        judged = replace(judged, captions=(judged.captions + 4 * rng.normal(size=(300, 30))).astype(np.float32))
        fold = make_folds(judged.group_of, 5, seed)
        trust = trust_without_folds(judged, fold, seed, 300, LIGHT)
        for found, known in ((told, trust), (alone, None)):
            found.append(
                roc_auc_score(matched, judge_foldings(judged, [Folding(fold, seed, 0, known)], LIGHT)[0][0].probability)
            )
    assert np.mean(told) > np.mean(alone) + 0.01


@pytest.mark.slow
def test_near_duplicates_are_judged_in_one_fold():
    judged, _ = planted(90, 2)
    judged = replace(judged, group_of=judged.image_of // 3)
    fold = judge_pairs(judged, 0, options=LIGHT).fold
    assert (fold.reshape(30, 6) == fold[::6, None]).all() and len(set(fold.tolist())) == 10


@pytest.mark.slow
def test_few_pairs_are_divided_several_times():
    options = LIGHT.changed({"folds": {"averaged_pairs": OPTIONS.folds.averaged_pairs}})
    judged, matched = planted(150, 1, 0.3)
    judgement = judge_pairs(judged, 0, options=options)
    divided = [judgement for judgement, _ in judge_divisions(judged, 0, options=options)[1]]
    assert len(divided) == 5 and (divided[0].fold != divided[1].fold).any()
    assert judgement.probability == pytest.approx(np.mean([one.probability for one in divided], 0))
    assert judgement.rate == pytest.approx(np.mean([one.rate for one in divided]))
    assert list(judgement.detectors) == ["linear", "near_images", "near_captions"]
    for name, values in judgement.detectors.items():
        assert values == pytest.approx(np.mean([one.detectors[name] for one in divided], 0))
        assert roc_auc_score(matched, values) > 0.8


def test_pairs_that_no_network_trains_on_may_have_another_rate():
    dirty, first = planted(500, 1, 0.5, seed=1)
    seen = np.arange(500) < 350
    clean, second = planted(500, 1, 0.0, seed=1)
    captions = np.where(seen[:, None], dirty.captions, clean.captions)
    images = np.where(seen[:, None], dirty.images, clean.images)
    judged = replace(dirty, images=images, captions=captions, in_train=seen)
    matched = np.where(seen, first, second)
    judgement = judge_pairs(judged, 0, options=LIGHT)
    assert judgement.rate == pytest.approx(1 - matched[seen].mean(), abs=0.1)
    assert judgement.probability[~seen].mean() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.2, 0.6])
def test_other_captions_of_an_image_help_to_find_its_mismatches(noise):
    judged, matched = planted(200, 5, noise, seed=3)
    images = judged.images + 9 * np.random.default_rng(3).normal(size=(200, 40))[judged.image_of]
    judged, found = replace(judged, images=images.astype(np.float32)), []
    for rounds in (2, 0):
        options = LIGHT.changed({"folds": {"inner_folds": 3}, "siblings": {"rounds": rounds}})
        judgement = judge_pairs(judged, 0, options=options)
        assert ("linear_siblings" in judgement.detectors) == (rounds > 0)
        found.append(roc_auc_score(matched, judgement.probability))
    assert found[0] > found[1] + 0.03


def test_siblings_are_weighed_apart_where_training_pairs_alone_are_mismatched():
    dirty, first = planted(240, 5, 0.7, seed=2)
    clean, second = planted(240, 5, 0.0, seed=2)
    seen = dirty.image_of < 180
    rng = np.random.default_rng(0)
    captions = np.where(seen[:, None], dirty.captions, clean.captions) + 3 * rng.normal(size=dirty.captions.shape)
    images = np.where(seen[:, None], dirty.images, clean.images)
    judged = replace(dirty, images=images, captions=captions.astype(np.float32), in_train=seen)
    matched = np.where(seen, first, second)
    [(judgement, _)] = judge_foldings(judged, [Folding(make_folds(judged.group_of, 5, 0), 0, 8)], LIGHT)
    assert judgement.rate == pytest.approx(1 - matched[seen].mean(), abs=0.08)
    assert judgement.rate_outside_train is not None and judgement.rate_outside_train < 0.05
    found = roc_auc_score(matched[seen], judgement.probability[seen])
    assert found > max(roc_auc_score(matched[seen], one[seen]) for one in judgement.detectors.values()) - 0.02


def test_only_keeps_rows():
    judged, _ = planted(10, 2)
    rows = np.array([3, 4, 11])
    part = judged.subset(rows)
    assert len(part) == 3 and (part.text_of == judged.text_of[rows]).all()
    assert (part.images == judged.images[rows]).all() and (part.captions == judged.captions[rows]).all()
    assert part.image_of.tolist() == part.group_of.tolist() == [1, 2, 5] and part.in_train.all()


def drawn(n, image_of=None, seed=0, **more):
    rng = np.random.default_rng(seed)
    image_of = np.arange(n) if image_of is None else image_of
    return judged_of(rng.normal(size=(n, 12))[image_of], rng.normal(size=(n, 9)), image_of, **more)


DEGENERATE = {
    "1 pair": drawn(1),
    "2 pairs": drawn(2),
    "4 pairs": drawn(4),
    "12 pairs": drawn(12),
    "one image": drawn(120, np.zeros(120, np.int64)),
    "images alike": replace(drawn(120), images=np.full((120, 12), 0.1, np.float32)),
    "captions alike": replace(drawn(120, texts=["a"] * 120), captions=np.full((120, 9), 0.1, np.float32)),
    "all constant": replace(drawn(120), images=np.ones((120, 12), np.float32), captions=np.ones((120, 9), np.float32)),
    "zeros": replace(drawn(120), images=np.zeros((120, 12), np.float32), captions=np.zeros((120, 9), np.float32)),
    "all not a number": replace(drawn(120), captions=np.full((120, 9), np.nan, np.float32)),
    "two groups": drawn(120, group_of=np.arange(120) % 2),
    "huge": replace(drawn(120), images=1e12 * drawn(120).images),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_pairs_are_judged_without_a_warning(name):
    judged: JudgedPairs = DEGENERATE[name]
    judgement = judge_pairs(judged, 0, options=LIGHT)
    p = judgement.probability
    assert p.shape == judgement.fold.shape == (len(judged),) and ((p >= 0) & (p <= 1)).all()
    assert 0 <= judgement.low <= judgement.rate <= judgement.high <= 1 and 0.5 <= judgement.auroc <= 1


@pytest.mark.parametrize("name", ["1 pair", "4 pairs", "one image", "captions alike", "all constant", "zeros"])
def test_where_nothing_can_be_compared_every_pair_is_believed_and_every_rate_possible(name):
    judgement = judge_pairs(DEGENERATE[name], 0, options=LIGHT)
    assert (judgement.probability == 1).all()
    assert (judgement.rate, judgement.low, judgement.high, judgement.auroc) == (0, 0, 1, 0.5)


def test_one_vector_that_is_not_a_number_leaves_the_others_judged():
    judged, matched = planted(300, 1, 0.3)
    images, captions = judged.images.copy(), judged.captions.copy()
    images[5], captions[7, 2] = np.nan, np.inf
    judgement = judge_pairs(replace(judged, images=images, captions=captions), 0, options=LIGHT)
    assert np.isfinite(judgement.probability).all()
    assert roc_auc_score(matched, judgement.probability) > 0.9 and judgement.rate == pytest.approx(0.3, abs=0.08)


def test_near_decoys_read_like_the_caption_that_they_replace():
    rng = np.random.default_rng(0)
    image_of = np.repeat(np.arange(250), 2)
    vectors = rng.normal(size=(500, 6)).astype(np.float32)
    texts = [f"caption {n // 3}" for n in range(500)]
    fold = make_folds(image_of, 2, 0)
    folds = Folds.make(image_of, image_of, text_numbers(texts), fold, 0, OPTIONS.decoys, vectors)
    plain = Folds.make(image_of, image_of, text_numbers(texts), fold, 0, OPTIONS.decoys)
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


@pytest.mark.slow
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
