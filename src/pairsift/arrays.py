"""Short names for the types of numpy arrays, rows of unit length, and numbers for equal texts."""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Reals = NDArray[np.float64]


def unit_rows(vectors: Floats) -> Floats:
    """Return the rows of an array scaled to unit length, (n, d), float32; a row of zeros stays zero."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float32)


def text_numbers(texts: Iterable[str]) -> Ints:
    """Return a number for each text, the same for texts that differ only in case and spaces, (n,)."""
    return equal_numbers(map(spelling, texts))


def spelling(text: str) -> str:
    """Return a text in lower case, with one space in the place of several."""
    return " ".join(text.casefold().split())


def equal_numbers(items: Iterable[Hashable]) -> Ints:
    """Return a number for each item, from 0 in the order in which they first appear, the same for equal ones, (n,).

    Items are told apart by hashes of 64 bits, so that millions need no memory for themselves.
    """
    return first_numbers(hashes(items))


def hashes(items: Iterable[Hashable]) -> Ints:
    """Return a hash of 64 bits for each item, (n,)."""
    return np.fromiter(map(hash, items), np.int64)


def first_numbers(values: Array) -> Ints:
    """Return a number for each value, from 0 in the order in which they first appear, the same for equal ones, (n,)."""
    order = np.argsort(values, kind="stable")
    differs = np.ones(len(values), np.bool_)
    ascending = values[order]
    differs[1:] = ascending[1:] != ascending[:-1]
    begins = np.zeros(len(values), np.bool_)
    begins[order[differs]] = True
    number = (np.cumsum(begins) - 1)[order[differs]]
    numbers = np.empty(len(values), np.int64)
    numbers[order] = np.repeat(number, np.diff(np.append(np.flatnonzero(differs), len(values))))
    return numbers
