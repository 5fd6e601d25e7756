"""Vocabularies that were pickled, as VSRN's are, read without running any code in them."""

from __future__ import annotations

import io
import pickle

from pairsift.encode.words import Vocabulary
from pairsift.errors import InputError

MARK = b"\x80"  # the first byte of a pickle since protocol 2, and of no text in UTF-8
CLASS = "Vocabulary"


class _Attributes:
    """A stand-in for the class of the pickled vocabulary; it holds attributes and no code."""


class _Reader(pickle.Unpickler):
    """An unpickler that makes plain values and that stand-in, and calls nothing else."""

    def find_class(self, module: str, name: str) -> type:
        """Return the stand-in for a class that is called Vocabulary.

        Raises:
            InputError: The file names anything else.
        """
        if name == CLASS:
            return _Attributes
        raise InputError(
            f"holds {module}.{name}, which is neither a {CLASS} nor a plain value; none of its code was run, and it is "
            "not read"
        )


def read_pickled(data: bytes) -> Vocabulary:
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
