"""Byte-pair encoding, learned from the captions, for any language and without unknown words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from pairsift.encode.encoder import MAX_TOKENS, digest, readable
from pairsift.encode.words import SPECIAL, START
from pairsift.errors import InputError

MIN_SIZE = len(SPECIAL) + 256  # the special ids and every byte


class BytePairs:
    """A byte-level BPE over lower-cased captions.

    In a tokenizer that was learned here, 0 is padding, 1 is start and 2 is end.

    Args:
        tokenizer: A tokenizer that knows `<start>` and `<end>`.

    Raises:
        InputError: The tokenizer does not know `<start>` or `<end>`.
    """

    name: ClassVar[str] = "bpe"

    def __init__(self, tokenizer: Tokenizer) -> None:
        ends = [tokenizer.token_to_id(word) for word in SPECIAL[START : START + 2]]
        if None in ends:
            raise InputError("this tokenizer has no <start> and <end>; build it with --text-encoder bpe")
        self._start, self._end = ends
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # the text `<end>` in a caption is not the special token
        self._tokenizer = tokenizer

    @classmethod
    def build(cls, captions: Iterable[str], size: int = 10_000) -> BytePairs:
        """Learn byte pairs from captions.

        Args:
            captions: The captions.
            size: Maximum number of ids, including the four special ids and 256 bytes.

        Raises:
            InputError: The size is too small for these ids.
        """
        if size < MIN_SIZE:
            raise InputError(f"bpe_size is {size}: it must be at least {MIN_SIZE}, for every byte and 4 special ids")
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
        """Return the number of ids."""
        return int(self._tokenizer.get_vocab_size())

    def ids(self, caption: str) -> NDArray[np.int32]:
        """Return the ids of start, the caption's pieces and end, (length,), at least 2 and at most 512 long."""
        pieces = self._tokenizer.encode(caption, add_special_tokens=False).ids[: MAX_TOKENS - 2]
        return np.array([self._start, *pieces, self._end], np.int32)

    def key(self) -> str:
        """Return a hexadecimal digest over the tokenizer."""
        return digest(["bpe", str(MAX_TOKENS), self.to_json()])

    def to_json(self) -> str:
        """Return the tokenizer as JSON, in the format of the package tokenizers."""
        return str(self._tokenizer.to_str())

    @classmethod
    def from_json(cls, text: str) -> BytePairs:
        """Read what `to_json` returned.

        Raises:
            InputError: The text is not a tokenizer, or its tokenizer does not know `<start>` or `<end>`.
        """
        try:
            tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the package raises plain exceptions
            raise InputError(f"this is no tokenizer ({' '.join(str(error).split())}); build it again") from error
        return cls(tokenizer)
