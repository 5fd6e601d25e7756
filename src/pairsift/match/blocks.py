"""Similarities that need the tokens of both sides, computed block by block and without padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from pairsift.match import attend
from pairsift.match.base import Codes

Compare = Callable[[Codes, Codes], Tensor]
Finish = Callable[[list[Tensor]], list[Tensor]]
Comparison = Callable[[Compare, Codes, Codes, int, Finish | None], Tensor]  # `cross` or `paired`
CompareProducts = Callable[[attend.Products], Tensor]


def cross(compare: Compare, images: Codes, texts: Codes, cells: int = 2**20, finish: Finish | None = None) -> Tensor:
    """Compare every image with every text.

    The texts are grouped by length, so `compare` gets no padded words. A block has about `cells` pairs of an image and
    a word.

    Args:
        compare: Function of n images and of m texts whose tokens (1, m, length, d) have no mask; it returns
            (n, m, ...).
        images: n_images codes with tokens.
        texts: n_texts codes with tokens; the real tokens of a text come first.
        cells: Size of a block, in pairs of an image and a word.
        finish: Optional function of the list of all results of `compare`, (n, m, ...) each; it returns a list with one
            result in place of each.

    Returns:
        (n_images, n_texts, ...).
    """
    columns: list[Tensor] = []
    tiles: list[Tensor] = []
    heights: list[int] = []
    for place, group in by_length(texts):
        length = group.tokens.shape[1] if group.tokens is not None else 1
        text_count = max(1, min(len(group), cells // length))
        image_count = max(1, cells // (text_count * length))
        pictures = split(images, image_count)
        for words in split(group, text_count):
            tiles += [compare(picture, _with_axis(words, 0)) for picture in pictures]
            heights.append(len(pictures))
        columns.append(place)
    column = iter(finish(tiles) if finish else tiles)
    parts = [torch.cat([next(column) for _ in range(height)]) for height in heights]
    return in_order(parts, torch.cat(columns), 1)


def paired(compare: Compare, images: Codes, texts: Codes, cells: int = 2**20, finish: Finish | None = None) -> Tensor:
    """Compare every image with the text at the same position.

    Args:
        compare: As in `cross`, but the tokens of the texts are (m, 1, length, d), one text per image.
        images: n codes with tokens.
        texts: n codes with tokens; the real tokens of a text come first.
        cells: Size of a block, in pairs of an image and a word.
        finish: As in `cross`.

    Returns:
        (n, ...).
    """
    rows: list[Tensor] = []
    tiles: list[Tensor] = []
    for place, group in by_length(texts):
        length = group.tokens.shape[1] if group.tokens is not None else 1
        count = max(1, cells // length)
        blocks = zip(split(images.rows(place), count), split(group, count), strict=True)
        tiles += [compare(picture, _with_axis(part, 1)) for picture, part in blocks]
        rows.append(place)
    parts = [part.squeeze(1) for part in (finish(tiles) if finish else tiles)]
    return in_order(parts, torch.cat(rows), 0)


def cross_products(compare: CompareProducts, images: Codes, texts: Codes, cells: int = 2**20) -> Tensor:
    """Compare every image with every text by the inner products of their tokens.

    This works like `cross`, but one matrix product gives all affinities of a block. A product for each length would
    read and write the tokens of the images and their gradients once per length, which takes about three times as long.

    Args:
        compare: Function of the products of n images (contexts) and m texts of equal length (queries); it returns
            (n, m, ...).
        images: n_images codes with tokens; padded tokens are 0.
        texts: n_texts codes with tokens; the real tokens of a text come first.
        cells: Size of a block, in pairs of an image and a word.

    Returns:
        (n_images, n_texts, ...).
    """
    assert images.tokens is not None
    images = replace(images, grams=attend.gram(images.tokens))
    text_count = max(1, math.isqrt(cells) // 2)
    columns, parts = [], []
    for start, batch in zip(range(0, len(texts), text_count), split(texts, text_count), strict=True):
        places, groups = zip(*by_length(batch), strict=True)
        tokens = [group.tokens for group in groups if group.tokens is not None]
        grams = [attend.gram(words)[None] for words in tokens]
        packed = torch.cat([words.flatten(0, 1) for words in tokens])
        image_count = max(1, cells // len(packed))
        rows = []
        for block in split(images, image_count):
            assert block.tokens is not None and block.grams is not None
            affinities = attend.affinity(block.tokens, packed[None, None]).squeeze(2)
            shares = torch.split(affinities, [words.shape[0] * words.shape[1] for words in tokens], 2)
            views = [
                share.view(*share.shape[:2], *words.shape[:2]) for share, words in zip(shares, tokens, strict=True)
            ]
            products_of_groups = [
                attend.Products(view, block.grams, gram, block.mask) for view, gram in zip(views, grams, strict=True)
            ]
            rows.append(torch.cat([compare(products) for products in products_of_groups], 1))
        parts.append(torch.cat(rows))
        columns += [place + start for place in places]
    return in_order(parts, torch.cat(columns), 1)


def paired_products(compare: CompareProducts, images: Codes, texts: Codes, cells: int = 2**20) -> Tensor:
    """Compare every image with the text at the same position by the inner products of their tokens.

    Args:
        compare: As in `cross_products`, but for the products of n images with one text each.
        images: n codes with tokens; padded tokens are 0.
        texts: n codes with tokens; the real tokens of a text come first.
        cells: Size of a block, in pairs of an image and a word.

    Returns:
        (n, ...).
    """

    def meet(pictures: Codes, captions: Codes) -> Tensor:
        assert pictures.tokens is not None and captions.tokens is not None
        affinity = attend.affinity(pictures.tokens, captions.tokens)
        grams = attend.gram(pictures.tokens), attend.gram(captions.tokens)
        return compare(attend.Products(affinity, *grams, pictures.mask))

    return paired(meet, images, texts, cells)


def by_length(texts: Codes) -> Iterator[tuple[Tensor, Codes]]:
    """Yield groups of texts of equal length, shortest first: their places, (m,), and their codes without a mask."""
    assert texts.tokens is not None
    if texts.mask is None:
        yield torch.arange(len(texts), device=texts.vectors.device), texts
        return
    lengths, order = texts.mask.sum(1).clamp(min=1).sort(stable=True)
    sizes = lengths.cpu()
    edges = [0, *(torch.nonzero(sizes.diff()).flatten() + 1).tolist(), len(sizes)]
    counts = [end - start for start, end in pairwise(edges)]
    groups = (torch.split(tensor, counts) for tensor in (order, texts.vectors[order], texts.tokens[order]))
    for place, vectors, tokens, start in zip(*groups, edges[:-1], strict=True):
        yield place, Codes(vectors, tokens[:, : int(sizes[start])])


def front(codes: Codes) -> Codes:
    """Move the real tokens of each item to the front and set the others to 0; drop the mask where all are real."""
    if codes.tokens is None or codes.mask is None or bool(codes.mask.all()):
        return Codes(codes.vectors, codes.tokens)
    order = (~codes.mask).sort(dim=1, stable=True).indices
    mask = codes.mask.take_along_dim(order, 1)
    tokens = codes.tokens.take_along_dim(order[..., None], 1).masked_fill(~mask[..., None], 0.0)
    return Codes(codes.vectors, tokens, mask)


def split(codes: Codes, size: int) -> list[Codes]:
    """Cut the codes into parts of at most `size` items."""
    if len(codes) <= size:
        return [codes]
    vectors = torch.split(codes.vectors, size)
    blanks = [None] * len(vectors)
    others = (
        blanks if tensor is None else torch.split(tensor, size) for tensor in (codes.tokens, codes.mask, codes.grams)
    )
    return [Codes(*part) for part in zip(vectors, *others, strict=True)]


def _with_axis(codes: Codes, axis: int) -> Codes:
    """Insert an axis of length 1 before (0) or after (1) the axis of the items."""
    assert codes.tokens is not None
    return Codes(codes.vectors.unsqueeze(axis), codes.tokens.unsqueeze(axis))


def in_order(parts: list[Tensor], places: Tensor, axis: int) -> Tensor:
    """Concatenate the parts along an axis and move each entry to its place in `places`."""
    entries = torch.cat(parts, axis)
    return entries.index_select(axis, places.argsort())
