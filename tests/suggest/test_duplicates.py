"""Copies of images, repeated captions and vague captions."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.sparse.csgraph import connected_components
from scipy.stats import binomtest

from pairsift.arrays import unit_rows
from pairsift.encode.thumbnails import Thumbnails, cells_of, of_one_colour
from pairsift.suggest import duplicates
from pairsift.suggest.duplicates import repeated, same_pictures, vague_captions, word_numbers


def picture(seed, size=(200, 150)):
    """A smooth random picture."""
    small = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


def thumbnails(images):
    encoder = Thumbnails()
    return cells_of(encoder.encode(torch.stack([encoder.prepare(image) for image in images])).numpy())


def correlation(one, other):
    return np.corrcoef(*thumbnails([one, other]))[0, 1]


def test_a_thumbnail_holds_the_mean_colours_of_cells():
    image = picture(3, (16, 24))
    pixels = np.asarray(image, float).reshape(8, 3, 8, 2, 3)
    assert np.abs(thumbnails([image])[0] - pixels.mean((1, 3)).ravel()).max() <= 1  # cells are whole numbers


def test_resized_and_compressed_copies_are_found_by_their_looks():
    one, other = picture(1), picture(2)
    small, large = one.resize((90, 70)), other.resize((400, 300))
    jpeg = io.BytesIO()
    small.save(jpeg, "JPEG", quality=30)
    images = [one, small, other, Image.open(jpeg), large, picture(5), one]
    group = same_pictures(thumbnails(images), np.arange(7))
    assert group.tolist() == [group[0], group[0], group[2], group[0], group[2], group[5], group[0]]
    assert len(set(group.tolist())) == 3


def test_cropped_copies_are_found_where_their_vectors_are_near():
    one, other = picture(1), picture(2)
    cropped = one.crop((8, 6, 196, 147))
    assert 0.9 <= correlation(one, cropped) < 0.99 and correlation(one, other) < 0.9
    cells = thumbnails([one, cropped, other])
    near = same_pictures(cells, np.zeros(3, np.int64))
    assert near[0] == near[1] != near[2]
    assert len(set(same_pictures(cells, np.arange(3)).tolist())) == 3


def test_pairs_of_looks_are_those_of_all_correlations():
    rng = np.random.default_rng(0)
    cells = rng.uniform(0, 255, (300, 192)).astype(np.float32)
    cells[100:200] = np.clip(cells[:100] + rng.normal(0, 10.5, (100, 192)), 0, 255)  # around the limit
    group = same_pictures(cells, np.arange(300))
    near = np.corrcoef(cells) >= 0.99
    assert 20 < near[:100, 100:200].diagonal().sum() < 80
    assert ((group[:, None] == group) == near).all()


def frames(n, noise, scenes=1, seed=0):
    """Cells of n frames of fixed cameras, (n, 192), and the camera of each, (n,)."""
    rng = np.random.default_rng(seed)
    camera = rng.integers(0, scenes, n)
    cells = rng.uniform(0, 255, (scenes, 192))[camera] + rng.normal(0, noise, (n, 192))
    return cells.astype(np.float32), camera


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 150), st.floats(1, 14), st.integers(1, 5), st.booleans(), st.integers(0, 1000))
def test_groups_are_the_chains_of_all_correlations(n, noise, scenes, near, seed):
    cells, camera = frames(n, noise, scenes, seed)
    group = camera if near else np.arange(n)
    linked = np.corrcoef(np.atleast_2d(cells).astype(float)) >= np.where(group[:, None] == group, 0.9, 0.99)
    chains = connected_components(linked.reshape(n, n), directed=False)[1]
    found = same_pictures(cells, group)
    assert ((found[:, None] == found) == (chains[:, None] == chains)).all()


def test_the_links_of_like_frames_grow_with_their_number_in_small_blocks_too(monkeypatch):
    monkeypatch.setattr(duplicates, "BLOCK", 64)
    for n in (200, 800, 3200):
        cells, camera = frames(n, 3, scenes=4)
        unit = unit_rows(cells - cells.mean(1, keepdims=True))
        assert len(duplicates._links(unit, 0.99)) <= 40 * n
        for group in (np.arange(n), np.zeros(n, np.int64)):
            found = same_pictures(cells, group)
            assert ((found[:, None] == found) == (camera[:, None] == camera)).all()


def test_a_slow_pan_is_one_chain_over_blocks(monkeypatch):
    monkeypatch.setattr(duplicates, "BLOCK", 64)
    rng = np.random.default_rng(0)
    pan = rng.uniform(0, 255, 192) + np.cumsum(rng.normal(0, 2, (1500, 192)), 0)
    assert np.corrcoef(pan[0], pan[-1])[0, 1] < 0.95
    lone = rng.uniform(0, 255, (20, 192))
    found = same_pictures(np.concatenate([pan, lone]).astype(np.float32), np.arange(1520))
    assert len(set(found[:1500].tolist())) == 1 and len(set(found.tolist())) == 21


def test_a_picture_of_one_colour_differs_from_fine_texture_and_small_things():
    texture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (200, 200, 3), np.uint8))
    dot = Image.new("RGB", (200, 200), "white")
    dot.putpixel((20, 30), (0, 0, 0))
    blank = Image.fromarray(np.random.default_rng(0).integers(240, 246, (200, 200, 3), np.uint8))
    encoder = Thumbnails()
    pictures = [texture, dot, picture(1), picture(2), blank, Image.new("RGB", (50, 50), "red")]
    vectors = torch.stack([encoder.prepare(image) for image in pictures]).numpy()
    assert of_one_colour(vectors).tolist() == [False] * 4 + [True] * 2
    assert not of_one_colour(vectors[3:]).any()  # where most pictures are flat, the colour is what they show


def test_flat_pictures_are_copies_only_of_the_same_colour():
    flat = [Image.new("RGB", (50, 50), colour) for colour in ("white", "red", "white", "black")]
    group = same_pictures(thumbnails(flat), np.zeros(4, np.int64))
    assert group[0] == group[2] and len(set(group.tolist())) == 3
    assert same_pictures(np.zeros((0, 192), np.float32), np.zeros(0, np.int64)).shape == (0,)


def test_captions_are_the_same_up_to_case_space_and_punctuation():
    captions = ["A dog.", "a  DOG", "a cat", "😀", "😀 ", "😎", "dog a", "…"]
    numbers = word_numbers(captions)
    assert numbers[0] == numbers[1] and len({numbers[k] for k in (0, 2, 3, 5, 6, 7)}) == 6
    assert len(set(word_numbers(["लड़का", "लड़की", "เด็ก", "เดก"]).tolist())) == 4  # vowel signs count


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
