"""Vocabularies: the rules that give captions their token ids, for matchers that learn word vectors."""

from __future__ import annotations

import io
import json
import pickle
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from pairsift.encode.encoder import MAX_TOKENS, Array, digest, without_surrogates
from pairsift.encode.splitters import splitter
from pairsift.errors import InputError
from pairsift.pairs.readers.precomp import is_id

SPECIAL = PAD, START, END, UNKNOWN = ("<pad>", "<start>", "<end>", "<unk>")
MIN_BPE_SIZE = len(SPECIAL) + 256  # the special ids and every byte
PICKLE_START = b"\x80"  # the first byte of a pickle since protocol 2, and of no text in UTF-8
PICKLED_CLASS = "Vocabulary"


class Numbering(Protocol):
    """A rule that gives a caption its token ids.

    `to_json` and `read_numbering` store it in the folder of a run and read it again.
    """

    @property
    def name(self) -> str:
        """Name of its text encoder, `words`, `bpe` or `ids`."""
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
class Vocabulary:
    """A vocabulary of words and their ids.

    Attributes:
        numbers: Id of each word, `<start>`, `<end>` and `<unk>` among them.
        splitter: Name of the splitter that cuts captions into words: `plain`, `treebank` or `jieba`.
    """

    numbers: dict[str, int]
    splitter: str = "plain"

    name: ClassVar[str] = "words"

    @classmethod
    def build(cls, captions: Iterable[str], minimum: int = 4, splitter_name: str = "plain") -> Vocabulary:
        """Build a vocabulary of the words that occur at least `minimum` times.

        The ids are 0 padding, 1 start, 2 end, 3 unknown, and the words from 4 on, the most frequent first; words of
        equal frequency are ordered by spelling.

        Raises:
            InputError: The splitter is unknown or its package is missing.
        """
        split = splitter(splitter_name).split
        counts = Counter(word for caption in captions for word in split(caption))
        words = sorted((-count, word) for word, count in counts.items() if count >= minimum)
        numbers = {word: number for number, word in enumerate((*SPECIAL, *(word for _, word in words)))}
        return cls(numbers, splitter_name)

    def __len__(self) -> int:
        """Return one more than the largest id."""
        return max(self.numbers.values()) + 1

    @property
    def ends(self) -> tuple[int, int]:
        """The ids of start and end."""
        return self.numbers[START], self.numbers[END]

    def ids(self, caption: str) -> NDArray[np.int32]:
        """Return the ids of start, the caption's words and end, (length,), at least 2 and at most 512 long."""
        (start, end), unknown = self.ends, self.numbers[UNKNOWN]
        words = splitter(self.splitter).split(caption)[: MAX_TOKENS - 2]
        return np.array([start, *(self.numbers.get(word, unknown) for word in words), end], np.int32)

    def key(self) -> str:
        """Return a hexadecimal digest over the words and the splitter."""
        return digest(["words", splitter(self.splitter).version, str(MAX_TOKENS), self.to_json()])

    def to_json(self) -> str:
        """Return this vocabulary as JSON, in the format that `from_scan` reads."""
        return json.dumps({"word2idx": self.numbers, "splitter": self.splitter})

    @classmethod
    def from_scan(cls, raw: dict[str, Any]) -> Vocabulary:
        """Build a vocabulary from the format of SCAN and related methods; the ids stay as they are.

        Args:
            raw: Content of the JSON file: `word2idx` maps words to ids; without a `splitter`, it is `treebank`.

        Raises:
            InputError: `word2idx` is not such a mapping, two words share an id, or start, end or unknown are missing.
        """
        numbers = raw.get("word2idx")
        if not isinstance(numbers, dict) or not all(map(_is_id, numbers.values())):
            raise InputError("its `word2idx` is no mapping of words to ids")
        if len(set(numbers.values())) != len(numbers):
            raise InputError("its `word2idx` gives one id to several words")
        if lacking := [word for word in (START, END, UNKNOWN) if word not in numbers]:
            raise InputError(f"its `word2idx` has no {lacking[0]}")
        return cls(numbers, str(raw.get("splitter", "treebank")))


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
        ends = [tokenizer.token_to_id(word) for word in (START, END)]
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
        if size < MIN_BPE_SIZE:
            raise InputError(
                f"bpe_size is {size}: it must be at least {MIN_BPE_SIZE}, for every byte and 4 special ids"
            )
        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=list(SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(without_surrogates(list(captions)), trainer)
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
        return [self.numbering.ids(caption) for caption in without_surrogates(captions)]


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
    ends = [content.get("start"), content.get("end")]
    if isinstance(content.get("ids"), int) and all(end is None or isinstance(end, int) for end in ends):
        return GivenIds(content["ids"], *ends)
    raise InputError("this is not a vocabulary, neither of pairsift nor of the SCAN family")


class _Attributes:
    """A stand-in for the class of the pickled vocabulary; it holds attributes and no code."""


class _Reader(pickle.Unpickler):
    """An unpickler that makes plain values and that stand-in, and calls nothing else."""

    def find_class(self, module: str, name: str) -> type:
        """Return the stand-in for a class that is called Vocabulary.

        Raises:
            InputError: The file names anything else.
        """
        if name == PICKLED_CLASS:
            return _Attributes
        raise InputError(
            f"holds {module}.{name}, which is neither a {PICKLED_CLASS} nor a plain value; none of its code was run, "
            "and it is not read"
        )


def _read_pickled(data: bytes) -> Vocabulary:
    """Read the pickled vocabulary of SCAN's predecessors: an object with `word2idx`, by Python 2 or 3.

    Raises:
        InputError: It is no such pickle.
    """
    try:
        held = _Reader(io.BytesIO(data), encoding="utf-8").load()
    except InputError:
        raise
    except Exception as error:  # a damaged file makes pickle raise almost anything
        lines = str(error).splitlines() or [type(error).__name__]
        raise InputError(f"is no complete pickle ({lines[0]})") from error
    numbers = getattr(held, "word2idx", None)
    if not isinstance(numbers, dict) or not all(isinstance(word, str) for word in numbers):
        raise InputError("is a pickle without a `word2idx` of words")
    return Vocabulary.from_scan({"word2idx": numbers})


def read_vocabulary_file(path: Path) -> Numbering:
    """Read a vocabulary file: JSON, or a pickle, without running any code in it.

    Raises:
        InputError: The file cannot be read, or is not a vocabulary.
    """
    try:
        data = path.read_bytes()
        return _read_pickled(data) if data.startswith(PICKLE_START) else read_numbering(data.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({error})") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _numbers(caption: str) -> list[int]:
    words = caption.replace(",", " ").split()
    odd = next((word for word in words if not is_id(word)), None)
    if odd is not None:
        excerpt = odd if len(odd) <= 40 else odd[:39] + "…"
        raise InputError(f"{excerpt!r} is no token id: captions and queries are lists of ids here, such as `17 4 256`")
    return [int(word) for word in words]


def _is_id(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**31
