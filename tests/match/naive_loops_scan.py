"""SCAN and IMRAM as a reader of the papers would write them: one caption at a time against all images.

The readable truth beside `pairsift.match.scan` and `pairsift.match.imram`: attended vectors are formed, gates see
[query; attended] side by side, nothing is shared between captions. Slow.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from pairsift.match.base import Codes, unit
from pairsift.match.imram import Imram
from pairsift.match.scan import Scan


def scan_similarity(matcher: Scan, images: Codes, texts: Codes) -> Tensor:
    """(n_images, n_texts)."""
    columns = []
    for caption in captions(texts):
        words = caption.expand(len(images), -1, -1)
        column = words.new_zeros(len(images))
        if matcher.direction in ("t2i", "both"):
            attended = attend(words, regions(images), matcher.sharpness["t2i"], mask_of(images))
            relevance = functional.cosine_similarity(words, attended, dim=2, eps=1e-12)
            column = column + pool(relevance, torch.ones_like(relevance, dtype=torch.bool), matcher, "t2i")
        if matcher.direction in ("i2t", "both"):
            real = torch.ones(words.shape[:2], dtype=torch.bool, device=words.device)
            attended = attend(regions(images), words, matcher.sharpness["i2t"], real)
            relevance = functional.cosine_similarity(regions(images), attended, dim=2, eps=1e-12)
            column = column + pool(relevance, mask_of(images), matcher, "i2t")
        columns.append(column / 2 if matcher.direction == "both" else column)
    return torch.stack(columns, 1)


def pool(relevance: Tensor, mask: Tensor, matcher: Scan, direction: str) -> Tensor:
    """(n, queries) to (n,)."""
    if matcher.pooling == "mean":
        return (relevance * mask).sum(1) / mask.sum(1)
    sharpness = matcher.lse[direction]
    return ((relevance * sharpness).exp() * mask).sum(1).log() / sharpness


def imram_similarity(matcher: Imram, images: Codes, texts: Codes) -> Tensor:
    """(n_images, n_texts)."""
    columns = []
    for caption in captions(texts):
        words = caption.expand(len(images), -1, -1)
        every = torch.ones(words.shape[:2], dtype=torch.bool, device=words.device)
        column = words.new_zeros(len(images))
        if "text" in matcher.gates:
            column = column + rounds(matcher, "text", words, every, regions(images), mask_of(images))
        if "image" in matcher.gates:
            column = column + rounds(matcher, "image", regions(images), mask_of(images), words, every)
        columns.append(column)
    return torch.stack(columns, 1)


def rounds(
    matcher: Imram, direction: str, first: Tensor, first_mask: Tensor, contexts: Tensor, contexts_mask: Tensor
) -> Tensor:
    """Sum of the rounds' scores, (n,); the memory is updated after the last round too, as in the published code."""
    gate_weight, memory_weight = matcher.gates[direction].weight.chunk(2)
    gate_bias, memory_bias = matcher.gates[direction].bias.chunk(2)
    queries, total = first, first.new_zeros(len(first))
    for _ in range(matcher.steps):
        attended = attend(queries, contexts, matcher.sharpness, contexts_mask)
        relevance = functional.cosine_similarity(first, attended, dim=2, eps=1e-12)
        total = total + (relevance * first_mask).sum(1) / first_mask.sum(1)
        both = torch.cat([queries, attended], 2)
        gate = torch.sigmoid(functional.linear(both, gate_weight, gate_bias))
        memory = torch.tanh(functional.linear(both, memory_weight, memory_bias))
        queries = (gate * queries + (1 - gate) * memory) * first_mask[..., None]  # padding stays out of the attention
    return total


def attend(queries: Tensor, contexts: Tensor, sharpness: float, mask: Tensor) -> Tensor:
    """Attended vectors of the queries (n, q, d) over the contexts (n, c, d), whose real tokens have mask (n, c)."""
    affinity = torch.bmm(contexts, queries.transpose(1, 2))
    affinity = unit(functional.leaky_relu(affinity, 0.1))
    affinity = affinity.transpose(1, 2).masked_fill(~mask[:, None], -torch.inf)
    return torch.bmm(torch.softmax(affinity * sharpness, dim=2), contexts)


def captions(texts: Codes) -> list[Tensor]:
    """Each caption's own words, (length, d)."""
    assert texts.tokens is not None
    if texts.mask is None:
        return list(texts.tokens)
    return [tokens[:length] for tokens, length in zip(texts.tokens, texts.mask.sum(1).tolist(), strict=True)]


def regions(images: Codes) -> Tensor:
    """The images' tokens, 0 at padding."""
    assert images.tokens is not None
    return images.tokens * mask_of(images)[..., None]


def mask_of(images: Codes) -> Tensor:
    assert images.tokens is not None
    every = torch.ones(images.tokens.shape[:2], dtype=torch.bool, device=images.tokens.device)
    return every if images.mask is None else images.mask
