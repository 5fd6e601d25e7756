"""Noise of wrong details: one word of a caption, exchanged for another that its image does not have."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pair_sources import plain_pairs
from pairsift.errors import InputError
from pairsift.noise.edits import EXCHANGES, plant_edit
from pairsift.noise.planted import plant_noise
from pairsift.pairs.changes import merge, read_stored_pairs, write_stored_pairs
from pairsift.pairs.readers import load

# Words that can both be right about one picture: the first is a synonym of the second, or a kind of it, or beside it.
COMPATIBLE = """
dog puppy, boy child, boy kid, man person, man guy, woman lady, woman girl, man boy, bike bicycle, motorcycle
motorbike, gray grey, running jogging, sitting seated, couch sofa, car vehicle, boat ship, canoe kayak, street
road, coat jacket, football soccer, frisbee disc, rabbit bunny, pig hog, small little, large big, sleeping lying,
climbing hiking, motorcycle scooter, two couple, forest woods, duck bird, cow bull, baby child, tan brown, shirt
shorts, hat sunglasses, snow ice, sand beach
"""
CAPTIONS = [
    "A black dog runs on a beach",
    "an ORANGE cat, two balls and a red ball.",
    "Two boys play soccer in a street",
    "Nothing that can be exchanged",
    "Blue circle above a yellow square",
]


def words(text):
    return re.findall(r"[^\W\d_]+", text.lower())


def pairs_of(captions, per_image=1):
    n = len(captions)
    pairs = plain_pairs([per_image] * (n // per_image))
    return replace(pairs, captions=[*captions, *pairs.captions[n:]])


@pytest.mark.parametrize("pair", [tuple(pair.split()) for pair in COMPATIBLE.replace("\n", " ").split(",")])
def test_no_word_is_exchanged_for_one_that_may_be_right_too(pair):
    assert pair[1] not in EXCHANGES.get(pair[0], ()) and pair[0] not in EXCHANGES.get(pair[1], ())


def test_exchanges_go_both_ways_and_never_to_the_word_itself():
    assert len(EXCHANGES) > 150
    for word, others in EXCHANGES.items():
        assert word not in others and all(word in EXCHANGES[other] for other in others) and word == word.lower()


@given(
    captions=st.lists(st.sampled_from(CAPTIONS), min_size=4, max_size=24),
    per_image=st.integers(1, 3),
    ratio=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None)
def test_one_word_differs_and_the_image_has_not_got_it(captions, per_image, ratio, seed):
    captions = captions[: len(captions) - len(captions) % per_image]
    pairs = pairs_of(captions, per_image)
    try:
        noisy = plant_edit(pairs, ratio, seed)
    except InputError as error:
        assert "no training caption has a word" in str(error)
        return
    edited = np.flatnonzero(noisy.mismatched())
    assert len(edited) <= round(ratio * len(captions)) and noisy.noise.rate == len(edited) / max(1, len(captions))
    assert noisy.image_of.tolist() == pairs.image_of.tolist() and noisy.hash() == pairs.hash()
    for pair in range(len(pairs)):
        if pair not in edited:
            assert noisy.captions[pair] == pairs.captions[pair] and noisy.true_image_of[pair] == pairs.image_of[pair]
            continue
        before, after = words(pairs.captions[pair]), words(noisy.captions[pair])
        changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b and {a, b} != {"a", "an"}]
        assert len(changed) == 1 and changed[0][1] in EXCHANGES[changed[0][0]]
        siblings = [p for p in range(len(captions)) if pairs.image_of[p] == pairs.image_of[pair]]
        assert not any(changed[0][1] in words(pairs.captions[p]) for p in siblings)
        assert any(changed[0][1] in words(caption) for caption in captions)  # a word of the collection
        assert noisy.true_image_of[pair] == -1


def test_articles_and_capitals_fit_the_new_word():
    texts = ["An elephant eats", "A Tiger eats", "one ELEPHANT, a TIGER"]
    captions = set()
    for seed in range(20):
        captions |= set(plant_edit(pairs_of(texts), 1.0, seed).captions[:3])
    assert {"A tiger eats", "An Elephant eats", "one TIGER, a TIGER"} & captions == {"A tiger eats", "An Elephant eats"}
    # Its own caption has the other animal already, so that there is nothing to exchange.
    assert "one ELEPHANT, a TIGER" in captions


def test_a_word_of_similar_count_is_taken():
    texts = ["a dog"] * 100 + ["a cat"] * 60 + ["a horse"] * 5 + ["a sheep"]
    noisy = plant_edit(pairs_of(texts), 0.5, 0)
    new = {b: set() for b in ("dog", "cat", "horse", "sheep")}
    for before, after in zip(texts, noisy.captions, strict=False):
        if before != after:
            new[before.split()[1]].add(after.split()[1])
    assert new["dog"] == {"cat"} and new["cat"] == {"dog"} and new["horse"] <= {"sheep"} and new["sheep"] <= {"horse"}


def test_the_same_seed_gives_the_same_captions():
    pairs = pairs_of(CAPTIONS * 20)
    one, same, other = (plant_edit(pairs, 0.4, seed) for seed in (1, 1, 2))
    assert one.captions == same.captions and one.noise == same.noise and one.captions != other.captions
    assert one.noise.kind == "edit" and one.source_captions == pairs.captions


def test_what_cannot_be_planted_is_said():
    with pytest.raises(InputError, match=r"no training caption has a word .* English"):
        plant_edit(pairs_of(["ein schwarzer Hund", "zwei rote Kreise"]), 0.5, 0)
    with pytest.raises(InputError):
        plant_edit(plant_noise(pairs_of(CAPTIONS), 0.5, 0), 0.5, 0)


def test_a_changed_source_keeps_the_wrong_details(tmp_path):
    lines = [f"{n}.jpg,{CAPTIONS[n % 3]!r}" for n in range(30)]
    for n in range(31):
        (tmp_path / f"{n}.jpg").write_bytes(b"not read")
    (tmp_path / "mine.csv").write_text("\n".join(["image,caption", *lines]))
    pairs = plant_edit(load(tmp_path / "mine.csv"), 0.5, 3)
    write_stored_pairs(pairs, pairs.split, tmp_path / "source.parquet")
    (tmp_path / "mine.csv").write_text("\n".join(["image,caption", *lines, "30.jpg,a new one"]))
    again, _ = merge(read_stored_pairs(tmp_path / "source.parquet"), load(tmp_path / "mine.csv"))
    assert again.captions[:30] == pairs.captions[:30]
    assert np.flatnonzero(again.mismatched()).tolist() == np.flatnonzero(pairs.mismatched()).tolist()
