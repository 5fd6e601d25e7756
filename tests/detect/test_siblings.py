"""Images joined with their other captions."""

import numpy as np
import pytest
import torch
from detect_helpers import OPTIONS, unit

from pairsift.detect.evidence import sibling_encoder

WEIGHT = OPTIONS.siblings.weight
IMAGE_OF = np.array([4, 0, 4, 2, 0, 4, 7, 2])


def drawn(seed=0):
    """Vectors of images and captions, which differ by fold, and probabilities."""
    rng = np.random.default_rng(seed)
    images = [unit(rng.normal(size=(8, 3)))[IMAGE_OF] for _ in range(2)]
    captions = [unit(rng.normal(size=(8, 3))) for _ in range(2)]

    def codes(fold, members):
        return torch.from_numpy(images[fold][members]).float(), torch.from_numpy(captions[fold][members]).float()

    return images, captions, rng.random(8), codes


@pytest.mark.parametrize("members", [[0, 1, 2, 3, 4, 5, 6, 7], [5, 0, 3], [6]])
@pytest.mark.parametrize("fold", [0, 1])
def test_images_match_plain_loops(members, fold):
    images, captions, probability, codes = drawn()
    found, same = sibling_encoder(codes, IMAGE_OF, probability, WEIGHT)(fold, np.array(members))
    for vector, pair in zip(found.numpy(), members, strict=True):
        total = images[fold][pair].copy()
        for other in range(8):
            if other != pair and IMAGE_OF[other] == IMAGE_OF[pair]:
                total += WEIGHT * probability[other] * captions[fold][other]
        assert vector == pytest.approx(unit(total), abs=1e-5)
    assert (same == codes(fold, np.array(members))[1]).all()


def test_a_pair_s_own_caption_and_its_own_probability_do_not_count():
    _, captions, probability, codes = drawn()
    before = sibling_encoder(codes, IMAGE_OF, probability, WEIGHT)(0, np.arange(8))[0]
    captions[0][2], probability[2] = -captions[0][2], 1 - probability[2]
    after = sibling_encoder(codes, IMAGE_OF, probability, WEIGHT)(0, np.arange(8))[0]
    moved = (after - before).abs().amax(1) > 1e-5
    assert moved.tolist() == [True, False, False, False, False, True, False, False]  # its siblings alone


def test_doubted_siblings_and_lone_captions_leave_the_image_as_it_is():
    images, _, probability, codes = drawn()
    silent = sibling_encoder(codes, IMAGE_OF, np.zeros(8), WEIGHT)(0, np.arange(8))[0]
    assert silent.numpy() == pytest.approx(images[0], abs=1e-6)
    lone = sibling_encoder(codes, np.arange(8), probability, WEIGHT)(0, np.arange(8))[0]
    assert lone.numpy() == pytest.approx(images[0], abs=1e-6)
