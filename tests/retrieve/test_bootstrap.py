"""Intervals of recall against a naive loop that copies every drawn image with its captions."""

from __future__ import annotations

import numpy as np
import pytest

from pairsift.retrieve import Ranks, recall
from pairsift.retrieve.bootstrap import LEVEL, Estimate, draw_images, resampled_recall

SAMPLES = 40


def system(seed, image_of, n_images):
    rng = np.random.default_rng(seed)
    return Ranks(image_of, n_images, *rng.integers(0, 14, (2, len(image_of))))


@pytest.fixture
def image_of():
    """Captions of 9 images, 1 to 4 each, not in the order of the images."""
    rng = np.random.default_rng(5)
    return rng.permutation(np.repeat(np.arange(9), rng.integers(1, 5, 9))).astype(np.int64)


def copied(ranks, image_of, drawn):
    """The ranks of a resample: every image as often as it was drawn, each time with all its captions."""
    images = [image for image, count in enumerate(drawn) for _ in range(count)]
    texts = [(number, text) for number, image in enumerate(images) for text in np.flatnonzero(image_of == image)]
    owner, own = np.array(texts).T
    return Ranks(owner, len(images), ranks.ahead[own], ranks.t2i[own])


def test_every_resample_is_the_recall_of_the_copied_images(image_of):
    systems = [system(seed, image_of, 9) for seed in (1, 2)]
    found = resampled_recall(systems, image_of, SAMPLES, seed=3)
    for place, drawn in enumerate(draw_images(9, SAMPLES, 3)):
        for number, ranks in enumerate(systems):
            expected = recall(copied(ranks, image_of, drawn))
            assert {key: values[number, place] for key, values in found.items()} == pytest.approx(
                {key: expected[key] for key in found}
            )


def test_as_many_images_are_drawn_as_there_are():
    draws = list(draw_images(7, SAMPLES))
    assert all(drawn.sum() == 7 and len(drawn) == 7 for drawn in draws) and len(draws) == SAMPLES
    assert len({tuple(drawn) for drawn in draws}) > SAMPLES / 2
    assert [a.tolist() for a in draws] == [b.tolist() for b in draw_images(7, SAMPLES)]
    assert [a.tolist() for a in draws] != [b.tolist() for b in draw_images(7, SAMPLES, 1)]


def test_captions_of_an_image_are_drawn_together():
    """Two images with 10 captions each, all right or all wrong: no resample has a share between 0, 1/2 and 1."""
    image_of, rank = np.repeat([0, 1], 10), np.repeat([0, 50], 10)
    found = resampled_recall([Ranks(image_of, 2, rank, rank)], image_of, 200)
    assert set(found["t2i_r1"][0]) == {0.0, 50.0, 100.0}
    assert (found["t2i_r1"] == found["i2t_r1"]).all()


def test_copies_of_an_image_are_drawn_together():
    """Four images of two pictures, all right or all wrong: no resample has a share between 0, 1/2 and 1."""
    image_of, rank = np.arange(4), np.array([0, 50, 0, 50])
    ranks = Ranks(image_of, 4, rank, rank)
    found = resampled_recall([ranks], image_of, 200, picture=np.array([0, 1, 0, 1]))
    assert set(found["i2t_r1"][0]) == set(found["t2i_r1"][0]) == {0.0, 50.0, 100.0}
    assert set(resampled_recall([ranks], image_of, 200)["i2t_r1"][0]) > {0.0, 50.0, 100.0}


def test_a_system_does_not_differ_from_itself(image_of):
    ranks = system(1, image_of, 9)
    for values in resampled_recall([ranks, ranks], image_of, SAMPLES).values():
        assert Estimate.make(0.0, values[1] - values[0]) == Estimate(0.0, 0.0, 0.0)


def test_an_interval_holds_its_share_of_the_resamples():
    values = np.random.default_rng(0).permutation(np.arange(2001.0))
    one = Estimate.make(1000.0, values)
    assert (one.low, one.high) == pytest.approx((50, 1950)) and LEVEL == 0.95


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """Images differ in how hard they are, so captions of an image go together; the truth is 50%."""
    rng, held = np.random.default_rng(8), 0
    for trial in range(200):
        chance = rng.choice([0.05, 0.95], 60)
        hit = rng.random((60, 5)) < chance[:, None]
        image_of = np.repeat(np.arange(60), 5)
        ranks = Ranks(image_of, 60, np.zeros(300, np.int64), np.where(hit, 0, 99).ravel())
        one = Estimate.make(0.0, resampled_recall([ranks], image_of, 200, trial)["t2i_r1"][0])
        held += one.low <= 50 <= one.high
    assert 178 <= held <= 198  # drawing captions one by one would hold it about 120 times


def test_an_image_without_captions_is_an_error():
    with pytest.raises(ValueError, match="every image needs a caption"):
        resampled_recall([Ranks(np.array([0]), 2, np.array([0]), np.array([0]))], np.array([0]), 5)
