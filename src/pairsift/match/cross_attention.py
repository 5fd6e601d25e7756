"""Cross attention between the tokens of images and texts, and similarities computed from it block by block.

In stacked cross attention (Lee et al., ECCV 2018), and in the matchers that build on it (IMRAM, SGR, SAF), every token
of a query attends to the tokens of a context. Each of the n contexts has C tokens v_c, and each of the m queries has Q
tokens t_q. All tensors over the pairs of tokens have the shape (n, C, m, Q):

    a_cq     = v_c . t_q                                             `affinities`
    alpha_cq = softmax_c( lambda * unit_q( LeakyReLU_0.1(a_cq) ) )   `attention_weights`
    x_q      = sum_c alpha_cq v_c                                    the attended vector, dim floats for each (n, m, Q)

x_q is used only in inner products, and these need only C floats:

    t_q . x_q = sum_c alpha_cq a_cq,    |x_q|^2 = alpha_q^T G alpha_q    with  G = V V^T,  (C, C) once per context.

`attended_norm` is the square root of the second expression, and `cosine` is the quotient of the two. `TokenProducts`
holds a and the G of both sides, and swaps the two roles without another product. With images as contexts and texts as
queries, an affinity has the shape (n, R, m, L). The product of the tokens runs in their precision or in the precision
of autocast. Everything else runs in float32 at least.

`compare_all` and `compare_pairs` run a comparison in blocks of bounded memory. They group the texts by length, so that
no padded word is compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from pairsift.match.base import Codes, at_least_float32, unit
from pairsift.match.kernels import linear

EPS = 1e-12  # as in `unit`
Compare = Callable[[Codes, Codes], Tensor]
Finish = Callable[[list[Tensor]], list[Tensor]]
Comparison = Callable[[Compare, Codes, Codes, int, Finish | None], Tensor]  # `compare_all` or `compare_pairs`
CompareProducts = Callable[["TokenProducts"], Tensor]


def affinities(contexts: Tensor, queries: Tensor) -> Tensor:
    """Return the inner products of every context token with every query token.

    Args:
        contexts: (n, C, dim).
        queries: (1, m, Q, dim) if all contexts share them (one large product), or (n, m, Q, dim) with separate queries
            for each context.

    Returns:
        (n, C, m, Q), float32 at least.
    """
    flat = queries.flatten(1, 2)
    products = linear(contexts, flat[0]) if len(flat) == 1 else contexts @ flat.transpose(1, 2)
    return at_least_float32(products).view(*contexts.shape[:2], *queries.shape[1:3])


def attention_weights(affinity: Tensor, sharpness: float, mask: Tensor | None = None) -> Tensor:
    """Return the attention weights of each query token over the tokens of the context.

    This follows the published code of SCAN: a leaky ReLU replaces the clamp at 0 of the paper, and the row of each
    context token is scaled to unit length over the tokens of the query. A row of zeros stays zero.

    Args:
        affinity: (n, C, m, Q). It must be 0 at the padded tokens of a query, so that they do not add to the length.
        sharpness: lambda, the inverse temperature of the softmax over the context.
        mask: True at the real tokens of the contexts, at least one per context, (n, C).

    Returns:
        (n, C, m, Q). Each (n, :, m, Q) sums to 1 and is 0 at the padded tokens of the context.
    """
    logits = unit(functional.leaky_relu(at_least_float32(affinity), 0.1)) * sharpness
    if mask is not None:
        logits = logits.masked_fill(~mask[:, :, None, None], -torch.inf)
    return logits.softmax(1)


def gram(contexts: Tensor) -> Tensor:
    """Return the Gram matrix of the tokens of each context, (n, C, dim) to (n, C, C), float32 at least."""
    with torch.autocast(contexts.device.type, enabled=False):
        contexts = at_least_float32(contexts)
        return contexts @ contexts.transpose(-1, -2)


def attended_norm(weights: Tensor, gram: Tensor) -> Tensor:
    """Return the length of the attended vectors.

    Args:
        weights: alpha, (n, C, m, Q).
        gram: G of the contexts, (n, C, C).

    Returns:
        (n, m, Q), at least 1e-6. The limit keeps the gradient of a quotient finite where a context is all zero.
    """
    with torch.autocast(weights.device.type, enabled=False):
        spread = (gram @ weights.flatten(2)).view(weights.shape)
    return ((weights * spread).sum(1).clamp(min=0) + EPS).sqrt()


def cosine(affinity: Tensor, weights: Tensor, gram: Tensor, length: Tensor) -> Tensor:
    """Return the cosine of each query token with its attended vector.

    Args:
        affinity: a, (n, C, m, Q).
        weights: alpha, (n, C, m, Q).
        gram: G of the contexts, (n, C, C).
        length: Lengths of the query tokens, above 0, (1 or n, m, Q).

    Returns:
        (n, m, Q), in [-1, 1]; 0 where either vector is zero.
    """
    return (weights * affinity).sum(1) / (attended_norm(weights, gram) * length)


@dataclass(frozen=True)
class TokenProducts:
    """The inner products of the tokens of n contexts and m queries. Attention and its cosines need nothing else.

    Attributes:
        affinity: Inner products of context tokens with query tokens, (n, C, m, Q); 0 at padding.
        contexts: Gram matrices of the contexts, (n, C, C).
        queries: Gram matrices of the queries, (1, m, Q, Q), or (n, 1, Q, Q) where each context has a separate query.
        context_mask: True at the real tokens of the contexts, at least one per context, (n, C); None where all are
            real.
        query_mask: True at the real tokens of the queries, at least one per query, (1 or n, m, Q); None where all are
            real.
    """

    affinity: Tensor
    contexts: Tensor
    queries: Tensor
    context_mask: Tensor | None = None
    query_mask: Tensor | None = None

    def swapped(self) -> TokenProducts:
        """Swap contexts and queries, (m or n, Q, n or 1, C); the tensors of the result are views."""
        axis, axes = (0, (2, 3, 0, 1)) if len(self.queries) == 1 else (1, (0, 3, 2, 1))
        context_mask = None if self.query_mask is None else self.query_mask.squeeze(axis)
        query_mask = None if self.context_mask is None else self.context_mask.unsqueeze(axis)
        grams = self.queries.squeeze(axis), self.contexts.unsqueeze(axis)
        return TokenProducts(self.affinity.permute(axes), *grams, context_mask, query_mask)

    def relevance(self, sharpness: float) -> Tensor:
        """Return the cosine of each query token with its attended vector, (n, m, Q), in [-1, 1]; 0 if either is 0."""
        weights = attention_weights(self.affinity, sharpness, self.context_mask)
        length = (self.queries.diagonal(dim1=-2, dim2=-1) + EPS).sqrt()
        return cosine(self.affinity, weights, self.contexts, length)


def compare_all(
    compare: Compare, images: Codes, texts: Codes, cells: int = 2**20, finish: Finish | None = None
) -> Tensor:
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
    heights: list[int] = []  # tiles that stand above each other in each column
    for place, group in groups_by_length(texts):
        length = group.tokens.shape[1] if group.tokens is not None else 1
        text_count = max(1, min(len(group), cells // length))
        image_count = max(1, cells // (text_count * length))
        pictures = split_codes(images, image_count)
        for words in split_codes(group, text_count):
            tiles += [compare(picture, _unsqueezed(words, 0)) for picture in pictures]
            heights.append(len(pictures))
        columns.append(place)
    column = iter(finish(tiles) if finish else tiles)
    parts = [torch.cat([next(column) for _ in range(height)]) for height in heights]
    return restored_order(parts, torch.cat(columns), 1)


def compare_pairs(
    compare: Compare, images: Codes, texts: Codes, cells: int = 2**20, finish: Finish | None = None
) -> Tensor:
    """Compare every image with the text at the same position.

    Args:
        compare: As in `compare_all`, but the tokens of the texts are (m, 1, length, d), one text per image.
        images: n codes with tokens.
        texts: n codes with tokens; the real tokens of a text come first.
        cells: Size of a block, in pairs of an image and a word.
        finish: As in `compare_all`.

    Returns:
        (n, ...).
    """
    rows: list[Tensor] = []
    tiles: list[Tensor] = []
    for place, group in groups_by_length(texts):
        length = group.tokens.shape[1] if group.tokens is not None else 1
        count = max(1, cells // length)
        blocks = zip(split_codes(images.rows(place), count), split_codes(group, count), strict=True)
        tiles += [compare(picture, _unsqueezed(part, 1)) for picture, part in blocks]
        rows.append(place)
    parts = [part.squeeze(1) for part in (finish(tiles) if finish else tiles)]
    return restored_order(parts, torch.cat(rows), 0)


def compare_all_by_products(compare: CompareProducts, images: Codes, texts: Codes, cells: int = 2**20) -> Tensor:
    """Compare every image with every text by the inner products of their tokens.

    This works like `compare_all`, but one matrix product gives all affinities of a block. A product for each length
    would read and write the tokens of the images and their gradients once per length, which takes about three times as
    long.

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
    images = replace(images, grams=gram(images.tokens))
    text_count = max(1, math.isqrt(cells) // 2)
    columns, parts = [], []
    for start, batch in zip(range(0, len(texts), text_count), split_codes(texts, text_count), strict=True):
        places, groups = zip(*groups_by_length(batch), strict=True)
        tokens = [group.tokens for group in groups if group.tokens is not None]
        grams = [gram(words)[None] for words in tokens]
        packed = torch.cat([words.flatten(0, 1) for words in tokens])
        image_count = max(1, cells // len(packed))
        rows = []
        for block in split_codes(images, image_count):
            assert block.tokens is not None and block.grams is not None
            products = affinities(block.tokens, packed[None, None]).squeeze(2)
            shares = torch.split(products, [words.shape[0] * words.shape[1] for words in tokens], 2)
            results = []
            for share, words, gram_of_words in zip(shares, tokens, grams, strict=True):
                view = share.view(*share.shape[:2], *words.shape[:2])
                results.append(compare(TokenProducts(view, block.grams, gram_of_words, block.mask)))
            rows.append(torch.cat(results, 1))
        parts.append(torch.cat(rows))
        columns += [place + start for place in places]
    return restored_order(parts, torch.cat(columns), 1)


def compare_pairs_by_products(compare: CompareProducts, images: Codes, texts: Codes, cells: int = 2**20) -> Tensor:
    """Compare every image with the text at the same position by the inner products of their tokens.

    Args:
        compare: As in `compare_all_by_products`, but for the products of n images with one text each.
        images: n codes with tokens; padded tokens are 0.
        texts: n codes with tokens; the real tokens of a text come first.
        cells: Size of a block, in pairs of an image and a word.

    Returns:
        (n, ...).
    """

    def compare_block(pictures: Codes, captions: Codes) -> Tensor:
        assert pictures.tokens is not None and captions.tokens is not None
        affinity = affinities(pictures.tokens, captions.tokens)
        grams = gram(pictures.tokens), gram(captions.tokens)
        return compare(TokenProducts(affinity, *grams, pictures.mask))

    return compare_pairs(compare_block, images, texts, cells)


def groups_by_length(texts: Codes) -> Iterator[tuple[Tensor, Codes]]:
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


def right_padded(codes: Codes) -> Codes:
    """Move the real tokens of each item to the front and set the others to 0; drop the mask where all are real."""
    if codes.tokens is None or codes.mask is None or bool(codes.mask.all()):
        return Codes(codes.vectors, codes.tokens)
    order = (~codes.mask).sort(dim=1, stable=True).indices
    mask = codes.mask.take_along_dim(order, 1)
    tokens = codes.tokens.take_along_dim(order[..., None], 1).masked_fill(~mask[..., None], 0.0)
    return Codes(codes.vectors, tokens, mask)


def split_codes(codes: Codes, size: int) -> list[Codes]:
    """Cut the codes into parts of at most `size` items."""
    if len(codes) <= size:
        return [codes]
    vectors = torch.split(codes.vectors, size)
    others = (
        [None] * len(vectors) if tensor is None else torch.split(tensor, size)
        for tensor in (codes.tokens, codes.mask, codes.grams)
    )
    return [Codes(*part) for part in zip(vectors, *others, strict=True)]


def _unsqueezed(codes: Codes, axis: int) -> Codes:
    """Insert an axis of length 1 before (0) or after (1) the axis of the items."""
    assert codes.tokens is not None
    return Codes(codes.vectors.unsqueeze(axis), codes.tokens.unsqueeze(axis))


def restored_order(parts: list[Tensor], places: Tensor, axis: int) -> Tensor:
    """Concatenate the parts along an axis and move each entry to its place in `places`."""
    entries = torch.cat(parts, axis)
    return entries.index_select(axis, places.argsort())
