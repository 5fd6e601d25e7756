"""Codes of many items by one network, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pairsift.encode.features import Items, Table
from pairsift.encode.parallel import prefetched
from pairsift.match.base import Codes, Matcher
from pairsift.pairs.pairs import Ints

ROWS, TOKENS = 1024, 2**12  # most items, and most tokens with padding, that are encoded or compared at once


@dataclass(frozen=True)
class Bank:
    """All items' global vectors, and their tokens where the similarity needs them.

    Tokens are held in parts of items of similar length, each padded to its own longest only. Where they take more
    memory than they may, none are held, and they are encoded again whenever they are asked for: that is cheap beside a
    similarity that needs tokens, and as exact as holding them.

    Attributes:
        vectors: Global vectors, (n, d).
        lengths: Number of tokens of each item before encoding, (n,).
        parts: Places of each part's items; every item is in one part.
        kept: Codes of each part, or nothing where they are encoded when asked for.
        encode: Codes of the items in these places; None where all is kept.
    """

    vectors: Tensor
    lengths: Ints
    parts: Sequence[Ints]
    kept: Sequence[Codes]
    encode: Callable[[Ints], Codes] | None = None

    @staticmethod
    def of(codes: Codes) -> Bank:
        """A bank of codes that are there."""
        length = 1 if codes.tokens is None else codes.tokens.shape[1]
        return Bank(codes.vectors, np.full(len(codes), length), [np.arange(len(codes))], [codes])

    @staticmethod
    def encoded(matcher: Matcher, table: Table, rows: Ints, texts: bool, keep: int) -> Bank:
        """Encode these rows of a table in evaluation mode, on the matcher's device.

        Args:
            matcher: The network.
            table: Features of the images or of the texts.
            rows: Which of them, (n,).
            texts: Whether they are texts.
            keep: Bytes that the tokens may take; they are dropped where the matcher factorises.
        """
        device = next(matcher.parameters()).device

        def gather(places: Ints) -> Items:
            return table.batch(rows[places])

        def codes_of(items: Items) -> Codes:
            with evaluating(matcher):
                items = items.to(device)
                return matcher.encode_texts(items) if texts else matcher.encode_images(items)

        def encode(places: Ints) -> Codes:
            return codes_of(gather(places))

        lengths = table.lengths[rows]
        order = np.argsort(lengths, kind="stable")
        parts = [order[part] for part in sized(lengths[order])]
        padded = [len(part) * int(lengths[part].max(initial=1)) for part in parts]
        vectors = next(matcher.parameters()).new_empty(len(rows), matcher.dim)
        kept: list[Codes] = []
        fits = not matcher.factorises
        for part, tokens, items in zip(parts, padded, prefetched(gather, parts), strict=True):
            codes = codes_of(items)
            vectors[torch.from_numpy(part).to(device)] = codes.vectors.to(vectors.dtype)
            fits = fits and _size(codes) * sum(padded) <= keep * tokens  # foreseen by the first part already
            kept = [*kept, codes] if fits else []
        return Bank.of(Codes(vectors)) if matcher.factorises else Bank(vectors, lengths, parts, kept, encode)

    def __len__(self) -> int:
        return len(self.vectors)

    def walk(self) -> Iterator[tuple[Ints, Codes]]:
        """Places and codes of one part after the other."""
        for number, part in enumerate(self.parts):
            yield part, self.kept[number] if self.kept else self._encode(part)

    def at(self, places: Ints) -> Codes:
        """Codes of the items in these places, in this order, padded to the longest of them; for a few at a time."""
        if not self.kept:
            return self._encode(places)
        number, within = self._where[:, places]
        groups = [np.flatnonzero(number == part) for part in np.unique(number)]
        picked = [self.kept[number[group[0]]].rows(self._index(within[group])) for group in groups]
        return Codes.join(picked).rows(self._index(np.concatenate(groups).argsort()))

    def _encode(self, places: Ints) -> Codes:
        assert self.encode is not None
        return self.encode(places)

    def _index(self, places: Ints) -> Tensor:
        return torch.from_numpy(places).to(self.vectors.device)

    @cached_property
    def _where(self) -> Ints:
        """Each item's part and its place therein, (2, n)."""
        where = np.empty((2, len(self)), np.int64)
        for number, part in enumerate(self.parts):
            where[0, part], where[1, part] = number, np.arange(len(part))
        return where


def sized(lengths: Ints) -> list[slice]:
    """Cut consecutive items into batches of at most `ROWS` items and `TOKENS` tokens when padded to their longest.

    Args:
        lengths: Number of tokens of each item, (n,); an item that is too long has a batch of its own.

    Returns:
        The batches in order, at least one.
    """
    found, start, longest = [], 0, 0
    for place, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if place > start and (place - start >= ROWS or (place - start + 1) * longest > TOKENS):
            found.append(slice(start, place))
            start, longest = place, length
    return [*found, slice(start, len(lengths))]


@contextmanager
def evaluating(matcher: Matcher) -> Iterator[None]:
    """Evaluation mode without gradients; the matcher's own mode comes back afterwards."""
    training = matcher.training
    matcher.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        matcher.train(training)


def _size(codes: Codes) -> int:
    """Bytes of the codes' tokens."""
    return 0 if codes.tokens is None else codes.tokens.numel() * codes.tokens.element_size()
