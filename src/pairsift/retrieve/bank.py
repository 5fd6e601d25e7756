"""The codes of many items from one network, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pairsift.arrays import Ints
from pairsift.encode.features import Items, Table
from pairsift.encode.parallel import map_ahead
from pairsift.match.base import Codes, Matcher

ROWS, TOKENS = 1024, 2**12  # largest batch: number of items, and number of tokens with padding


@dataclass(frozen=True)
class Bank:
    """The global vectors of all items, and their tokens where the similarity needs them.

    Tokens are kept in parts. The items of a part have similar lengths, and each part is padded only to its longest
    item. Where the tokens exceed the memory limit, none are kept, and they are encoded again for every request. This
    gives the same result, and its cost is low compared with a similarity that needs tokens.

    Attributes:
        vectors: Global vectors, or `Codes.indexed` where the matcher factorises, (n, d).
        lengths: Number of tokens of each item before encoding, (n,).
        parts: Places of the items of each part; every item is in exactly one part.
        codes: Codes of each part; empty where they are encoded for every request.
        encode: Function from places to the codes of the items in these places; None where all codes are kept.
    """

    vectors: Tensor
    lengths: Ints
    parts: Sequence[Ints]
    codes: Sequence[Codes]
    encode: Callable[[Ints], Codes] | None = None

    @staticmethod
    def from_codes(codes: Codes) -> Bank:
        """Make a bank of existing codes."""
        length = 1 if codes.tokens is None else codes.tokens.shape[1]
        return Bank(codes.vectors, np.full(len(codes), length), [np.arange(len(codes))], [codes])

    @staticmethod
    def encode_table(matcher: Matcher, table: Table, rows: Ints, texts: bool, keep: int) -> Bank:
        """Encode rows of a table in evaluation mode, on the device of the matcher.

        Args:
            matcher: The network.
            table: Features of the images or of the texts.
            rows: Rows of the table to encode, (n,).
            texts: Whether the table holds texts.
            keep: Memory limit of the kept tokens, in bytes. No tokens are kept where the matcher factorises.
        """
        lengths = table.lengths[rows]
        parts = parts_of(lengths)
        padded = [len(part) * int(lengths[part].max(initial=1)) for part in parts]
        vectors = next(matcher.parameters()).new_empty(len(rows), matcher.index_dim)
        kept: list[Codes] = []
        fits = not matcher.factorises
        for part, tokens, codes in zip(parts, padded, encode_parts(matcher, table, rows, texts, parts), strict=True):
            vectors[torch.from_numpy(part).to(vectors.device)] = codes.indexed.to(vectors.dtype)
            fits = fits and _size(codes) * sum(padded) <= keep * tokens  # estimated from each part, the first included
            kept = [*kept, codes] if fits else []
        if matcher.factorises:
            return Bank.from_codes(Codes(vectors))
        return Bank(vectors, lengths, parts, kept, lambda places: codes_of(matcher, table.batch(rows[places]), texts))

    def __len__(self) -> int:
        return len(self.vectors)

    def walk(self) -> Iterator[tuple[Ints, Codes]]:
        """Yield the places and the codes of each part."""
        for number, part in enumerate(self.parts):
            yield part, self.codes[number] if self.codes else self._encode(part)

    def select(self, places: Ints) -> Codes:
        """Return the codes of the items in these places, in this order, padded to the longest item.

        All these codes are in memory together, so use it for small numbers of items.
        """
        if not self.codes:
            return self._encode(places)
        number, within = self._positions[:, places]
        groups = [np.flatnonzero(number == part) for part in np.unique(number)]
        picked = [self.codes[number[group[0]]].rows(self._index(within[group])) for group in groups]
        return Codes.join(picked).rows(self._index(np.concatenate(groups).argsort()))

    def _encode(self, places: Ints) -> Codes:
        assert self.encode is not None
        return self.encode(places)

    def _index(self, places: Ints) -> Tensor:
        return torch.from_numpy(places).to(self.vectors.device)

    @cached_property
    def _positions(self) -> Ints:
        """The part of each item and its place in the part, (2, n)."""
        where = np.empty((2, len(self)), np.int64)
        for number, part in enumerate(self.parts):
            where[0, part], where[1, part] = number, np.arange(len(part))
        return where


def parts_of(lengths: Ints) -> list[Ints]:
    """Cut items in ascending order of their lengths into parts, as `token_batches` does; return the places of each."""
    order = np.argsort(lengths, kind="stable")
    return [order[part] for part in token_batches(lengths[order])]


def encode_parts(matcher: Matcher, table: Table, rows: Ints, texts: bool, parts: Sequence[Ints]) -> Iterator[Codes]:
    """Encode rows of a table part by part, in evaluation mode, on the device of the matcher.

    Args:
        matcher: The network.
        table: Features of the images or of the texts.
        rows: Rows of the table, (n,).
        texts: Whether the table holds texts.
        parts: Places in `rows` of the items of each part.

    Yields:
        The codes of a part.
    """
    for items in map_ahead(lambda places: table.batch(rows[places]), parts):
        yield codes_of(matcher, items, texts)


def token_batches(lengths: Ints) -> list[slice]:
    """Cut consecutive items into batches of at most `ROWS` items and at most `TOKENS` tokens with padding.

    Each batch is padded to its longest item.

    Args:
        lengths: Number of tokens of each item, (n,). An item with more than `TOKENS` tokens gets a separate batch.

    Returns:
        The batches in order as slices, at least one.
    """
    batches, start, longest = [], 0, 0
    for place, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if place > start and (place - start >= ROWS or (place - start + 1) * longest > TOKENS):
            batches.append(slice(start, place))
            start, longest = place, length
    return [*batches, slice(start, len(lengths))]


@contextmanager
def evaluation_mode(matcher: Matcher) -> Iterator[None]:
    """Set a matcher to evaluation mode without gradients, and restore its mode at the end."""
    training = matcher.training
    matcher.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        matcher.train(training)


def codes_of(matcher: Matcher, items: Items, texts: bool) -> Codes:
    """Encode items in evaluation mode, on the device of the matcher."""
    items = items.to(next(matcher.parameters()).device)
    with evaluation_mode(matcher):
        return matcher.encode_texts(items) if texts else matcher.encode_images(items)


def _size(codes: Codes) -> int:
    """Return the size of the tokens of these codes, in bytes."""
    return 0 if codes.tokens is None else codes.tokens.numel() * codes.tokens.element_size()
