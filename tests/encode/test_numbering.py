"""Token ids: by a published vocabulary, by byte pairs, as given; and splitters against what their packages do."""

import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsift.encode import splitters as module
from pairsift.encode.registry import text_encoder
from pairsift.encode.splitters import splitter
from pairsift.encode.vocabularies import BytePairs, GivenIds, IdsEncoder, Vocabulary, read_numbering
from pairsift.errors import InputError

SCAN = {
    "word2idx": {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "zebra": 4, "a": 5, "n't": 6, ".": 7, "is": 9},
    "idx2word": {"0": "<pad>"},
    "idx": 10,
}


def test_a_scan_vocabulary_keeps_its_ids():
    vocabulary = read_numbering(json.dumps(SCAN))
    assert isinstance(vocabulary, Vocabulary) and vocabulary.splitter == "treebank"
    assert len(vocabulary) == 10  # id 8 is free
    assert vocabulary.ids("A Zebra isn't red.").tolist() == [1, 5, 4, 9, 6, 3, 7, 2]
    again = read_numbering(vocabulary.to_json())
    assert again == vocabulary and again.key() == vocabulary.key()
    odd = {"<start>": 7, "<end>": 0, "<unk>": 2, "b": 1}  # the file decides, even so
    assert Vocabulary.from_scan({"word2idx": odd, "splitter": "plain"}).ids("b c").tolist() == [7, 1, 2, 0]


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ([], "no mapping"),
        ({"a": "1"}, "no mapping"),
        ({"a": True}, "no mapping"),
        ({"a": -1}, "no mapping"),
        ({**SCAN["word2idx"], "b": 4}, "one id to several"),
        ({"<start>": 1, "<end>": 2}, "no <unk>"),
    ],
)
def test_what_is_no_scan_vocabulary_is_refused(numbers, says):
    with pytest.raises(InputError, match=says):
        read_numbering(json.dumps({"word2idx": numbers}))


@pytest.mark.parametrize(
    "text",
    ["", "[]", "nonsense", '{"model": 3}', '{"ids": "x"}', '{"ids": 3, "start": "x"}', "{}", '{"words": []}'],
)
def test_what_is_no_vocabulary_is_refused(text):
    with pytest.raises(InputError, match="this is n"):
        read_numbering(text)


# By hand from the Treebank's rules; the first two are nltk's own examples for word_tokenize, lower-cased.
TREEBANK = {
    "Good muffins cost $3.88\nin New York.  Please buy me\ntwo of them.\n\nThanks.": (
        "good muffins cost $ 3.88 in new york . please buy me two of them . thanks ."
    ),
    "At eight o'clock on Thursday morning Arthur didn't feel very good.": (
        "at eight o'clock on thursday morning arthur did n't feel very good ."
    ),
    "A dog's t-shirt isn't red.": "a dog 's t-shirt is n't red .",
    "a man can't swim. he cannot run .": "a man ca n't swim . he can not run .",
    "two men (one old), at 5 o'clock": "two men ( one old ) , at 5 o'clock",
    "mr. smith walks dr. jones' dog": "mr. smith walks dr. jones ' dog",
    'A sign says "stop!" -- ok?': "a sign says `` stop ! '' -- ok ?",
    "the u.s. flag, 1,000 feet high...": "the u.s. flag , 1,000 feet high ...",
    "he waits... then goes": "he waits ... then goes",
    "": "",
}


@pytest.mark.parametrize(("caption", "words"), TREEBANK.items())
def test_treebank(caption, words):
    assert splitter("treebank").split(caption) == words.split()


def test_treebank_is_nltk_on_single_sentences():
    from nltk.tokenize import NLTKWordTokenizer

    for caption in ("two dogs, one brown & one black, can't stop", "it's a boy's 3-wheeled bike; he'll ride @ 5:30"):
        assert splitter("treebank").split(caption) == NLTKWordTokenizer().tokenize(caption)


def test_jieba_cuts_chinese_and_leaves_words_whole():
    assert splitter("jieba").split("狗在草地上奔跑, A dog 2024") == [
        "狗",
        "在",
        "草地",
        "上",
        "奔跑",
        ",",
        "a",
        "dog",
        "2024",
    ]
    built = Vocabulary.build(["狗在草地上", "狗奔跑"], 2, "jieba")
    assert list(built.numbers)[4:] == ["狗"]
    again = read_numbering(built.to_json())
    assert again.ids("奔跑的狗").tolist()[-2:] == [4, 2] and again.key() != Vocabulary.build(["狗"], 1).key()


def test_a_missing_package_is_named(monkeypatch):
    for name, package in (("treebank", "nltk"), ("jieba", "jieba")):
        module._treebank.cache_clear()
        module._jieba.cache_clear()
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(InputError, match=rf"needs the package {package}: pip install 'pairsift\[text\]'"):
            splitter(name)
    with pytest.raises(InputError, match="no splitter 'x'"):
        splitter("x")


CAPTIONS = ["A dog runs", "two dogs run", "a dog and a cat", "狗在草地上奔跑"] * 5


def test_byte_pairs_learn_frequent_words_and_forget_nothing():
    pairs = BytePairs.build(CAPTIONS, 300)
    assert 260 < len(pairs) <= 300 and pairs.name == "bpe"
    start, *dog, end = pairs.ids("dog").tolist()
    assert (start, end, len(dog)) == (1, 2, 1)
    assert pairs.ids("DOG").tolist() == pairs.ids("dog").tolist()
    assert 3 not in pairs.ids("zebra 🐕 \ufffd").tolist()  # every byte has an id
    assert pairs.ids("").tolist() == [1, 2]
    assert len(pairs.ids("zq " * 900)) == 512
    assert not {0, 1, 2, 3} & set(pairs.ids("<pad><start> <end> <unk>").tolist()[1:-1])


def test_byte_pairs_come_back_from_their_json():
    pairs = BytePairs.build(CAPTIONS, 300)
    again = read_numbering(pairs.to_json())
    assert isinstance(again, BytePairs) and again.key() == pairs.key() == BytePairs.build(CAPTIONS, 300).key()
    for caption in (*CAPTIONS, "zebra <end>"):
        assert again.ids(caption).tolist() == pairs.ids(caption).tolist()
    assert BytePairs.build(CAPTIONS, 280).key() != pairs.key()
    with pytest.raises(InputError, match="at least 260"):
        BytePairs.build(CAPTIONS, 259)


@given(st.text(max_size=40))
def test_byte_pairs_take_any_text(caption):
    ids = IdsEncoder(BytePairs.build(CAPTIONS, 261)).encode([caption])[0]
    assert ids.dtype == np.int32 and len(ids) >= 2 and ids.max() < 261


def test_given_ids():
    plain = GivenIds.from_captions(["5 7", "", "12, 3"])
    assert plain == GivenIds(13) and len(plain) == 13
    assert plain.ids("12,3 , 5").tolist() == [12, 3, 5]
    assert plain.ids("").tolist() == [0]
    assert read_numbering(plain.to_json()) == plain
    for bad, says in (
        ("a dog", "'a' is no token id"),
        ("-3", "no token id"),
        ("13", "13 is unknown"),
        ("1" * 99, "…'"),
    ):
        with pytest.raises(InputError, match=says):
            plain.ids(bad)
    ended = GivenIds.from_captions(["5 7"], read_numbering(json.dumps(SCAN)))
    assert ended == GivenIds(10, 1, 2) and ended.ids("5").tolist() == [1, 5, 2]
    assert read_numbering(ended.to_json()) == ended and ended.key() != plain.key()
    assert len(ended.ids("1 " * 600)) == 512


def test_an_encoder_takes_its_own_kind_of_vocabulary():
    for vocabulary in (Vocabulary(("dog",)), BytePairs.build(CAPTIONS, 270), GivenIds(5)):
        encoder = text_encoder(vocabulary.name, vocabulary=vocabulary)
        assert (encoder.name, encoder.kind, encoder.dim) == (vocabulary.name, "ids", 1)
        for other in {"words", "bpe", "ids"} - {vocabulary.name}:
            with pytest.raises(InputError, match=f"needs a vocabulary of {other}, not of {vocabulary.name}"):
                text_encoder(other, vocabulary=vocabulary)
