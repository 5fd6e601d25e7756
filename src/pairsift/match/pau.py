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
LEAST_LEVEL = 0.05  # least mean similarity with negatives that targets are divided by; a CLIP's lies above


class PrototypeOptions(Options):
    """The options of `Prototypes`."""

    prototypes: int = Field(default=8, ge=2, description="Prototypes of each modality, K.")
    regression: float = Field(default=0.5, ge=0, description="Weight of the squared error of the vagueness.")
    diversity: float = Field(default=0.015, ge=0, description="Weight of the squared logits between prototypes.")
    rerank: float = Field(
        default=0.1, ge=0, description="How much vague items lose in evaluation, beta; 0 for the cosine alone."
    )


class PauOptions(HeadSizes, PrototypeOptions):
    """The options of `Pau`."""


class Prototypes(nn.Module):
    """The prototypes of images and of texts, and what PAU learns and ranks by them.

    Args:
        dim: Length of a vector.
        options: See `PrototypeOptions`.
    """

    def __init__(self, dim: int, options: PrototypeOptions) -> None:
        super().__init__()
        self.weights = options.regression, options.diversity
        self.rerank = options.rerank
        self.images = nn.Parameter(nn.init.xavier_uniform_(torch.empty(options.prototypes, dim)))
        self.texts = nn.Parameter(nn.init.xavier_uniform_(torch.empty(options.prototypes, dim)))

    def codes(self, vectors: Tensor, others: Tensor, scale: Tensor) -> Codes:
        """Return codes with the vagueness of each vector, and with vectors scaled by it where nothing is trained.

        Args:
            vectors: Of unit length, (n, dim).
            others: Prototypes of the other modality, (K, dim).
            scale: Inverse temperature, scalar.
        """
        evidence = (_cosines(vectors, others) * scale / SOFTENING).exp()
        vagueness = 1 - 1 / (evidence + 1).mean(1)
        index = None if self.training else vectors * (-self.rerank * vagueness).exp()[:, None]
        return Codes(vectors, index=index, extra={"vagueness": vagueness})

    def penalty(self, images: Codes, texts: Codes, exclude: Tensor, scale: Tensor) -> Tensor:
        """Return the weighted terms of vagueness and diversity for each pair, (B,).

        Args:
            images: Codes of the images of a step, (B, ...).
            texts: Codes of the captions beside them, (B, ...).
            exclude: True where row i and column j are not negatives of each other, (B, B).
            scale: Inverse temperature, scalar.
        """
        regression, diversity = self.weights
        negatives = ~(exclude | torch.eye(len(exclude), dtype=torch.bool, device=exclude.device))
        similarity = products(images.vectors, texts.vectors) * negatives
        total = torch.zeros_like(images.vectors[:, 0])
        for side, codes in ((1, images), (0, texts)):
            vagueness = codes.extra["vagueness"]
            level = similarity.sum(side) / negatives.sum(side).clamp(min=1)
            target = level * vagueness.mean() / level.mean().clamp(min=LEAST_LEVEL)
            total = total + regression / 2 * (vagueness - target).square()
        for prototypes in (self.images, self.texts):
            cosine = _cosines(unit(at_least_float32(prototypes)), prototypes)
            others = ~torch.eye(len(cosine), dtype=torch.bool, device=cosine.device)
            total = total + diversity * (cosine * others * scale).square().mean()
        return total


def _cosines(vectors: Tensor, prototypes: Tensor) -> Tensor:
    """Return the cosines of unit vectors with prototypes, (n, K)."""
    return products(vectors, unit(at_least_float32(prototypes)))


class Pau(VectorMatcher):
    """A matcher with residual heads, a learned temperature and prototypes that measure how vague an item is.

    Li et al., Prototype-based Aleatoric Uncertainty Quantification for Cross-modal Retrieval, NeurIPS 2023. An item f
    has evidence for the K prototypes q_k of the other modality (with tau the temperature), and from it a vagueness,

        e_k = exp( cos(f, q_k) / (5 tau) ),    u = 1 - K / sum_k (e_k + 1),  in (0, 1).

    Two terms join the ranking loss of each pair. With m the item's mean similarity with the negatives of the batch, u
    is to be proportional to m: the squared difference of u and m mean(u) / mean(m), a mean over image and caption. And
    the mean over all K^2 entries of the squared logits cos(q_k, q_l) / tau, 0 on the diagonal, for both modalities. In
    evaluation the similarity is

        S = cos(v, t) exp(-beta u_v) exp(-beta u_t),

    an inner product of scaled vectors. In training it is the cosine. The published code calls 1 - K / sum(e + 1) the
    uncertainty, as here, and all its terms have gradients for the temperature. The paper fine-tunes CLIP, as
    `--clip.head pau` does, and seeks beta on the split that it evaluates; here it is an option. On frozen vectors
    mean(m) may be near 0 or below, so it is taken for 0.05 at least.

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
        self.image_head = ResidualHead(image_dim, options)
        self.text_head = ResidualHead(text_dim, options)
        self.prototypes = Prototypes(options.dim, options)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(TEMPERATURE)))

    @property
    def shares_space(self) -> bool:
        """Whether vague items lose nothing, so that the similarity is the cosine."""
        return self.prototypes.rerank == 0

    def encode_images(self, items: Items) -> Codes:
        """Return unit vectors of images, (n, dim), with their vagueness by the prototypes of texts, (n,)."""
        vectors = unit(at_least_float32(self.image_head(items.values)))
        return self.prototypes.codes(vectors, self.prototypes.texts, self.scale())

    def encode_texts(self, items: Items) -> Codes:
        """Return unit vectors of texts, (n, dim), with their vagueness by the prototypes of images, (n,)."""
        vectors = unit(at_least_float32(self.text_head(items.values)))
        return self.prototypes.codes(vectors, self.prototypes.images, self.scale())

    def penalty(self, images: Codes, texts: Codes, exclude: Tensor, y: Tensor) -> Tensor | None:
        """Return the weighted terms of vagueness and diversity for each pair, (B,)."""
        return self.prototypes.penalty(images, texts, exclude, self.scale())
