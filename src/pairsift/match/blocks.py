"""Similarities that need both sides' tokens, block by block and without computing any padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor

from pairsift.match.base import Codes

Compare = Callable[[Codes, Codes], Tensor]


def cross(compare: Compare, images: Codes, texts: Codes, cells: int = 2**20) -> Tensor:
    """Compare every image with every text.

    The texts are grouped by length, so that `compare` sees no padded word, and cut so that a block has about `cells`
    pairs of an image and a word.

    Args:
        compare: Takes n images and m texts whose tokens (1, m, length, d) have no mask; returns (n, m, ...).
        images: n_images codes with tokens.
        texts: n_texts codes with tokens; the real ones of a text come first.
        cells: Size of a block.

    Returns:
        (n_images, n_texts, ...).
    """
    columns, parts = [], []
    for place, group in by_length(texts):
        length = group.tokens.shape[1] if group.tokens is not None else 1
        wide = max(1, min(len(group), cells // length))
        tall = max(1, cells // (wide * length))
        words = [_first(part, 0) for part in split(group, wide)]
        pictures = split(images, tall)
        parts += [torch.cat([compare(picture, part) for picture in pictures]) for part in words]
        columns.append(place)
    return _in_order(parts, torch.cat(columns), 1)


def paired(compare: Compare, images: Codes, texts: Codes, cells: int = 2**20) -> Tensor:
    """Compare every image with the text in the same place.

    Args:
        compare: As in `cross`; here its texts' tokens are (m, 1, length, d), one text for each of its images.
        images: n codes with tokens.
        texts: n codes with tokens; the real ones of a text come first.
        cells: Size of a block, in pairs of an image and a word.

    Returns:
        (n, ...).
    """
    rows, parts = [], []
    for place, group in by_length(texts):
        length = group.tokens.shape[1] if group.tokens is not None else 1
        tall = max(1, cells // length)
        blocks = zip(split(images.rows(place), tall), split(group, tall), strict=True)
        parts += [compare(picture, _first(part, 1)).squeeze(1) for picture, part in blocks]
        rows.append(place)
    return _in_order(parts, torch.cat(rows), 0)


def by_length(texts: Codes) -> Iterator[tuple[Tensor, Codes]]:
    """Groups of texts of equal length, shortest first: their places, (m,), and their codes without a mask."""
    assert texts.tokens is not None
    if texts.mask is None:
        yield torch.arange(len(texts), device=texts.vectors.device), texts
        return
    lengths, order = texts.mask.sum(1).clamp(min=1).sort(stable=True)
    sizes = lengths.cpu()
    edges = [0, *(torch.nonzero(sizes.diff()).flatten() + 1).tolist(), len(sizes)]
    counts = [end - start for start, end in pairwise(edges)]
    groups = (torch.split(whole, counts) for whole in (order, texts.vectors[order], texts.tokens[order]))
    for place, vectors, tokens, start in zip(*groups, edges[:-1], strict=True):
        yield place, Codes(vectors, tokens[:, : int(sizes[start])])


def split(codes: Codes, size: int) -> list[Codes]:
    """The codes in parts of at most `size` items."""
    if len(codes) <= size:
        return [codes]
    return [codes.rows(slice(start, start + size)) for start in range(0, len(codes), size)]


def _first(codes: Codes, axis: int) -> Codes:
    """The codes with an axis of length 1 put before (0) or behind (1) their own."""
    assert codes.tokens is not None
    return Codes(codes.vectors.unsqueeze(axis), codes.tokens.unsqueeze(axis))


def _in_order(parts: list[Tensor], places: Tensor, axis: int) -> Tensor:
    """The parts side by side along an axis, each entry back in its place."""
    whole = torch.cat(parts, axis)
    return whole.index_select(axis, places.argsort())
