"""Judgements about captions of any images and about near ones, joined."""

from dataclasses import replace

import numpy as np
import pytest

from pairsift.detect.judgement import Judgement
from pairsift.detect.near_mismatches import join

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


def test_pairs_outside_train_have_a_rate_of_their_own_where_one_of_the_two_beliefs_found_that():
    judgement, near = judgements()
    found = join(replace(judgement, rate_outside_train=0.3), near, KEPT, IN_TRAIN)
    assert found.rate_outside_train == pytest.approx(0.1 * 0.9 + 0.9 * 0.2)
    found = join(judgement, replace(near, rate_outside_train=0.05), KEPT, IN_TRAIN)
    assert found.rate_outside_train == pytest.approx(0.1 * 0.9 + 0.9 * 0.05)
