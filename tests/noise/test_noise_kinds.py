"""Noise of near and of vague captions, beside plain loops over all captions."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pair_sources import noise_index, plain_pairs
from pairsift.errors import InputError
from pairsift.noise.kinds import plant_near, plant_vague
from pairsift.noise.planted import plant_noise, read_index
from pairsift.pairs.changes import merge, read_stored_pairs, write_known_pairs, write_stored_pairs
from pairsift.pairs.readers import load

PLANT = {"near": plant_near, "vague": plant_vague}


def encode(captions):
    """Vectors that depend on the text alone, 16 numbers each."""
    return np.array(
        [np.random.default_rng(list(" ".join(text.casefold().split()).encode())).normal(size=16) for text in captions],
        np.float32,
    ).reshape(len(captions), 16)


def same_text(a, b):
    return " ".join(a.casefold().split()) == " ".join(b.casefold().split())


def train_of(pairs):
    return [pair for pair, split in enumerate(pairs.split) if split == "train"]


def nearest_of(pairs, caption):
    """The nearest 1% of a caption in plain loops, over captions that its image lacks."""
    train = train_of(pairs)
    image = pairs.image_of[caption]
    had = [pairs.captions[pair] for pair in train if pairs.image_of[pair] == image]
    vectors = encode([pairs.captions[pair] for pair in train]).astype(np.float64)
    vectors = np.round(2048 * vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    own = vectors[train.index(caption)]
    others = [
        (float(own @ vectors[place]), pair)
        for place, pair in enumerate(train)
        if not any(same_text(pairs.captions[pair], text) for text in had)
    ]
    limit = sorted((similarity for similarity, _ in others), reverse=True)[max(1, round(0.01 * len(train))) - 1]
    return {pair for similarity, pair in others if similarity >= limit}


@pytest.mark.parametrize("counts", [[1] * 400, [5] * 80])
def test_near_captions_change_places_with_their_nearest(counts):
    pairs = plain_pairs(counts)
    noisy = plant_near(pairs, 0.2, 3, encode)
    moved = np.flatnonzero(noisy.mismatched()).tolist()
    assert len(moved) == 80 and noisy.noise.rate == 0.2 and noisy.noise.kind == "near"
    assert noisy.captions == pairs.captions and noisy.hash() == pairs.hash()
    assert sorted(noisy.image_of.tolist()) == sorted(pairs.image_of.tolist())
    near, done = 0, set()
    for caption in moved:
        partners = [
            other
            for other in moved
            if pairs.image_of[other] == noisy.image_of[caption] and noisy.image_of[other] == pairs.image_of[caption]
        ]
        assert partners  # swaps alone where the number is even
        one_way = [other in nearest_of(pairs, caption) or caption in nearest_of(pairs, other) for other in partners]
        near += any(one_way)
        done.add(caption)
    assert near == len(moved)


@given(
    counts=st.lists(st.integers(1, 4), min_size=0, max_size=12),
    words=st.integers(1, 60),
    ratio=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None)
def test_near_noise_never_gives_an_image_a_text_that_it_has(counts, words, ratio, seed):
    pairs = plain_pairs(counts)
    pairs = replace(pairs, captions=[f"{'A' if n % 2 else 'a'}  caption {n % words}" for n in range(len(pairs))])
    noisy = plant_near(pairs, ratio, seed, encode)
    wanted = round(ratio * sum(counts))
    assert noisy.mismatched().sum() <= wanted
    for pair in np.flatnonzero(noisy.mismatched()):
        had = [pairs.captions[other] for other in train_of(pairs) if pairs.image_of[other] == noisy.image_of[pair]]
        assert not any(same_text(pairs.captions[pair], text) for text in had)
    assert sorted(noisy.image_of.tolist()) == sorted(pairs.image_of.tolist())
    assert noisy.split.tolist() == pairs.split.tolist() and noisy.image_of[sum(counts) :].tolist() == (
        pairs.image_of[sum(counts) :].tolist()
    )
    if sum(counts):
        assert noisy.noise.rate == noisy.mismatched().sum() / sum(counts)


@pytest.mark.parametrize("ratio", [0.01, 0.35, 0.37, 0.99, 1.0])
@pytest.mark.parametrize("counts", [[1] * 300, [5] * 60, [1, 2, 3, 4] * 30])
def test_exactly_the_share_is_moved_where_texts_differ(counts, ratio):
    noisy = plant_near(plain_pairs(counts), ratio, 0, encode)
    assert noisy.mismatched().sum() == round(ratio * sum(counts))


def test_a_caption_without_a_near_partner_takes_the_nearest_that_is_free():
    pairs = plain_pairs([1] * 4)
    angles = dict(zip(pairs.captions, np.radians([0, 1, 3, 40, 0, 0, 0, 0]), strict=True))

    def on_a_circle(captions):
        return np.array([[np.cos(angles[text]), np.sin(angles[text])] for text in captions])

    pointers = {tuple(plant_near(pairs, 1.0, seed, on_a_circle).image_of[:4].tolist()) for seed in range(20)}
    # caption 3 has caption 2 for its nearest; where 2 is taken, two of the others remain for each other
    assert pointers <= {(1, 0, 3, 2), (2, 3, 0, 1), (3, 2, 1, 0)} and (1, 0, 3, 2) in pointers


def test_the_last_of_an_odd_number_joins_a_circle():
    noisy = plant_near(plain_pairs([1] * 3), 1.0, 0, encode)
    assert sorted(noisy.image_of[:3].tolist()) == [0, 1, 2] and noisy.mismatched()[:3].all()


def test_one_image_or_one_text_leaves_nothing_to_move():
    assert not plant_near(plain_pairs([6]), 1.0, 0, encode).mismatched().any()
    same = replace(plain_pairs([1] * 6), captions=["the same"] * 10)
    assert plant_near(same, 1.0, 0, encode).noise.rate == 0


@pytest.mark.parametrize("kind", PLANT)
def test_noise_follows_from_the_seed_alone(kind):
    pairs = plain_pairs([2] * 100)
    noisy, again, other = (PLANT[kind](pairs, 0.4, seed, encode) for seed in (1, 1, 2))
    assert again.noise == noisy.noise and again.captions == noisy.captions
    assert again.image_of.tolist() == noisy.image_of.tolist()
    assert other.noise.index_hash != noisy.noise.index_hash
    assert (other.mismatched() != noisy.mismatched()).any()
    shuffled = PLANT[kind](pairs, 0.4, 1, lambda texts: encode(texts) * 3)  # lengths do not count
    assert shuffled.noise == noisy.noise


def test_random_noise_is_what_it_was():
    hashes = {"caption": "8bdee33f7a2170bb", "image": "9e0fc93a21643ce5"}
    for granularity, digest in hashes.items():
        noise = plant_noise(plain_pairs([3, 1, 2] * 4), 0.5, 7, granularity).noise
        assert (noise.index_hash, noise.kind) == (digest, "random")


def test_vague_captions_are_few_short_and_central():
    pairs = plain_pairs([2] * 100)
    long = [f"{text} with {'many ' * 5}words" for text in pairs.captions]
    short = {pair: f"c {pair}" for pair in range(0, 60, 3)}
    pairs = replace(pairs, captions=[short.get(pair, text) for pair, text in enumerate(long)])
    noisy = plant_vague(pairs, 0.5, 1, encode)
    vectors = encode(pairs.captions[:200]).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    means = {pairs.captions[pair]: float(np.mean([vectors[pair] @ other for other in vectors])) for pair in short}
    best = sorted(means, key=means.get, reverse=True)[:10]
    given = Counter(noisy.captions[pair] for pair in np.flatnonzero(noisy.mismatched()))
    assert set(given) == set(best) and given.total() == 100 == 200 * noisy.noise.rate
    assert min(given.values()) >= 3
    for pair, caption in enumerate(noisy.captions):
        assert noisy.mismatched()[pair] == (caption != pairs.captions[pair])
        assert noisy.true_image_of[pair] == (-1 if noisy.mismatched()[pair] else pairs.image_of[pair])
        assert not noisy.mismatched()[pair] or pairs.captions[pair] not in best
    assert noisy.image_of.tolist() == pairs.image_of.tolist() == noisy.source_image_of.tolist()
    assert noisy.source_captions == pairs.captions and noisy.hash() == pairs.hash()
    assert noisy.noise.kind == "vague" and not noisy.mismatched()[200:].any()


def test_everything_but_the_vague_captions_can_be_replaced():
    noisy = plant_vague(plain_pairs([1] * 100), 1.0, 0, encode)
    assert noisy.mismatched().sum() == 90
    assert plant_vague(plain_pairs([]), 1.0, 0, encode).noise.rate == 0


@pytest.mark.parametrize("kind", PLANT)
def test_noise_is_planted_once(kind):
    pairs = plain_pairs([2, 2])
    with pytest.raises(InputError, match="already"):
        PLANT[kind](plant_noise(pairs, 0.5, 0), 0.5, 0, encode)


def test_an_index_file_holds_near_noise(tmp_path):
    pairs = plain_pairs([3, 1, 2] * 20)
    noisy = plant_near(pairs, 0.5, 7, encode)
    np.save(tmp_path / "index.npy", noise_index(noisy))
    back = read_index(pairs, tmp_path / "index.npy")
    assert back.image_of.tolist() == noisy.image_of.tolist()
    assert (back.noise.index_hash, back.noise.kind) == (noisy.noise.index_hash, "index")


@pytest.fixture(params=PLANT)
def made(request, tmp_path):
    """A source of 40 images with three captions each, its noisy pairs, and what a run stores of them."""
    rows = [(f"{image}.jpg", f"caption {image}{letter}") for image in range(40) for letter in "abc"]
    for name, _ in rows:
        (tmp_path / name).write_bytes(b"x")
    write_source(tmp_path, rows)
    pairs = PLANT[request.param](load(tmp_path / "mine.csv"), 0.5, 3, encode)
    write_stored_pairs(pairs, pairs.split, tmp_path / "source.parquet")
    return pairs, rows, tmp_path


def write_source(folder, rows):
    lines = ["image,caption", *(f"{name},{caption}" for name, caption in rows)]
    (folder / "mine.csv").write_text("\n".join(lines) + "\n")


def same_noise(again, pairs, ids):
    for name in ("image_of", "true_image_of"):
        assert getattr(again, name)[ids].tolist() == getattr(pairs, name)[ids].tolist()
    assert [again.captions[pair] for pair in ids] == [pairs.captions[pair] for pair in ids]
    assert again.mismatched()[ids].tolist() == pairs.mismatched()[ids].tolist()


def test_stored_noise_is_read_again(made):
    pairs, _, folder = made
    stored = read_stored_pairs(folder / "source.parquet")
    again = merge(stored, load(folder / "mine.csv"))[0]
    same_noise(again, pairs, list(range(120)))
    assert again.source_captions == pairs.source_captions and again.hash() == pairs.hash()
    assert stored.captions == load(folder / "mine.csv").captions


def test_noise_stays_where_the_source_changes(made):
    pairs, rows, folder = made
    moved = np.flatnonzero(pairs.mismatched()).tolist()
    edited = moved[0]
    gone = next(pair for pair in moved if rows[pair][0] != rows[edited][0])
    new = [(name, "mended" if pair == edited else caption) for pair, (name, caption) in enumerate(rows) if pair != gone]
    write_source(folder, [*new[::-1], ("3.jpg", "a new caption")])
    stored = read_stored_pairs(folder / "source.parquet")
    again, changes = merge(stored, load(folder / "mine.csv"))
    vague = pairs.noise.kind == "vague"
    assert str(changes) == f"{0 if vague else 1} caption{'s' * vague} changed, 1 row new, 1 gone"
    others = [pair for pair in range(120) if pair not in (edited, gone)]
    same_noise(again, pairs, others)
    assert again.captions[edited] == (pairs.captions[edited] if vague else "mended")
    assert again.mismatched()[edited] and again.split[gone] == "skipped"
    write_known_pairs(again, stored, folder / "known.parquet")
    write_source(folder, rows)
    known = read_stored_pairs(folder / "source.parquet", folder / "known.parquet")
    back, changes = merge(known, load(folder / "mine.csv"))
    same_noise(back, pairs, [*others, edited, gone])
    assert not changes.captions
