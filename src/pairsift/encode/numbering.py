"""The conversion of captions to token ids: by a vocabulary of words, by byte pairs, or as the source contains them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pairsift.encode.bytepairs import BytePairs
from pairsift.encode.encoder import MAX_TOKENS, Array, digest, readable
from pairsift.encode.words import Vocabulary
from pairsift.errors import InputError
from pairsift.pairs.readers.precomp import is_id


class Numbering(Protocol):
    """A rule that gives a caption its token ids.

    `to_json` and `read_numbering` store it in the folder of a run and read it again.
    """

    @property
    def name(self) -> str:
        """The name of the text encoder that it belongs to: `words`, `bpe` or `ids`."""
        ...

    def __len__(self) -> int:
        """Return one more than the largest id."""
        ...

    def ids(self, caption: str) -> NDArray[np.int32]:
        """Return the ids of a caption, (length,), at least 1 and at most 512 long."""
        ...

    def key(self) -> str:
        """Return a hexadecimal digest: equal keys mean equal ids."""
        ...

    def to_json(self) -> str:
        """Return this numbering as JSON."""
        ...


@dataclass(frozen=True)
class GivenIds:
    """A numbering for captions that are token ids already, separated by spaces or commas.

    Attributes:
        size: One more than the largest id.
        start: Id before every caption, or None.
        end: Id after every caption, or None.
    """

    size: int
    start: int | None = None
    end: int | None = None

    name: ClassVar[str] = "ids"

    @classmethod
    def from_captions(cls, captions: Iterable[str], vocabulary: Vocabulary | None = None) -> GivenIds:
        """Fit the size to the captions and to the vocabulary of their ids, which also defines start and end.

        Raises:
            InputError: A caption is not a list of ids.
        """
        size = max((max(_numbers(caption), default=0) + 1 for caption in captions), default=1)
        if vocabulary is None:
            return cls(size)
        return cls(max(size, len(vocabulary)), *vocabulary.ends)

    def __len__(self) -> int:
        return self.size

    def ids(self, caption: str) -> NDArray[np.int32]:
        """Return the caption's ids between start and end, (length,), at most 512 long; a single 0 if there are no ids.

        Raises:
            InputError: The caption is not a list of ids below `size`.
        """
        numbers = _numbers(caption)
        if max(numbers, default=0) >= self.size:
            raise InputError(f"token id {max(numbers)} is unknown: ids run from 0 to {self.size - 1}")
        ends = [[] if end is None else [end] for end in (self.start, self.end)]
        return np.array([*ends[0], *numbers[: MAX_TOKENS - 2], *ends[1]] or [0], np.int32)

    def key(self) -> str:
        """Return a hexadecimal digest over the start and the end."""
        return digest(["ids", str(MAX_TOKENS), str(self.start), str(self.end)])

    def to_json(self) -> str:
        """Return this numbering as JSON."""
        return json.dumps({"ids": self.size, "start": self.start, "end": self.end})


class IdsEncoder:
    """A text encoder that returns the token ids of captions.

    Args:
        numbering: The numbering that gives the captions their ids.
    """

    dim = 1
    kind: Literal["vector", "tokens", "ids"] = "ids"

    def __init__(self, numbering: Numbering) -> None:
        self.name, self.numbering = numbering.name, numbering

    def key(self) -> str:
        """Return a hexadecimal digest over the numbering."""
        return self.numbering.key()

    def encode(self, captions: list[str]) -> list[Array]:
        """Convert captions to token ids, -> a list of n int32 arrays (length,), length at least 1."""
        return [self.numbering.ids(caption) for caption in readable(captions)]


def read_numbering(text: str) -> Numbering:
    """Read a numbering from `to_json`, a vocabulary of the SCAN family, or a tokenizer of the package tokenizers.

    A vocabulary of the SCAN family has the key `word2idx`.

    Raises:
        InputError: The text is none of these.
    """
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InputError(f"this is not a vocabulary: it is no JSON ({error})") from error
    if not isinstance(content, dict):
        raise InputError("this is not a vocabulary: it is no JSON object")
    if "word2idx" in content:
        return Vocabulary.from_scan(content)
    if "model" in content:
        return BytePairs.from_json(text)
    if "ids" in content:
        ends = content.get("start"), content.get("end")
        if not isinstance(content["ids"], int) or not all(end is None or isinstance(end, int) for end in ends):
            raise InputError("this is not a vocabulary written by pairsift; build it again")
        return GivenIds(content["ids"], *ends)
    return Vocabulary.from_json(text)


def _numbers(caption: str) -> list[int]:
    words = caption.replace(",", " ").split()
    odd = next((word for word in words if not is_id(word)), None)
    if odd is not None:
        excerpt = odd if len(odd) <= 40 else odd[:39] + "…"
        raise InputError(f"{excerpt!r} is no token id: captions and queries are lists of ids here, such as `17 4 256`")
    return [int(word) for word in words]
