"""A judge that learned from some pairs and judges others beside them."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from detect_helpers import LIGHT
from sklearn.metrics import roc_auc_score

from pairsift.detect.judged_pairs import JudgedPairs, PairVectors
from pairsift.detect.judgement import judge_pairs
from pairsift.detect.pair_judge import PairJudge


def drawn(images, per=1, noise=0.3, seed=0, vague=0.0):
    """Pairs of vectors with a hidden common factor, and which match; a share of the captions is one that fits none."""
    rng, world = np.random.default_rng(seed), np.random.default_rng(99)
    hidden, image_of = rng.normal(size=(images, 12)), np.repeat(np.arange(images), per)
    source, n = image_of.copy(), images * per
    moved = rng.permutation(n)[: round(noise * n)]
    source[moved] = (image_of[moved] + rng.integers(1, images, len(moved))) % images
    left = hidden @ world.normal(size=(12, 40)) + 0.5 * rng.normal(size=(images, 40))
    right = hidden[source] @ world.normal(size=(12, 30)) + 0.5 * rng.normal(size=(n, 30))
    text_of, bare = np.arange(n) + 1, rng.permutation(n)[: round(vague * n)]
    right[bare], text_of[bare] = world.normal(size=30), 0
    pairs = PairVectors(
        left.astype(np.float32), right.astype(np.float32), image_of, text_of, np.ones(n, np.bool_), verified=np.zeros(0)
    )
    return pairs, source == image_of


def part(pairs, images):
    """The pairs of these images alone, ascending."""
    rows = np.flatnonzero(np.isin(pairs.image_of, images))
    image_of = np.searchsorted(images, pairs.image_of[rows])
    return replace(
        pairs,
        images=pairs.images[images],
        captions=pairs.captions[rows],
        image_of=image_of,
        text_of=pairs.text_of[rows],
        in_train=pairs.in_train[rows],
    )


@pytest.fixture(scope="module")
def siblings():
    """A judge of pairs of which an image has three."""
    pairs, matches = drawn(150, 3)
    return PairJudge.fit(pairs, 0, LIGHT), pairs, matches


def test_the_learned_pairs_are_judged_as_all_pairs_are(siblings):
    judge, pairs, _ = siblings
    own, whole = judge.judgement(), judge_pairs(JudgedPairs.make(pairs, LIGHT), 0, options=LIGHT)
    assert (own.probability == whole.probability).all() and (own.fold == whole.fold).all()
    assert (own.rate, own.low, own.high, own.auroc) == (whole.rate, whole.low, whole.high, whole.auroc)
    assert all((own.detectors[name] == whole.detectors[name]).all() for name in whole.detectors)


@pytest.mark.parametrize("per", [1, 3])
def test_a_learned_pair_that_is_asked_again_has_the_evidence_that_it_had(per):
    pairs, _ = drawn(450 // per, per, seed=1)
    judge = PairJudge.fit(pairs, 0, LIGHT)
    images = np.arange(0, 450 // per, 4)
    rows = np.flatnonzero(np.isin(pairs.image_of, images))
    again = judge.evidence(part(pairs, images))
    assert (again.fold == judge.foldings[0].fold[rows]).all()
    assert (again.group == judge.learned.group_of[rows]).all()
    for division, combined in zip(judge.divisions, again.combined, strict=True):
        assert combined == pytest.approx(division.evidence.pairs[rows], rel=1e-5, abs=1e-5)
    for name, values in judge.judgement().detectors.items():
        assert again.detectors[name] == pytest.approx(values[rows], abs=1e-6)


def test_evidence_does_not_depend_on_the_pairs_that_are_asked_beside(siblings):
    judge, _, _ = siblings
    new, _ = drawn(90, 3, seed=2)
    whole = judge.evidence(new)
    parts = [judge.evidence(part(new, images)) for images in np.array_split(np.arange(90), [7, 40, 41])]
    assert np.concatenate([one.combined for one in parts], 1) == pytest.approx(whole.combined, rel=1e-4, abs=1e-4)
    assert (np.concatenate([one.fold for one in parts]) == whole.fold).all()
    judged, in_parts = judge.judgement([whole]), judge.judgement(parts)
    assert in_parts.probability == pytest.approx(judged.probability, abs=1e-4)
    assert len(np.unique(in_parts.group)) == len(np.unique(judged.group)) == 150 + 90


def test_pairs_have_the_places_that_are_given(siblings):
    judge, pairs, _ = siblings
    new, _ = drawn(90, 3, seed=2)
    parts = [judge.evidence(part(new, images)) for images in np.array_split(np.arange(90), 4)]
    behind = judge.judgement(parts)
    places = np.random.default_rng(3).permutation(len(pairs) + len(new))
    placed = judge.judgement(iter(parts), places)
    assert (placed.probability[places] == behind.probability).all() and placed.low == behind.low
    assert (placed.fold[places] == behind.fold).all() and (placed.group[places] == behind.group).all()
    assert all((placed.detectors[name][places] == values).all() for name, values in behind.detectors.items())


def test_siblings_with_a_placeholder_count_alike_in_every_part():
    pairs, _ = drawn(300, 3, 0.1, seed=10, vague=0.2)
    judge, new = PairJudge.fit(pairs, 0, LIGHT), drawn(60, 3, 0.1, seed=11, vague=0.2)[0]
    whole = judge.evidence(new)
    assert judge.divisions[0].rounds and (whole.placeholder >= 0).any()
    parts = [judge.evidence(part(new, images)) for images in np.array_split(np.arange(60), 20)]
    assert np.concatenate([one.combined for one in parts], 1) == pytest.approx(whole.combined, rel=1e-4, abs=1e-4)


def test_a_judge_in_another_process_finds_the_same(siblings):
    judge, _, _ = siblings
    new, _ = drawn(40, 3, seed=3)
    one, other = judge.evidence(new), pickle.loads(pickle.dumps(judge)).evidence(new)
    assert (one.combined == other.combined).all()
    assert all((one.detectors[name] == other.detectors[name]).all() for name in one.detectors)


def test_planted_mismatches_among_others_are_found(siblings):
    judge, pairs, right = siblings
    new, matches = drawn(300, 3, 0.3, seed=4)
    judgement = judge.judgement([judge.evidence(new)])
    assert len(judgement.probability) == len(pairs) + len(new)
    assert judgement.rate == pytest.approx(0.3, abs=0.08)
    found = judgement.probability[len(pairs) :]
    assert ((found < 0.5) == ~matches).mean() > 0.95 and roc_auc_score(matches, found) > 0.98
    assert roc_auc_score(right, judgement.probability[: len(pairs)]) > 0.98


def test_others_that_are_no_training_pairs_have_a_rate_of_their_own(siblings):
    judge, pairs, _ = siblings
    new, _ = drawn(300, 3, 0.0, seed=4)
    judgement = judge.judgement([judge.evidence(replace(new, in_train=np.zeros(len(new), np.bool_)))])
    assert judgement.rate == pytest.approx(0.3, abs=0.05) and judgement.rate_outside_train < 0.02
    assert (judgement.probability[len(pairs) :] > 0.5).all()


def test_vectors_of_few_bits_are_judged_by_all_folds(siblings):
    judge, _, _ = siblings
    new, _ = drawn(400, seed=9)
    found = judge.evidence(replace(new, images=new.images.astype(np.float16).astype(np.float32)))
    count = np.bincount(found.fold, minlength=len(judge.divisions[0].models.linear.models))
    assert count.min() > 0.5 * count.mean()


def test_a_near_duplicate_is_judged_without_its_twin(siblings):
    judge, pairs, _ = siblings
    images, rows = np.arange(60), np.flatnonzero(pairs.image_of < 60)
    twins = part(pairs, images)
    noise = np.random.default_rng(5).normal(size=twins.images.shape).astype(np.float32)
    found = judge.evidence(replace(twins, images=twins.images + 1e-3 * noise))
    assert (found.fold == judge.foldings[0].fold[rows]).all() and (found.group == judge.learned.group_of[rows]).all()


@pytest.mark.parametrize("nearest", [0, 1])
def test_between_two_near_duplicates_the_nearest_decides(nearest):
    rng = np.random.default_rng(5)
    hidden = rng.normal(size=(150, 16))
    images, captions = (
        (hidden @ rng.normal(size=(16, width)) + 0.3 * rng.normal(size=(150, width))).astype(np.float32)
        for width in (48, 40)
    )
    images -= images.mean(0)
    first, across = images[0].copy(), rng.normal(size=48)
    across -= across @ first / (first @ first) * first
    across *= np.linalg.norm(first) / np.linalg.norm(across)
    images[1] = np.cos(0.6) * first + np.sin(0.6) * across  # not near the first one
    angle = 0.25 + 0.1 * nearest
    new = (np.cos(angle) * first + np.sin(angle) * across)[None].astype(np.float32)
    ones = np.ones(150, np.bool_)
    judge = PairJudge.fit(PairVectors(images, captions, np.arange(150), np.arange(150), ones), 0, LIGHT)
    beside = judge._beside(PairVectors(new, captions[:1], np.arange(1), np.array([150]), ones[:1]))
    groups = judge.learned.group_of
    assert groups[0] != groups[1] and beside.group_of.tolist() == [groups[nearest]]


def test_a_placeholder_of_the_learned_pairs_is_one_of_the_others_too():
    pairs, _ = drawn(900, noise=0.1, seed=6, vague=0.2)
    judge = PairJudge.fit(pairs, 0, LIGHT)
    new, _ = drawn(300, noise=0.1, seed=7, vague=0.2)
    found = judge.evidence(new)
    assert len(np.unique(found.placeholder[0][new.text_of == 0])) == 1
    assert ((found.placeholder >= 0) == (new.text_of == 0)).all()
    judgement = judge.judgement([found])
    assert (judgement.in_placeholder == np.concatenate([pairs.text_of == 0, new.text_of == 0])).all()


def test_what_is_verified_among_the_others_matches(siblings):
    judge, _, _ = siblings
    new, matches = drawn(60, 3, seed=8)
    judgement = judge.judgement([judge.evidence(replace(new, verified=~matches))])
    assert (judgement.probability[-len(new) :][~matches] == 1).all()
