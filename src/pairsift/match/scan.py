"""The stacked cross attention between regions and words: SCAN."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from pairsift.match.base import Codes
from pairsift.match.cross_attention import (
    TokenProducts,
    compare_all_by_products,
    compare_pairs_by_products,
    right_padded,
)
from pairsift.match.layers import Linear
from pairsift.match.token_encoders import GruSizes, RegionsAndWords, Words
from pairsift.options import Options


class ScanOptions(GruSizes):
    """The options of `Scan`."""

    direction: Literal["t2i", "i2t", "both"] = Field(
        default="t2i", description="Words attend to regions (t2i), regions to words (i2t), or both."
    )
    pooling: Literal["mean", "lse"] = Field(default="mean", description="How relevances become a similarity.")
    lambda_t2i: float = Field(default=9.0, description="Sharpness of a word's attention to regions.")
    lambda_i2t: float = Field(default=4.0, description="Sharpness of a region's attention to words.")
    lse_t2i: float = Field(default=6.0, gt=0, description="lambda_lse over words.")
    lse_i2t: float = Field(
        default=5.0, gt=0, description="lambda_lse over regions; the paper takes 5 on Flickr30K and 20 on COCO."
    )


class Scan(RegionsAndWords):
    """The SCAN matcher (Lee et al., Stacked Cross Attention for Image-Text Matching, ECCV 2018).

    In the direction `t2i` each word attends to the regions, and the relevance of the word is its cosine with the
    attended vector. In `i2t` each region attends to the words. The similarity pools the relevances r_q of the queries:

        mean:  1/Q sum_q r_q                lse:  1/lambda_lse log sum_q exp(lambda_lse r_q)

    `lse` grows with the number of queries, by log(Q) / lambda_lse, and can exceed 1. `both` is the ensemble of the
    paper, the mean of the similarities of both directions. Here one network computes both; the paper trains two
    networks separately.

    The relevances are computed exactly from the affinities and the Gram matrix of the context (`cross_attention`),
    without attended vectors. For a pair of an image and a word this needs one float per region instead of `dim` floats,
    and no loop over captions. As in the published code, the rows of the affinity are normalised over the queries after
    a leaky ReLU.

    Args:
        image_dim: Length of a region's feature vector.
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        options: See `ScanOptions`.
    """

    name: ClassVar[str] = "scan"
    options: ClassVar[type[Options]] = ScanOptions

    def __init__(self, image_dim: int, vocabulary_size: int, options: ScanOptions = ScanOptions()) -> None:
        super().__init__()
        self.dim = options.dim
        self.direction, self.pooling = options.direction, options.pooling
        self.sharpness = {"t2i": options.lambda_t2i, "i2t": options.lambda_i2t}
        self.lse = {"t2i": options.lse_t2i, "i2t": options.lse_i2t}
        self.regions = Linear(image_dim, options.dim)
        self.words = Words.make(vocabulary_size, options)

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the similarity of every image with every text, (n_images, n_texts)."""
        return compare_all_by_products(self._compare, right_padded(images), texts)

    def pair_similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the similarity of every image with the text at the same position, (n,)."""
        return compare_pairs_by_products(self._compare, right_padded(images), texts)

    def _compare(self, products: TokenProducts) -> Tensor:
        """Return similarities from the products of n images with m texts, (n, m), or with one text each, (n, 1)."""
        total = torch.zeros((), device=products.affinity.device)
        if self.direction != "i2t":
            total = total + self._pool(products, "t2i")
        if self.direction != "t2i":
            swapped = self._pool(products.swapped(), "i2t")
            total = total + (swapped.T if len(products.queries) == 1 else swapped)
        return total / 2 if self.direction == "both" else total

    def _pool(self, products: TokenProducts, direction: str) -> Tensor:
        """Pool the relevances of the tokens of the queries, (n, m)."""
        relevance, mask = products.relevance(self.sharpness[direction]), products.query_mask
        if self.pooling == "mean":
            if mask is None:
                return relevance.mean(-1)
            return relevance.masked_fill(~mask, 0.0).sum(-1) / mask.sum(-1)
        sharpness = self.lse[direction]
        logits = relevance * sharpness
        if mask is not None:
            logits = logits.masked_fill(~mask, -torch.inf)
        return logits.logsumexp(-1) / sharpness
