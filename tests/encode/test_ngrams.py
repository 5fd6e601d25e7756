"""Fitted n-grams: against scikit-learn's own steps, kept in a file, for odd captions; and encoders side by side."""

import re

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from pairsift.encode.cache import encode_captions
from pairsift.encode.ngrams import BUCKETS, LENGTHS, MAX_FITTED, NgramEncoder
from pairsift.encode.registry import text_encoder, text_parts
from pairsift.errors import InputError
from pairsift.pairs.pairs import Pairs

ODD = ["", "   ", "\n", "\0", "\ud800", "🐕", "狗在草地上奔跑", "a" * 5000, "word " * 3000, "dog's", "\u200b", "<s>"]
COLOURS = ["red", "blue", "green", "gelb", "белый", "أحمر"]
THINGS = ["ball", "house", "Katze", "дерево", "كلب", "椅子", "मेज"]
CAPTIONS = [f"{colour} {thing} {n}" for n, colour in enumerate(COLOURS) for thing in THINGS]


@pytest.fixture(scope="module")
def fitted():
    return NgramEncoder.build(CAPTIONS)


def cosines(vectors):
    vectors = np.asarray(vectors, np.float64)
    return vectors @ vectors.T


def test_vectors_are_those_of_tfidf_and_a_truncated_svd(fitted):
    table = TfidfVectorizer(analyzer="char_wb", ngram_range=LENGTHS, sublinear_tf=True).fit_transform(CAPTIONS)
    made = TruncatedSVD(fitted.dim, algorithm="arpack", random_state=1).fit_transform(table)
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    vectors = fitted.encode(CAPTIONS)
    assert vectors.dtype == np.float32 and vectors.shape == (len(CAPTIONS), fitted.dim)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(cosines(vectors), cosines(made), atol=0.03)  # some n-grams share a bucket


def test_words_that_share_letters_are_near_and_case_and_width_do_not_matter(fitted):
    near, far = cosines(fitted.encode(["белый дерево", "белая деревья", "red ball"]))[0, 1:]
    assert near > 0.5 and far < 0.2
    one, other = fitted.encode(["Red BALL", "ｒｅｄ ball"])
    np.testing.assert_array_equal(one, other)


def test_the_same_captions_make_the_same_encoder_and_others_another(fitted):
    assert NgramEncoder.build(CAPTIONS).key() == fitted.key()
    assert NgramEncoder.build(CAPTIONS[:-1]).key() != fitted.key()


def test_the_file_holds_the_whole_encoder(fitted, tmp_path):
    path = tmp_path / "ngrams.safetensors"
    fitted.save(path)
    again = NgramEncoder.load(path)
    assert again.key() == fitted.key() and again.dim == fitted.dim
    queries = ["a green Katze", "новый дом", *ODD]
    np.testing.assert_array_equal(again.encode(queries), fitted.encode(queries))
    assert path.stat().st_size < BUCKETS * fitted.dim * 2 + 1000
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_file_that_is_missing_or_another_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"^.*none\.safetensors is missing, .*fit again$"):
        NgramEncoder.load(tmp_path / "none.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"no tensors\n" * 9)
    with pytest.raises(InputError, match="holds no fitted n-grams") as caught:
        NgramEncoder.load(tmp_path / "bad.safetensors")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("captions", [[], [""], ["x"], ["same"] * 5, ["one", "two"], ODD])
def test_few_and_odd_captions_never_break(captions):
    encoder = NgramEncoder.build(captions)
    assert 1 <= encoder.dim <= max(1, len(set(captions)))
    vectors = encoder.encode([*ODD, *captions])
    assert vectors.shape == (len(ODD) + len(captions), encoder.dim) and np.isfinite(vectors).all()
    assert not vectors[0].any()
    assert encoder.encode([]).shape == (0, encoder.dim)


def test_of_many_captions_a_sample_is_fitted(monkeypatch):
    monkeypatch.setattr("pairsift.encode.ngrams.MAX_FITTED", 20)
    many = CAPTIONS * 3
    first, second = NgramEncoder.build(many), NgramEncoder.build(many)
    assert first.key() == second.key() and first.dim <= 20 < len(set(many))
    assert MAX_FITTED == 50_000


def test_the_cache_tells_fits_apart(fitted, tmp_path):
    pairs = Pairs("test", ["a"], [tmp_path / "a"], ["red ball"], np.zeros(1, np.int64), np.array(["train"]))
    other = NgramEncoder.build(CAPTIONS[5:])
    values = [encode_captions(pairs, encoder, tmp_path, False).values for encoder in (fitted, other, fitted)]
    np.testing.assert_array_equal(values[0], values[2])
    np.testing.assert_array_equal(values[1], other.encode(["red ball"]))
    assert values[0].shape != values[1].shape or not np.array_equal(values[0], values[1])


def test_joined_vectors_are_both_of_length_1_side_by_side(fitted):
    joined = text_encoder("wordllama+ngrams", ngrams=fitted)
    words = text_encoder("wordllama")
    vectors = joined.encode(["red ball", "белый дерево"])
    assert joined.kind == "vector" and joined.name == "wordllama+ngrams" and joined.dim == 256 + fitted.dim
    left = words.encode(["red ball", "белый дерево"])
    np.testing.assert_allclose(vectors[:, :256], left / np.linalg.norm(left, axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(vectors[:, 256:], fitted.encode(["red ball", "белый дерево"]), rtol=1e-5, atol=1e-7)
    assert joined.key() not in (words.key(), fitted.key())
    assert joined.key() != text_encoder("ngrams+wordllama", ngrams=fitted).key()
    assert not joined.encode([""]).any() and joined.encode([]).shape == (0, joined.dim)


def test_a_plus_in_a_folder_is_no_seam():
    assert text_parts("wordllama") == ["wordllama"]
    assert text_parts("ngrams+hf:/models/c++/x+ngrams") == ["ngrams", "hf:/models/c++/x", "ngrams"]
    assert text_parts("minilm:/m+ngrams") == ["minilm:/m", "ngrams"]


@pytest.mark.parametrize(
    ("spec", "tokens", "says"),
    [
        ("ngrams", False, "must be fitted"),
        ("ngrams", True, "none for its tokens"),
        ("wordllama+ngrams", True, "none for its tokens"),
        (
            "wordllama+words",
            False,
            "`wordllama+words` joins `words`, which encodes no text: give it alone",
        ),
        ("wordllama+gpt", False, "there is no text encoder 'wordllama+gpt'"),
    ],
)
def test_what_cannot_be_had_is_one_line(spec, tokens, says):
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        text_encoder(spec, tokens=tokens)
    assert "\n" not in str(caught.value)
