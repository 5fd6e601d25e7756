"""The splitters, which cut a caption into words."""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from pairsift.errors import InputError

Split = Callable[[str], list[str]]

_WORD = re.compile(r"\w+(?:-\w+)*|['’]\w+|[^\w\s]")
_ABBREVIATIONS = (
    *("mr", "mrs", "ms", "dr", "st", "jr", "sr", "prof", "gen", "col", "lt", "maj", "sgt", "capt", "gov", "sen"),
    *("rep", "rev", "vs", "etc", "inc", "co", "corp", "ltd", "mt", "ave", "blvd"),
    *("u.s", "u.k", "u.s.a", "a.m", "p.m", "e.g", "i.e", "d.c", "n.y", "l.a"),
)
_RULES = "treebank 1"  # must change whenever the results of `ends_sentence` change


@dataclass(frozen=True)
class Splitter:
    """A method to cut captions into words.

    Attributes:
        split: Function from a caption to its words, in lower case and without spaces.
        version: Text that changes if the result for the same caption may change.
    """

    split: Split
    version: str


def splitter(name: str) -> Splitter:
    """Return a splitter by name.

    Args:
        name: `plain` for runs of letters and digits and single punctuation marks; `treebank` for the Penn Treebank's
            rules by nltk, which published vocabularies were built with; `jieba` for Chinese.

    Raises:
        InputError: The name is unknown, or its package is missing.
    """
    if name == "plain":
        return Splitter(split_words, _WORD.pattern)
    if name == "treebank":
        return _treebank()
    if name == "jieba":
        return _jieba()
    raise InputError(f"there is no splitter {name!r}; choose from plain, treebank, jieba")


def split_words(caption: str) -> list[str]:
    """Return the words and punctuation marks in lower case.

    An apostrophe starts a new word (`dog`, `'s`).
    """
    return _WORD.findall(caption.lower())


def ends_sentence(word: str) -> bool:
    """Return whether a word with a full stop ends its sentence: no abbreviation, initial, number or ellipsis does.

    The Treebank's rules separate a full stop only at the end of a sentence. nltk detects the ends with a trained model
    that is not part of its package. On ordinary captions in lower case, this function decides as that model does.
    """
    bare = word.rstrip("\"')]}”’").lstrip("\"'([{“‘")
    core = bare.removesuffix(".")
    if core == bare or core.endswith("."):
        return False
    return not (core in _ABBREVIATIONS or (len(core) == 1 and core.isalpha()) or re.fullmatch(r"[\d.,]+", core))


def sentences(caption: str) -> list[str]:
    """Return the sentences of a caption in lower case, with words separated by single spaces."""
    parts: list[list[str]] = [[]]
    for word in caption.split():
        parts[-1].append(word)
        if ends_sentence(word):
            parts.append([])
    return [" ".join(words) for words in parts if words]


@cache
def _treebank() -> Splitter:
    nltk = _package("nltk", "treebank")
    cut: Split = importlib.import_module("nltk.tokenize").NLTKWordTokenizer().tokenize
    return Splitter(
        lambda caption: [word for sentence in sentences(caption.lower()) for word in cut(sentence)],
        f"{_RULES} nltk {nltk.__version__}",
    )


@cache
def _jieba() -> Splitter:
    jieba: Any = _package("jieba", "jieba")
    jieba.setLogLevel(logging.WARNING)
    cutter = jieba.Tokenizer()
    return Splitter(
        lambda caption: [word for word in cutter.lcut(caption.lower()) if word.strip()], f"jieba {jieba.__version__}"
    )


def _package(name: str, kind: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"the splitter {kind} needs the package {name}: pip install 'pairsift[text]', or take --splitter plain"
        ) from error
