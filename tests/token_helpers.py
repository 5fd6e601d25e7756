"""A tiny matcher whose similarity needs tokens, and features for it."""

from typing import ClassVar

import numpy as np
import torch
from torch import nn

from pairsift.encode.features import Features, Table
from pairsift.match.base import Codes, Matcher, unit
from pairsift.match.cross_attention import compare_all, compare_pairs
from pairsift.match.token_encoders import token_mask


class Late(Matcher):
    """Each word's largest inner product with a region, averaged over words; drops out while training."""

    name: ClassVar[str] = "late"
    image_kind: ClassVar = "regions"
    text_kind: ClassVar = "ids"
    factorises: ClassVar[bool] = False
    has_tokens: ClassVar[bool] = True

    def __init__(self, image_dim: int, vocabulary_size: int, dim: int = 16) -> None:
        super().__init__()
        self.dim = dim
        self.regions, self.words = nn.Linear(image_dim, dim), nn.Embedding(vocabulary_size, dim)
        self.dropout = nn.Dropout(0.5)
        self.compared = 0

    def encode_images(self, items):
        return self._codes(self.regions(items.values), token_mask(items))

    def encode_texts(self, items):
        return self._codes(self.words(items.values), token_mask(items))

    def _codes(self, tokens, mask):
        tokens = unit(tokens) * mask[..., None]
        return Codes(unit(tokens.sum(1)), tokens, mask)

    def similarity(self, images, texts):
        self.compared += len(images) * len(texts)
        return self.dropout(compare_all(self._compare, images, texts))

    def pair_similarity(self, images, texts):
        return self.dropout(compare_pairs(self._compare, images, texts))

    def _compare(self, images, texts):
        products = images.tokens @ texts.tokens.flatten(1, 2).transpose(1, 2)
        if images.mask is not None:
            products = products.masked_fill(~images.mask[..., None], -torch.inf)
        return products.amax(1).unflatten(1, texts.tokens.shape[1:3]).mean(2)


def naive(matcher, images, texts):
    """Similarities of (regions, image_dim) arrays with (length,) arrays of ids, one pair and one word at a time."""
    found = np.zeros((len(images), len(texts)))
    with torch.no_grad():
        for i, image in enumerate(images):
            regions = unit(matcher.regions(torch.from_numpy(image)))
            for j, text in enumerate(texts):
                words = unit(matcher.words(torch.from_numpy(text)))
                found[i, j] = np.mean([max(float(region @ word) for region in regions) for word in words])
    return found


def make_matchers(n=2, vocabulary=30, image_dim=6):
    torch.manual_seed(0)
    return [Late(image_dim, vocabulary) for _ in range(n)]


def make_features(n_images, n_texts, ragged=False, longest=9):
    """Random features, as arrays for each item and as tables."""
    rng = np.random.default_rng(n_images)
    images = [rng.normal(size=(rng.integers(1, 6) if ragged else 4, 6)).astype(np.float32) for _ in range(n_images)]
    texts = [rng.integers(0, 30, rng.integers(1, longest + 1)) for _ in range(n_texts)]
    table = Table.from_items(images) if ragged else Table(np.stack(images))
    return images, texts, Features(table, Table.from_items(texts))
