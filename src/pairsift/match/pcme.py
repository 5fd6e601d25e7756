"""The matcher PCME: Gaussian embeddings, matched by the distances of samples."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from pairsift.encode.features import Items
from pairsift.match.base import Codes, at_least_float32, inverse_temperature, products
from pairsift.match.heads import GaussianHead, HeadSizes, VectorMatcher, divergence
from pairsift.options import Options

NEAREST = 1e-12  # added to squared distances, so that the gradient of their root is finite


class SampleOptions(Options):
    """The options of `SampledDistance`."""

    slope: float = Field(default=5.0, gt=0, description="Initial value of a, the factor of the distance.")
    shift: float = Field(
        default=5.0, gt=0, description="Initial value of b; the match probability is one half at distance b / a."
    )
    samples: int = Field(default=7, ge=1, description="Samples of an item in a step, J; a pair has J^2 distances.")
    kl: float = Field(
        default=1e-5,
        ge=0,
        description="Weight of the sum of all divergences from a standard normal, beside the sum over all pairs.",
    )


class PcmeOptions(HeadSizes, SampleOptions):
    """The options of `Pcme`."""


class SampledDistance(nn.Module):
    """The learned probability of a match by distances of samples, and by the means alone in evaluation.

    Args:
        options: See `SampleOptions`.

    Attributes:
        behind: Entries behind a mean in the vectors of the inner product in evaluation.
        spread: Where the sum of the variances of an item starts.
    """

    behind: ClassVar[int] = 1
    spread: ClassVar[float] = 0.1

    def __init__(self, options: SampleOptions) -> None:
        super().__init__()
        self.samples, self.kl = options.samples, options.kl
        self.log_slope = nn.Parameter(torch.tensor(math.log(options.slope)))
        self.log_shift = nn.Parameter(torch.tensor(math.log(options.shift)))

    def codes(self, mean: Tensor, log_variance: Tensor, images: bool) -> Codes:
        """Return means as codes, in training with their samples, (n, J, d).

        Args:
            mean: Of unit length, (n, d).
            log_variance: (n, d).
            images: Whether the items are images.
        """
        end = mean.new_ones(len(mean), 1)
        if images:
            end = ((self.log_shift - self.log_slope).mul(2).exp() / 2 - 1).expand(len(mean), 1)
        extra = {"divergence": divergence(mean, log_variance)}
        if self.training:
            noise = torch.randn(len(mean), self.samples, mean.shape[1], dtype=mean.dtype, device=mean.device)
            extra["samples"] = mean[:, None] + (log_variance / 2).exp()[:, None] * noise
        return Codes(mean, index=torch.cat([mean, end], 1), extra=extra)

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the logits of the match probabilities over the scale; without samples, the similarity of the means."""
        if "samples" not in images.extra:
            return products(images.indexed, texts.indexed)
        return self._logits(images.extra["samples"], texts.extra["samples"]) / self.scale()

    def _logits(self, images: Tensor, texts: Tensor) -> Tensor:
        """Return log p - log(1 - p) of all images with all texts, (n, m), from samples, (n, J, dim) and (m, J, dim)."""
        left, right = at_least_float32(images).flatten(0, 1), at_least_float32(texts).flatten(0, 1)
        squares = left.square().sum(1)[:, None] + right.square().sum(1) - 2 * products(left, right)
        distance = (squares.clamp(min=0) + NEAREST).sqrt()
        logits = 2 * (self.log_shift.exp() - self.log_slope.exp() * distance)
        matching = functional.logsigmoid(logits)
        axes = (1, 3)
        shape = len(images), images.shape[1], len(texts), texts.shape[1]
        return matching.view(shape).logsumexp(axes) - (matching - logits).view(shape).logsumexp(axes)

    def penalty(self, images: Codes, texts: Codes) -> Tensor | None:
        """Return the weighted divergences of image and caption from a standard normal distribution, (B,).

        The paper adds the sum over B items and D directions to a sum over B x B pairs. Beside a mean over the pairs,
        and with the mean over the directions, the weight is D / B times as large.
        """
        weight = self.kl * images.vectors.shape[1] / len(images)
        return weight * (images.extra["divergence"] + texts.extra["divergence"]) if self.kl else None

    def scale(self) -> Tensor:
        """Return 2 a^2 / b, at most 100."""
        return inverse_temperature(math.log(2) + 2 * self.log_slope - self.log_shift)


class Pcme(VectorMatcher):
    """A matcher with a Gaussian per item, whose match probability in training is a mean over samples.

    Chun et al., Probabilistic Embeddings for Cross-Modal Retrieval, CVPR 2021. Each item draws J samples z, and the
    probability that image and caption match is the mean over all J^2 pairs of samples (Eq. 4 and 5)

        p = mean_jk sigmoid( 2 (b - a norm(z^v_j - z^t_k)) ),

    with learned a and b above 0. The similarity in training is the logit of p over the scale, so that the ranking loss
    `bce` is the soft contrastive loss of the paper; the distances come from inner products. In evaluation the means
    alone are compared, as in the paper: the similarity is their cosine less 1 - (b / a)^2 / 2, the cosine where
    means without variance match as likely as not, and the scale is the slope of the logit there, 2 a^2 / b.

    The paper fine-tunes a ResNet and a GRU with attention pools; here heads on frozen vectors take their place.
    `--clip.head pcme` fine-tunes a CLIP.

    Args:
        image_dim: Length of the feature vector of an image.
        text_dim: Length of the feature vector of a text.
        options: See `PcmeOptions`.
    """

    name: ClassVar[str] = "pcme"
    options: ClassVar[type[Options]] = PcmeOptions
    loss: ClassVar[str | None] = "bce"

    def __init__(self, image_dim: int, text_dim: int, options: PcmeOptions = PcmeOptions()) -> None:
        super().__init__()
        self.dim = options.dim
        self.distance = SampledDistance(options)
        self.image_head = GaussianHead(image_dim, options, self.distance.spread)
        self.text_head = GaussianHead(text_dim, options, self.distance.spread)

    @property
    def index_dim(self) -> int:
        """Length of the vectors whose inner product is the similarity in evaluation, dim + 1."""
        return self.dim + self.distance.behind

    def encode_images(self, items: Items) -> Codes:
        """Return means of images, (n, dim), of unit length; in training with their samples, (n, J, dim)."""
        mean, log_variance = self.image_head(items.values)
        return self.distance.codes(mean, log_variance, images=True)

    def encode_texts(self, items: Items) -> Codes:
        """Return means of texts, (n, dim), of unit length; in training with their samples, (n, J, dim)."""
        mean, log_variance = self.text_head(items.values)
        return self.distance.codes(mean, log_variance, images=False)

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the logits of the match probabilities over the scale; without samples, the similarity of the means."""
        return self.distance.similarity(images, texts)

    def penalty(self, images: Codes, texts: Codes, exclude: Tensor, y: Tensor) -> Tensor | None:
        """Return the weighted divergences of image and caption from a standard normal distribution, (B,)."""
        return self.distance.penalty(images, texts)

    def scale(self) -> Tensor:
        """Return 2 a^2 / b, at most 100."""
        return self.distance.scale()
