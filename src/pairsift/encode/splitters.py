"""Ways to cut a caption into words."""

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
_RULES = "treebank 1"  # changes whenever `ends_sentence` decides otherwise


@dataclass(frozen=True)
class Splitter:
    """A way to cut captions.

    Attributes:
        split: Makes words of a caption, lower-cased and without blanks.
        version: Changes where the same caption may come out otherwise.
    """

    split: Split
    version: str


def splitter(name: str) -> Splitter:
    """A splitter by name.

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
    """Lower-cased words and punctuation marks; what follows an apostrophe is a word of its own (`dog`, `'s`)."""
    return _WORD.findall(caption.lower())


def ends_sentence(word: str) -> bool:
    """Whether a word with a full stop ends its sentence: no abbreviation, initial, number or ellipsis does.

    The Treebank's rules split a full stop off at the end of a sentence only. nltk finds the ends with a trained model
    that is not part of its package; this decides as that model does on ordinary lower-cased captions.
    """
    bare = word.rstrip("\"')]}”’").lstrip("\"'([{“‘")
    core = bare.removesuffix(".")
    if core == bare or core.endswith("."):
        return False
    return not (core in _ABBREVIATIONS or (len(core) == 1 and core.isalpha()) or re.fullmatch(r"[\d.,]+", core))


def sentences(caption: str) -> list[str]:
    """The sentences of a lower-cased caption, words set apart by single blanks."""
    found: list[list[str]] = [[]]
    for word in caption.split():
        found[-1].append(word)
        if ends_sentence(word):
            found.append([])
    return [" ".join(words) for words in found if words]


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


def _package(name: str, wanted: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"the splitter {wanted} needs the package {name}: pip install 'pairsift[text]', or take --splitter plain"
        ) from error
