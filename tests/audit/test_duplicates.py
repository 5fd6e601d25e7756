"""Copies of images, repeated captions and vague captions."""

import itertools

import numpy as np
import pytest
from PIL import Image
from scipy.stats import binomtest

from pairsift.audit.duplicates import difference_hash, repeated, same_pictures, text_numbers, vague_captions


def picture(seed, size=(200, 150)):
    """A smooth random picture."""
    small = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


def test_the_hash_compares_neighbouring_cells():
    image = picture(3)
    grey = np.asarray(image.convert("L").resize((9, 8), Image.Resampling.BOX)).astype(int)
    bits = [int(grey[y, x + 1] > grey[y, x]) for y, x in itertools.product(range(8), range(8))]
    assert [difference_hash(image) >> (63 - k) & 1 for k in range(64)] == bits


def test_copies_are_found_though_resized_compressed_or_a_little_cropped(tmp_path):
    one, other = picture(1), picture(2)
    files = {
        "a.png": one,
        "b.jpg": one.resize((90, 70)),
        "c.png": one.crop((3, 2, 198, 148)),
        "d.png": other,
        "e.jpg": other.resize((400, 300)),
        "f.png": picture(5),
    }
    for name, image in files.items():
        image.save(tmp_path / name, quality=30)
    (tmp_path / "broken.png").write_bytes(b"no picture")
    paths = [tmp_path / name for name in (*files, "broken.png", "missing.png")]
    group = same_pictures(paths, np.zeros(8, np.int64))  # the vectors of all of them are near
    assert group[0] == group[1] == group[2] and group[3] == group[4]
    assert len(set(group.tolist())) == 5
    apart = same_pictures(paths, np.array([0, 1, 2, 3, 4, 5, 6, 7]))  # and of none
    assert len(set(apart.tolist())) == 8


def test_captions_are_the_same_up_to_case_space_and_punctuation():
    captions = ["A dog.", "a  DOG", "a cat", "😀", "😀 ", "😎", "dog a", "…"]
    numbers = text_numbers(captions)
    assert numbers[0] == numbers[1] and len({numbers[k] for k in (0, 2, 3, 5, 6, 7)}) == 6
    assert len(set(text_numbers(["लड़का", "लड़की", "เด็ก", "เดก"]).tolist())) == 4  # vowel signs count


def test_a_group_is_repeated_if_its_items_differ():
    assert repeated(np.array([4, 4, 2, 2, 7]), np.array([1, 1, 1, 3, 5])).tolist() == [-1, -1, 2, 2, -1]
    assert repeated(np.zeros(0, np.int64), np.zeros(0, np.int64)).tolist() == []


@pytest.mark.parametrize("rate", [0.05, 0.4])
def test_a_caption_is_vague_if_far_more_of_its_pairs_are_flagged_than_chance_flags(rate):
    rng = np.random.default_rng(0)
    text = np.concatenate([np.repeat(np.arange(4), (12, 12, 4, 12)), np.arange(4, 2000)])
    image = np.arange(len(text))
    image[24:28] = [0, 1, 2, 3]
    image[28:40] = 99  # twelve copies of one image
    flagged = rng.random(len(text)) < rate
    flagged[:12] = True
    flagged[12:24] = np.arange(12) < 12 * rate
    flagged[24:40] = True
    found = vague_captions(text, image, flagged)
    chance = binomtest(12, 12, flagged.mean(), alternative="greater").pvalue
    assert chance < 0.001 and found[:12].all() and not found[12:].any()


def test_without_flags_nothing_is_vague():
    assert not vague_captions(np.zeros(50, np.int64), np.arange(50), np.zeros(50, bool)).any()
    assert not vague_captions(np.zeros(50, np.int64), np.arange(50), np.ones(50, bool)).any()  # all are: chance
