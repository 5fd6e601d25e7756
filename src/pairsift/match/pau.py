"""The matcher PAU: two towers beside prototypes of both modalities, whose evidence tells how vague an item is."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from pairsift.encode.features import Items
from pairsift.match.base import Codes, at_least_float32, products, unit
from pairsift.match.heads import HeadSizes, ResidualHead, VectorMatcher
from pairsift.options import Options

SOFTENING = 5.0  # divisor of the logits before they are evidence
TEMPERATURE = 0.07  # where the softmax temperature starts


class PauOptions(HeadSizes):
    """The options of `Pau`."""

    prototypes: int = Field(default=8, ge=2, description="Prototypes of each modality, K.")
    regression: float = Field(default=0.5, ge=0, description="Weight of the squared error of the vagueness.")
    diversity: float = Field(default=0.015, ge=0, description="Weight of the squared logits between prototypes.")
    rerank: float = Field(
        default=0.1, ge=0, description="How much vague items lose in evaluation, beta; 0 for the cosine alone."
    )


class Pau(VectorMatcher):
    """A matcher with residual heads, a learned temperature and prototypes that measure how vague an item is.

    Li et al., Prototype-based Aleatoric Uncertainty Quantification for Cross-modal Retrieval, NeurIPS 2023. An item f
    has evidence for the K prototypes q_k of the other modality (with tau the temperature), and from it a vagueness,

        e_k = exp( cos(f, q_k) / (5 tau) ),    u = 1 - K / sum_k (e_k + 1),  in (0, 1).

    Two terms join the ranking loss of each pair: the squared difference of u and the item's mean similarity with the
    negatives of the batch, scaled to [0, 1] over the batch, for image and caption; and the mean of the squared logits
    cos(q_k, q_l) / (5 tau) between different prototypes, for both modalities. In evaluation the similarity is

        S = cos(v, t) exp(-beta u_v) exp(-beta u_t),

    an inner product of scaled vectors. In training it is the cosine. The paper fine-tunes CLIP and seeks beta on the
    split that it evaluates; here it is an option. The published code calls 1 - K / sum(e + 1) the uncertainty, as here.

    Args:
        image_dim: Length of the feature vector of an image.
        text_dim: Length of the feature vector of a text.
        options: See `PauOptions`.
    """

    name: ClassVar[str] = "pau"
    options: ClassVar[type[Options]] = PauOptions

    def __init__(self, image_dim: int, text_dim: int, options: PauOptions = PauOptions()) -> None:
        super().__init__()
        self.dim = options.dim
        self.weights = options.regression, options.diversity
        self.rerank = options.rerank
        self.image_head = ResidualHead(image_dim, options)
        self.text_head = ResidualHead(text_dim, options)
        self.image_prototypes = nn.Parameter(torch.randn(options.prototypes, options.dim) / options.dim**0.5)
        self.text_prototypes = nn.Parameter(torch.randn(options.prototypes, options.dim) / options.dim**0.5)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(TEMPERATURE)))

    def encode_images(self, items: Items) -> Codes:
        """Return unit vectors of images, (n, dim), with their vagueness by the prototypes of texts, (n,)."""
        return self._codes(unit(at_least_float32(self.image_head(items.values))), self.text_prototypes)

    def encode_texts(self, items: Items) -> Codes:
        """Return unit vectors of texts, (n, dim), with their vagueness by the prototypes of images, (n,)."""
        return self._codes(unit(at_least_float32(self.text_head(items.values))), self.image_prototypes)

    def _codes(self, vectors: Tensor, prototypes: Tensor) -> Codes:
        vagueness = 1 - 1 / (self._logits(vectors, prototypes).exp() + 1).mean(1)
        index = None if self.training else vectors * (-self.rerank * vagueness).exp()[:, None]
        return Codes(vectors, index=index, extra={"vagueness": vagueness})

    def _logits(self, vectors: Tensor, prototypes: Tensor) -> Tensor:
        """Return the logits of unit vectors with prototypes, (n, K); the temperature has no gradient."""
        return products(vectors, unit(at_least_float32(prototypes))) * self.scale().detach() / SOFTENING

    def penalty(self, images: Codes, texts: Codes, exclude: Tensor, y: Tensor) -> Tensor | None:
        """Return the weighted errors of the vagueness of image and caption and the prototypes' squared logits, (B,)."""
        regression, diversity = self.weights
        with torch.no_grad():
            similarity = products(images.vectors, texts.vectors)
            negatives = ~(exclude | torch.eye(len(exclude), dtype=torch.bool, device=exclude.device))
        total = torch.zeros_like(images.vectors[:, 0])
        for side, codes in ((1, images), (0, texts)):
            level = (similarity * negatives).sum(side) / negatives.sum(side).clamp(min=1)
            low, high = level.aminmax()
            target = (level - low) / (high - low).clamp(min=1e-6)
            total = total + regression * (codes.extra["vagueness"] - target).square()
        for prototypes in (self.image_prototypes, self.text_prototypes):
            logits = self._logits(unit(at_least_float32(prototypes)), prototypes)
            others = ~torch.eye(len(logits), dtype=torch.bool, device=logits.device)
            total = total + diversity * logits[others].square().mean()
        return total
