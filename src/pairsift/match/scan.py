"""Stacked cross attention between regions and words: SCAN."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from pairsift.errors import InputError
from pairsift.match import attend, blocks
from pairsift.match.base import Codes
from pairsift.match.states import Linear, RegionsAndWords, Words


class Scan(RegionsAndWords):
    """SCAN (Lee et al., Stacked Cross Attention for Image-Text Matching, ECCV 2018), without attended vectors.

    In the direction `t2i` each word attends to the regions, and the word's relevance is its cosine with what it attends
    to; in `i2t` each region attends to the words. The similarity pools the relevances r_q:

        mean:  1/Q sum_q r_q                lse:  1/lambda_lse log sum_q exp(lambda_lse r_q)

    so `lse` grows with the number of queries, by log(Q) / lambda_lse, and can exceed 1. `both` is the paper's ensemble:
    the mean of the two directions' similarities, here of one network instead of two trained apart.

    The relevances come from the affinities and the Gram matrix of the context (`attend`), which is exact: for a pair of
    an image and a word, `dim` floats become as many as there are regions, and no loop over captions is left. Following
    the published code, the rows of the affinity are normalised over the queries after a leaky ReLU.

    Args:
        image_dim: Length of a region's feature vector.
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        dim: Length of the common vectors.
        word_dim: Length of a word vector.
        direction: `t2i`, `i2t` or `both`.
        pooling: `mean` or `lse`.
        lambda_t2i: Sharpness of a word's attention to regions.
        lambda_i2t: Sharpness of a region's attention to words.
        lse_t2i: lambda_lse over words, above 0.
        lse_i2t: lambda_lse over regions, above 0; the paper takes 5 on Flickr30K and 20 on COCO.

    Raises:
        InputError: No such direction or pooling, or a lambda_lse that is not above 0.
    """

    name: ClassVar[str] = "scan"

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        image_dim: int,
        vocabulary_size: int,
        dim: int = 1024,
        word_dim: int = 300,
        direction: Literal["t2i", "i2t", "both"] = "t2i",
        pooling: Literal["mean", "lse"] = "mean",
        lambda_t2i: float = 9.0,
        lambda_i2t: float = 4.0,
        lse_t2i: float = 6.0,
        lse_i2t: float = 5.0,
    ) -> None:
        super().__init__()
        if direction not in ("t2i", "i2t", "both"):
            raise InputError(f"scan.direction is {direction!r}; it must be t2i, i2t or both")
        if pooling not in ("mean", "lse"):
            raise InputError(f"scan.pooling is {pooling!r}; it must be mean or lse")
        if pooling == "lse" and min(lse_t2i, lse_i2t) <= 0:
            raise InputError("scan.lse_t2i and scan.lse_i2t must be above 0")
        self.dim = dim
        self.direction, self.pooling = direction, pooling
        self.sharpness = {"t2i": lambda_t2i, "i2t": lambda_i2t}
        self.lse = {"t2i": lse_t2i, "i2t": lse_i2t}
        self.regions = Linear(image_dim, dim)
        self.words = Words(vocabulary_size, word_dim, dim)

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Similarity of every image with every text, (n_images, n_texts)."""
        return blocks.cross_products(self._compare, blocks.front(images), texts)

    def pair_similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Similarity of every image with the text in the same place, (n,)."""
        return blocks.paired_products(self._compare, blocks.front(images), texts)

    def _compare(self, products: attend.Products) -> Tensor:
        """Products of n images and m texts, or of n images with one text each, to (n, m) or (n, 1)."""
        total = torch.zeros((), device=products.affinity.device)
        if self.direction != "i2t":
            total = total + self._pool(products, "t2i")
        if self.direction != "t2i":
            turned = self._pool(products.turned(), "i2t")
            total = total + (turned.T if len(products.queries) == 1 else turned)
        return total / 2 if self.direction == "both" else total

    def _pool(self, products: attend.Products, direction: str) -> Tensor:
        """Relevances of the queries' tokens pooled, (n, m)."""
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
