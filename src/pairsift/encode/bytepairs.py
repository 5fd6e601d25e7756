"""Byte pairs: pieces of words learned from the captions, for any language and without unknown words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from pairsift.encode.encoder import MAX_TOKENS, digest, readable
from pairsift.encode.words import SPECIAL, START
from pairsift.errors import InputError

FEWEST = len(SPECIAL) + 256  # the special ones and every byte


class BytePairs:
    """A byte-level BPE over lower-cased captions; 0 padding, 1 start, 2 end where it was learned here.

    Args:
        tokenizer: It knows `<start>` and `<end>`.

    Raises:
        InputError: It does not.
    """

    name: ClassVar[str] = "bpe"

    def __init__(self, tokenizer: Tokenizer) -> None:
        ends = [tokenizer.token_to_id(word) for word in SPECIAL[START : START + 2]]
        if None in ends:
            raise InputError("this tokenizer has no <start> and <end>; build it with --text-encoder bpe")
        self._start, self._end = ends
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # a caption that spells `<end>` has not ended
        self._tokenizer = tokenizer

    @classmethod
    def build(cls, captions: Iterable[str], size: int = 10_000) -> BytePairs:
        """Learn pieces from captions.

        Args:
            captions: The captions.
            size: Number of ids at most, the four special ones and 256 bytes included.

        Raises:
            InputError: The size has no room for these.
        """
        if size < FEWEST:
            raise InputError(f"bpe_size is {size}: it must be at least {FEWEST}, for every byte and 4 special ids")
        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=list(SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(readable(list(captions)), trainer)
        return cls(tokenizer)

    def __len__(self) -> int:
        """Number of ids."""
        return int(self._tokenizer.get_vocab_size())

    def ids(self, caption: str) -> NDArray[np.int32]:
        """Ids of start, the caption's pieces and end, (length,), at least 2 and at most 512 long."""
        pieces = self._tokenizer.encode(caption, add_special_tokens=False).ids[: MAX_TOKENS - 2]
        return np.array([self._start, *pieces, self._end], np.int32)

    def key(self) -> str:
        """Hexadecimal digest over the pieces."""
        return digest(["bpe", str(MAX_TOKENS), self.to_json()])

    def to_json(self) -> str:
        """The tokenizer as JSON, in the format of the package tokenizers."""
        return str(self._tokenizer.to_str())

    @classmethod
    def from_json(cls, text: str) -> BytePairs:
        """The reverse of `to_json`.

        Raises:
            InputError: The text is no tokenizer.
        """
        try:
            tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the package raises plain exceptions
            raise InputError(f"this is no tokenizer ({' '.join(str(error).split())}); build it again") from error
        return cls(tokenizer)
