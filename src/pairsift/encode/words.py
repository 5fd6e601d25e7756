"""The words and their ids, for matchers that learn word vectors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pairsift.encode.encoder import MAX_TOKENS, digest
from pairsift.encode.splitters import splitter
from pairsift.errors import InputError

SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")
PAD, START, END, UNKNOWN = range(4)


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary of words and their ids.

    The ids are 0 padding, 1 start, 2 end, 3 unknown, and `words` from 4 on, unless a file defines other ids.

    Attributes:
        words: Known words without the four special words; most frequent first if they were counted here.
        splitter: Name of the splitter that cuts captions into words: `plain`, `treebank` or `jieba`.
        numbers: Ids of the four special words and then of `words`, as a file defines them; empty for 0, 1, 2 and so on.
    """

    words: tuple[str, ...]
    splitter: str = "plain"
    numbers: tuple[int, ...] = ()

    name: ClassVar[str] = "words"

    @classmethod
    def build(cls, captions: Iterable[str], minimum: int = 4, splitter_name: str = "plain") -> Vocabulary:
        """Build a vocabulary of the words that occur at least `minimum` times.

        Words of equal frequency are ordered by spelling.

        Raises:
            InputError: The splitter is unknown or its package is missing.
        """
        split = splitter(splitter_name).split
        counts = Counter(word for caption in captions for word in split(caption))
        words = [word for word, count in counts.items() if count >= minimum]
        return cls(tuple(sorted(words, key=lambda word: (-counts[word], word))), splitter_name)

    def __len__(self) -> int:
        """Return one more than the largest id."""
        return max(self.numbers) + 1 if self.numbers else len(SPECIAL) + len(self.words)

    @property
    def ends(self) -> tuple[int, int]:
        """The ids of start and end."""
        return (self.numbers[START], self.numbers[END]) if self.numbers else (START, END)

    def ids(self, caption: str) -> NDArray[np.int32]:
        """Return the ids of start, the caption's words and end, (length,), at least 2 and at most 512 long."""
        (start, end), unknown = self.ends, self.numbers[UNKNOWN] if self.numbers else UNKNOWN
        words = splitter(self.splitter).split(caption)[: MAX_TOKENS - 2]
        return np.array([start, *(self._id_of.get(word, unknown) for word in words), end], np.int32)

    def key(self) -> str:
        """Return a hexadecimal digest over the words and the splitter."""
        return digest(["words", splitter(self.splitter).version, str(MAX_TOKENS), self.to_json()])

    def to_json(self) -> str:
        """Return this vocabulary as JSON."""
        return json.dumps({"special": SPECIAL, "words": self.words, "splitter": self.splitter, "numbers": self.numbers})

    @classmethod
    def from_json(cls, text: str) -> Vocabulary:
        """Read what `to_json` returned.

        Raises:
            InputError: The text is not a vocabulary.
        """
        try:
            content = json.loads(text)
            words, splitter_name, numbers = (
                content["words"],
                content.get("splitter", "plain"),
                content.get("numbers", []),
            )
            good = content["special"] == list(SPECIAL) and all(isinstance(word, str) for word in words)
            good = (
                good and isinstance(splitter_name, str) and (not numbers or len(numbers) == len(SPECIAL) + len(words))
            )
            good = good and all(_is_id(number) for number in numbers)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"this is not a vocabulary written by pairsift ({error}); build it again") from error
        if not good or not isinstance(words, list) or len(set(words)) != len(words):
            raise InputError("this is not a vocabulary written by pairsift (odd or double words); build it again")
        return cls(tuple(words), splitter_name, tuple(numbers))

    @classmethod
    def from_scan(cls, raw: dict[str, Any], splitter_name: str = "treebank") -> Vocabulary:
        """Build a vocabulary from the format of SCAN and related methods; the ids stay as they are.

        In this format, `word2idx` maps words to ids.

        Args:
            raw: Content of the JSON file.
            splitter_name: Name of the splitter that cuts captions into words.

        Raises:
            InputError: `word2idx` is not such a mapping, two words share an id, or start, end or unknown are missing.
        """
        numbers = raw.get("word2idx")
        if not isinstance(numbers, dict) or not all(map(_is_id, numbers.values())):
            raise InputError("its `word2idx` is no mapping of words to ids")
        if len(set(numbers.values())) != len(numbers):
            raise InputError("its `word2idx` gives one id to several words")
        if lacking := [word for word in SPECIAL[START:] if word not in numbers]:
            raise InputError(f"its `word2idx` has no {lacking[0]}")
        words = tuple(sorted((word for word in numbers if word not in SPECIAL), key=lambda word: numbers[word]))
        special = (numbers.get(SPECIAL[PAD], PAD), *(numbers[word] for word in SPECIAL[START:]))
        return cls(words, splitter_name, (*special, *(numbers[word] for word in words)))

    @cached_property
    def _id_of(self) -> dict[str, int]:
        numbers = self.numbers[len(SPECIAL) :] or range(len(SPECIAL), len(SPECIAL) + len(self.words))
        return dict(zip(self.words, numbers, strict=True))


def _is_id(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**31
