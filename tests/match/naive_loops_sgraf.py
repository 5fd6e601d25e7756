"""SGR, SAF and their encoders one caption after the other, as a reader of the paper would write them.

The readable truth that the matchers are tested and timed against. A caption is compared with all the images at once,
in the steps of the published loop.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from pairsift.match.base import Codes
from pairsift.match.sgraf import Saf, Sgr


def unit(x: Tensor, dim: int = -1) -> Tensor:
    return x / x.pow(2).sum(dim, keepdim=True).clamp(min=1e-24).sqrt()


def sgr_loop(matcher: Sgr, images: Codes, texts: Codes) -> Tensor:
    """Similarity of every image with every text, (n_images, n_texts)."""
    columns = []
    for nodes in graphs(matcher, images, texts):
        for step in matcher.steps:
            query, key = step.query(nodes), step.key(nodes)
            edges = torch.softmax(torch.bmm(query, key.transpose(1, 2)), -1)
            nodes = functional.relu(step.out(torch.bmm(edges, nodes)))
        columns.append(torch.sigmoid(matcher.head(nodes[:, 0])))
    return torch.cat(columns, 1)


def saf_loop(matcher: Saf, images: Codes, texts: Codes) -> Tensor:
    """The same for SAF with the running statistics of its norm, (n_images, n_texts)."""
    norm = matcher.gate_norm
    assert norm.running_mean is not None and norm.running_var is not None
    columns = []
    for nodes in graphs(matcher, images, texts):
        logits = (matcher.gate(nodes) - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
        gates = torch.sigmoid(logits * norm.weight + norm.bias).squeeze(-1)
        weights = gates / gates.abs().sum(1, keepdim=True)
        vector = unit(torch.bmm(weights.unsqueeze(1), nodes).squeeze(1))
        columns.append(torch.sigmoid(matcher.head(vector)))
    return torch.cat(columns, 1)


def graphs(matcher: Sgr | Saf, images: Codes, texts: Codes) -> list[Tensor]:
    """For each caption its nodes with every image, (n_images, words + 1, similarity_dim)."""
    assert images.tokens is not None and texts.tokens is not None
    found = []
    for number in range(len(texts)):
        length = texts.tokens.shape[1] if texts.mask is None else int(texts.mask[number].sum())
        words = texts.tokens[number, :length].unsqueeze(0).repeat(len(images), 1, 1)
        context = attended(words, images.tokens, images.mask)
        local = unit(matcher.local(torch.pow(torch.sub(context, words), 2)))
        whole = unit(matcher.whole(torch.pow(torch.sub(images.vectors, texts.vectors[number : number + 1]), 2)))
        found.append(torch.cat([whole.unsqueeze(1), local], 1))
    return found


def attended(words: Tensor, regions: Tensor, mask: Tensor | None, sharpness: float = 9.0) -> Tensor:
    """Unit vectors of the regions that each word attends to, words (n, L, d) and regions (n, R, d) to (n, L, d)."""
    affinity = torch.bmm(regions, words.transpose(1, 2))
    affinity = unit(functional.leaky_relu(affinity, 0.1), 2)
    affinity = affinity.transpose(1, 2).contiguous() * sharpness
    if mask is not None:
        affinity = affinity.masked_fill(~mask.unsqueeze(1), -torch.inf)
    weights = torch.softmax(affinity, 2).transpose(1, 2).contiguous()
    return unit(torch.bmm(regions.transpose(1, 2), weights).transpose(1, 2))


def image_vector(matcher: Sgr | Saf, regions: Tensor) -> Tensor:
    """Global vector of one image from its unit region codes (R, d), in evaluation mode, (d,)."""
    attention = matcher.image_attention
    local, whole = attention.local(regions), attention.whole(regions.mean(0))
    norm = attention.local_norm
    assert norm.running_mean is not None and norm.running_var is not None
    place = (slice(None), None) if attention.slots else (None, slice(None))
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    local = (local - norm.running_mean[place]) * scale[place] + norm.bias[place]
    norm = attention.whole_norm
    assert norm.running_mean is not None and norm.running_var is not None
    whole = (whole - norm.running_mean) * norm.weight / (norm.running_var + norm.eps).sqrt() + norm.bias
    weights = torch.softmax(attention.common(torch.tanh(local) * torch.tanh(whole)).squeeze(1), 0)
    return unit((weights[:, None] * regions).sum(0))


def text_vector(matcher: Sgr | Saf, words: Tensor) -> Tensor:
    """Global vector of one text from its unit word codes (L, d), in evaluation mode, (d,)."""
    attention = matcher.text_attention
    local, whole = torch.tanh(attention.local(words)), torch.tanh(attention.whole(words.mean(0)))
    weights = torch.softmax(attention.common(local * whole).squeeze(1), 0)
    return unit((weights[:, None] * words).sum(0))
