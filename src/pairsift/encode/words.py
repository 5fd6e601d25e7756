"""A vocabulary built from the captions themselves, for matchers that learn their own word vectors."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pairsift.encode.encoder import MAX_TOKENS, Array, digest, readable
from pairsift.errors import InputError

SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")
PAD, START, END, UNKNOWN = range(4)
_WORD = re.compile(r"\w+(?:-\w+)*|['’]\w+|[^\w\s]")


def split_words(caption: str) -> list[str]:
    """Lower-cased words and punctuation marks; what follows an apostrophe is a word of its own (`dog`, `'s`)."""
    return _WORD.findall(caption.lower())


@dataclass(frozen=True)
class Vocabulary:
    """Words and their ids: 0 padding, 1 start, 2 end, 3 unknown, then `words` from 4 on.

    Attributes:
        words: Known words without the four special ones, most frequent first.
    """

    words: tuple[str, ...]

    @classmethod
    def build(cls, captions: Iterable[str], minimum: int = 4) -> Vocabulary:
        """Keep the words that occur at least `minimum` times; ties in frequency are ordered by spelling."""
        counts = Counter(word for caption in captions for word in split_words(caption))
        kept = [word for word, count in counts.items() if count >= minimum]
        return cls(tuple(sorted(kept, key=lambda word: (-counts[word], word))))

    def __len__(self) -> int:
        """Number of ids, the four special ones included."""
        return len(SPECIAL) + len(self.words)

    def ids(self, caption: str) -> NDArray[np.int32]:
        """Ids of start, the caption's words and end, (length,), at least 2 and at most 512 long."""
        found = [self._id_of.get(word, UNKNOWN) for word in split_words(caption)[: MAX_TOKENS - 2]]
        return np.array([START, *found, END], np.int32)

    def to_json(self) -> str:
        """This vocabulary as JSON."""
        return json.dumps({"special": SPECIAL, "words": self.words})

    @classmethod
    def from_json(cls, text: str) -> Vocabulary:
        """The reverse of `to_json`.

        Raises:
            InputError: The text is not a vocabulary.
        """
        try:
            raw = json.loads(text)
            words = raw["words"]
            good = raw["special"] == list(SPECIAL) and all(isinstance(word, str) for word in words)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"this is not a vocabulary written by pairsift ({error}); build it again") from error
        if not good or not isinstance(words, list) or len(set(words)) != len(words):
            raise InputError("this is not a vocabulary written by pairsift (odd or double words); build it again")
        return cls(tuple(words))

    @cached_property
    def _id_of(self) -> dict[str, int]:
        return {word: at for at, word in enumerate(self.words, len(SPECIAL))}


class WordsEncoder:
    """Captions as the ids of their words.

    Args:
        vocabulary: The known words.
    """

    name = "words"
    dim = 1
    kind: Literal["vector", "tokens", "ids"] = "ids"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def key(self) -> str:
        """Hexadecimal digest over the vocabulary and how words are split."""
        return digest(["words", _WORD.pattern, str(MAX_TOKENS), *self.vocabulary.words])

    def encode(self, captions: list[str]) -> list[Array]:
        """Number the captions' words, -> a list of n int32 arrays (length,), length at least 2."""
        return [self.vocabulary.ids(caption) for caption in readable(captions)]
