import logging
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairsift.encode.encoder import digest
from pairsift.encode.registry import TEXT_ENCODERS, text_encoder
from pairsift.encode.splitters import split_words
from pairsift.encode.vocabularies import SPECIAL, IdsEncoder, Vocabulary, read_numbering
from pairsift.errors import InputError

ODD = ["", "   ", "\n", "\0", "\ud800", "🐕", "狗在草地上奔跑", "a" * 5000, "word " * 3000, "dog's", "\u200b", "<s>"]


@pytest.fixture(scope="module")
def pooled():
    return text_encoder("wordllama")


@pytest.fixture(scope="module")
def tokens():
    return text_encoder("wordllama", tokens=True)


def test_wordllama_is_what_the_package_computes(pooled):
    captions = ["A dog runs.", "Two children in red coats play with snow in front of a house", "x"]
    import wordllama

    folder = __import__("pathlib").Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    np.testing.assert_allclose(pooled.encode(captions), model.embed(captions), rtol=1e-4, atol=1e-5)
    assert pooled.dim == 256


def test_wordllama_tokens_average_to_the_vector(pooled, tokens):
    captions = ["A dog runs.", "Two children in red coats", "x"]
    rows = tokens.encode(captions)
    assert len({len(row) for row in rows}) == 3  # no padding to the longest
    np.testing.assert_allclose([row.mean(0) for row in rows], pooled.encode(captions), atol=1e-5)
    assert pooled.key() != tokens.key()


def test_odd_captions_never_break(pooled, tokens):
    vectors, rows = pooled.encode(ODD), tokens.encode(ODD)
    assert vectors.shape == (len(ODD), 256)
    assert np.isfinite(vectors).all()
    assert not vectors[0].any()
    assert all(row.shape[1:] == (256,) and 1 <= len(row) <= 512 and np.isfinite(row).all() for row in rows)
    words = IdsEncoder(Vocabulary.build(ODD, 1)).encode(ODD)
    assert all(2 <= len(row) <= 512 for row in words)


@pytest.mark.slow
def test_importing_wordllama_leaves_logging_alone():
    code = """
import logging
root = logging.getLogger()
before = root.level, list(root.handlers)
from pairsift.encode.registry import text_encoder
text_encoder("wordllama")
assert (root.level, list(root.handlers)) == before, (root.level, root.handlers)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert isinstance(logging.getLogger().level, int)


def test_split_words():
    assert split_words("A dog's t-shirt, isn't red.") == ["a", "dog", "'s", "t-shirt", ",", "isn", "'t", "red", "."]


def test_vocabulary_counts_and_numbers():
    built = Vocabulary.build(["a dog", "a cat", "a dog", "the dog"], minimum=2)
    assert list(built.numbers) == [*SPECIAL, "a", "dog"]
    assert len(built) == 6
    assert built.ids("The DOG a").tolist() == [1, 3, 5, 4, 2]
    assert list(Vocabulary.build(["a a a"]).numbers) == list(SPECIAL)  # three is fewer than four


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=8), st.integers(1, 3))
def test_vocabulary_round_trip(captions, minimum):
    built = Vocabulary.build(captions, minimum)
    again = read_numbering(built.to_json())
    assert again == built
    for caption in captions:
        ids = again.ids(caption)
        assert ids.tolist() == built.ids(caption).tolist()
        assert (ids[0], ids[-1]) == (1, 2)
        assert ids.min() > 0
        assert ids.max() < len(built)
    assert IdsEncoder(again).key() == IdsEncoder(built).key()
    every = Vocabulary.build(captions, 1)
    named = {number: word for word, number in every.numbers.items()}
    for caption in captions:
        assert [named[at] for at in every.ids(caption)[1:-1]] == split_words(caption)


def test_unknown_and_incomplete_say_what_to_do():
    with pytest.raises(InputError) as caught:
        text_encoder("gpt")
    assert all(name in str(caught.value) for name in TEXT_ENCODERS)
    with pytest.raises(InputError, match="vocabulary"):
        text_encoder("words")
    encoder = text_encoder("words", vocabulary=Vocabulary.build(["dog"], 1))
    assert (encoder.kind, encoder.dim) == ("ids", 1)
    assert encoder.key() != IdsEncoder(Vocabulary.build(["cat"], 1)).key()


def test_the_parts_of_a_digest_are_told_apart():
    assert digest(["a\0bbb", "c"]) != digest(["a", "bbb\0c"])
