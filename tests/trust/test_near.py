"""Mismatched pairs whose captions read like the right ones: near decoys, their share, and what it does to a belief."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from trust_helpers import judged_of, unit

from pairsift.trust import heldout, near
from pairsift.trust.contrast import Evidence
from pairsift.trust.crossfit import CrossFit, make_folds
from pairsift.trust.heldout import believe
from pairsift.trust.near import near_mismatches


def evidence_of(near, random=0.0, n=6000, seed=0, apart=(0.0, 2.0, 4.5)):
    """Evidence of pairs with these shares of near and of other mismatches, and which of them match."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, n, p=[random, near, 1 - near - random])
    pairs = rng.normal(np.array(apart)[kind], 1)
    decoys, nears = rng.normal(apart[0], 1, 20_000), rng.normal(apart[1], 1, 20_000)
    return Evidence(pairs, decoys, nears), kind == 2


def estimate(evidence, probability=None, rate=0.0, given=None):
    n = len(evidence.pairs)
    given = np.arange(len(evidence.near)) % n if given is None else given
    return near_mismatches(evidence, given, np.ones(n, bool), np.ones(n) if probability is None else probability, rate)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_the_share_errs_on_the_low_side_and_the_truth_is_below_the_high_end(share):
    evidence, matched = evidence_of(share)
    found = estimate(evidence)
    truth = 1 - matched.mean()
    assert truth - 0.08 <= found.share <= truth + 0.01 and truth - 0.02 <= found.high
    assert roc_auc_score(matched, found.probability) > 0.9
    flagged = found.probability < 0.5
    assert matched[flagged].mean() < 0.25
    assert abs((1 - found.probability).mean() - found.share) < 0.02


def test_nothing_is_near_where_all_pairs_match():
    found = estimate(evidence_of(0.0)[0])
    assert found.share == 0 and (found.probability == 1).all() and found.high < 0.06


def test_other_mismatches_are_not_taken_for_near_ones():
    evidence, matched = evidence_of(0.0, 0.04)
    probability = np.where(matched, 1.0, 0.0)
    assert estimate(evidence, probability, 0.04).share == 0
    both, matched = evidence_of(0.2, 0.03)
    random = both.pairs < 0.5  # about the others
    found = estimate(both, np.where(random, 0.0, 1.0), 0.03)
    assert 0.12 <= found.share <= 0.21
    many, _ = evidence_of(0.2, 0.1)
    assert estimate(many, rate=0.1).share == 0  # too many others for these to be told apart


def test_the_first_round_is_what_the_formula_says(monkeypatch):
    monkeypatch.setattr(near, "ROUNDS", 1)
    evidence, _ = evidence_of(0.25, 0.02, n=400)
    rate, n = 0.02, 400
    nears = sorted(evidence.near)
    smallest = 1.0
    for q in [0.1 + 0.05 * step for step in range(11)]:
        limit = nears[min(range(len(nears)), key=lambda i: abs((i + 1) / len(nears) - q))]
        below = sum(value < limit for value in evidence.pairs) / n
        decoys_below = sum(value < limit for value in evidence.decoys) / len(evidence.decoys)
        smallest = min(smallest, (below - rate * decoys_below) / q)
    expected = (smallest - 0.05 * 0.98) / 0.95
    assert estimate(evidence, rate=rate).share == pytest.approx(expected, abs=1e-3)


def test_only_the_order_of_evidence_counts():
    evidence, _ = evidence_of(0.3, n=1000)
    bent = Evidence(*(np.exp(values) for values in (evidence.pairs, evidence.decoys, evidence.near)))
    one, other = estimate(evidence), estimate(bent)
    assert one.share == other.share and np.array_equal(one.probability, other.probability)


def test_decoys_of_pairs_that_are_not_believed_do_not_count():
    evidence, _ = evidence_of(0.3, n=1000)
    given = np.arange(len(evidence.near)) % 500  # decoys of the first half of the pairs
    spoiled = np.where(np.arange(len(evidence.near)) % 500 < 100, -9.0, evidence.near)  # some have no evidence at all
    probability = np.ones(1000)
    probability[:100] = 0.0
    plain = np.arange(len(evidence.near)) % 500 >= 100
    kept = Evidence(evidence.pairs, evidence.decoys, evidence.near[plain])
    expected = estimate(kept, probability, given=given[plain])
    found = estimate(replace(evidence, near=spoiled), probability, given=given)
    assert found.share == pytest.approx(expected.share) and np.allclose(found.probability, expected.probability)


@pytest.mark.parametrize(
    "evidence", [Evidence(np.arange(5.0), np.arange(9.0)), Evidence(np.ones(5), np.ones(9), np.ones(9))]
)
def test_without_a_difference_nothing_is_said(evidence):
    found = estimate(evidence)
    assert found.share == 0 and (found.probability == 1).all()


def test_near_decoys_read_like_the_caption_that_they_replace():
    rng = np.random.default_rng(0)
    image_of = np.repeat(np.arange(250), 2)
    vectors = rng.normal(size=(500, 6)).astype(np.float32)
    texts = [f"caption {n // 3}" for n in range(500)]
    fold = make_folds(image_of, 2, 0)
    fit = CrossFit.make(image_of, image_of, texts, fold, 0, vectors)
    plain = CrossFit.make(image_of, image_of, texts, fold, 0)
    assert np.array_equal(fit.decoy_images, plain.decoy_images) and not len(plain.near_images)
    assert len(fit.near_images) > 4000 and set(fit.near_images.tolist()) == set(range(500))
    rows = unit(vectors)
    for image, caption in zip(fit.near_images[::37].tolist(), fit.near_captions[::37].tolist(), strict=True):
        others = [
            pair
            for pair in range(500)
            if fold[pair] == fold[image] and image_of[pair] != image_of[image] and texts[pair] != texts[image]
        ]
        nearest = sorted(others, key=lambda pair: -float(rows[image] @ rows[pair]))[: round(0.01 * (fold == 0).sum())]
        assert caption in nearest


def scenes_of_classes(noise, seed=0, images=900, classes=30):
    """Images of few classes, whose captions differ by a little; a share is exchanged within classes."""
    rng = np.random.default_rng(seed)
    of_class = np.arange(images) % classes
    hidden = 3 * rng.normal(size=(classes, 12))[of_class] + 1.5 * rng.normal(size=(images, 12))
    source = np.arange(images)
    for place in rng.permutation(images)[: round(noise * images / 2)]:
        others = np.flatnonzero((of_class == of_class[place]) & (source == np.arange(images)))
        others = others[others != place]
        if source[place] == place and len(others):
            source[place], source[others[0]] = others[0], place
    left = hidden @ rng.normal(size=(12, 40)) + 0.3 * rng.normal(size=(images, 40))
    right = (hidden @ rng.normal(size=(12, 30)) + 0.3 * rng.normal(size=(images, 30)))[source]
    return judged_of(left, right, np.arange(images)), source == np.arange(images)


def test_exchanges_within_classes_are_noticed_and_clean_classes_are_left_alone(monkeypatch):
    monkeypatch.setattr(heldout, "RESAMPLES", 8)
    monkeypatch.setattr(heldout, "AVERAGED_PAIRS", 1)
    judged, matched = scenes_of_classes(0.3)
    belief = believe(judged, 0)
    assert belief.near >= 0.1 and belief.rate >= belief.near and belief.low <= belief.rate <= belief.high
    assert belief.high >= 1 - matched.mean() - 0.02
    flagged = belief.probability < 0.5
    assert flagged.sum() > 30 and (~matched)[flagged].mean() > 0.7
    clean, _ = scenes_of_classes(0.0)
    again = believe(clean, 0)
    assert again.near <= 0.02 and (again.probability < 0.5).mean() <= 0.02
