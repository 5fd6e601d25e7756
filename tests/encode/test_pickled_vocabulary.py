"""Pickled vocabularies: read, by Python 2 too, and nothing of a pickle is run."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pairsift.encode.options import EncodeOptions
from pairsift.encode.vocabularies import read_vocabulary_file
from pairsift.errors import InputError

IDS = {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "a": 4, "dog": 9, "café": 7}
# what Python 2 wrote of an object of `vocab.Vocabulary` with word2idx {'<start>': 1, '<end>': 2, '<unk>': 3, u'dog': 4}
PYTHON2 = (
    b"\x80\x02cvocab\nVocabulary\nq\x00)\x81q\x01}q\x02(U\x03idxq\x03K\x05U\x08word2idxq\x04}q\x05(U\x07<start>q\x06K\x01"
    b"U\x05<end>q\x07K\x02U\x05<unk>q\x08K\x03X\x03\x00\x00\x00dogq\tK\x04uub."
)


class Vocabulary:
    def __init__(self, ids: object = None) -> None:
        self.word2idx, self.idx2word, self.idx = dict(ids or IDS), {}, 10


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def write(path: Path, content: object) -> Path:
    path.write_bytes(pickle.dumps(content, 2))
    return path


def test_a_pickle_is_read_like_the_json(tmp_path):
    found = read_vocabulary_file(write(tmp_path / "f30k_precomp_vocab.pkl", Vocabulary()))
    assert found.ids("a dog xyz café").tolist() == [1, 4, 9, 3, 7, 2] and len(found) == 10


def test_a_pickle_of_python_2_whose_class_is_not_there(tmp_path):
    assert "vocab" not in sys.modules
    (tmp_path / "vocab.pkl").write_bytes(PYTHON2)
    assert read_vocabulary_file(tmp_path / "vocab.pkl").ids("dog cat").tolist() == [1, 4, 3, 2]


@pytest.mark.parametrize("inside", [False, True])
def test_nothing_in_a_pickle_is_run(tmp_path, inside):
    marker, path = tmp_path / "was-run", tmp_path / "evil.pkl"
    evil = Evil(marker)
    held = Vocabulary()
    held.idx2word = {0: evil}
    write(path, held if inside else evil)
    with pytest.raises(InputError, match=r"evil\.pkl: holds posix\.system, which is neither"):
        read_vocabulary_file(path)
    assert not marker.exists()
    pickle.loads(path.read_bytes())  # what it would have done
    assert marker.exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"word2idx": IDS}, "is a pickle without a `word2idx` of words"),
        (Vocabulary({4: 5}), "is a pickle without a `word2idx` of words"),
        (Vocabulary({"dog": 5}), "its `word2idx` has no <start>"),
        (Vocabulary(IDS | {"cat": 9}), "gives one id to several words"),
    ],
)
def test_what_is_no_vocabulary_is_refused_in_one_line(tmp_path, content, says):
    with pytest.raises(InputError, match=says) as refused:
        read_vocabulary_file(write(tmp_path / "vocab.pkl", content))
    assert "vocab.pkl" in str(refused.value) and "\n" not in str(refused.value)


def test_a_damaged_pickle_is_refused(tmp_path):
    (tmp_path / "cut.pkl").write_bytes(PYTHON2[:40])
    with pytest.raises(InputError, match=r"cut\.pkl: is no complete pickle"):
        read_vocabulary_file(tmp_path / "cut.pkl")


def test_a_class_of_that_name_elsewhere_is_not_called(tmp_path, monkeypatch):
    called, module = [], ModuleType("vocab")
    module.Vocabulary = type("Vocabulary", (), {"__init__": lambda self, *_: called.append(1)})
    monkeypatch.setitem(sys.modules, "vocab", module)
    (tmp_path / "vocab.pkl").write_bytes(PYTHON2)
    read_vocabulary_file(tmp_path / "vocab.pkl")
    assert not called and EncodeOptions(vocabulary=str(tmp_path / "vocab.pkl"))
