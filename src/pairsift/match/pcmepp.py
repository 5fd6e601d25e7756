"""The matcher PCME++: Gaussian embeddings whose expected distance has a closed form."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from pairsift.encode.features import Items
from pairsift.match.base import Codes, inverse_temperature, products
from pairsift.match.heads import GaussianHead, HeadSizes, VectorMatcher, divergence
from pairsift.options import Options


class DistanceOptions(Options):
    """The options of `ExpectedDistance`."""

    slope: float = Field(default=5.0, gt=0, le=50, description="Where a starts, the factor of the distance.")
    shift: float = Field(default=5.0, description="Where b starts, the logit of a match at distance 0.")
    spread: float = Field(default=0.1, gt=0, description="Where the sum of the variances of an item starts.")
    vib: float = Field(
        default=1e-4, ge=0, description="Weight of the divergence from a standard normal (variational bottleneck)."
    )


class PcmeppOptions(HeadSizes, DistanceOptions):
    """The options of `Pcmepp`."""


class ExpectedDistance(nn.Module):
    """The learned logit of a match by the expected squared distance of two Gaussians, as an inner product.

    Args:
        options: See `DistanceOptions`.

    Attributes:
        behind: Entries behind a mean in the vectors of the inner product.
        spread: Where the sum of the variances of an item starts.
    """

    behind: ClassVar[int] = 2

    def __init__(self, options: DistanceOptions) -> None:
        super().__init__()
        self.vib, self.spread = options.vib, options.spread
        self.log_scale = nn.Parameter(torch.tensor(math.log(2 * options.slope)))  # of 2 a
        self.shift = nn.Parameter(torch.tensor(options.shift))

    def codes(self, mean: Tensor, log_variance: Tensor, images: bool) -> Codes:
        """Return means as codes; `variance` holds the sums of the variances, (n,).

        Args:
            mean: Of unit length, (n, d).
            log_variance: (n, d).
            images: Whether the items are images.
        """
        variance = log_variance.exp().sum(1, keepdim=True)
        one = torch.ones_like(variance)
        ends = (self.shift / self.scale() - 1 - variance / 2, one) if images else (one, -variance / 2)
        extra = {"variance": variance[:, 0], "divergence": divergence(mean, log_variance)}
        return Codes(mean, index=torch.cat([mean, *ends], 1), extra=extra)

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the logits over the scale, (n_images, n_texts)."""
        return products(images.indexed, texts.indexed)

    def penalty(self, images: Codes, texts: Codes) -> Tensor | None:
        """Return the weighted divergences of image and caption from a standard normal distribution, (B,)."""
        return self.vib * (images.extra["divergence"] + texts.extra["divergence"]) if self.vib else None

    def scale(self) -> Tensor:
        """Return 2 a, at most 100."""
        return inverse_temperature(self.log_scale)


class Pcmepp(VectorMatcher):
    """A matcher with a Gaussian of diagonal covariance per item and the expected squared distance of two of them.

    Chun, Improved Probabilistic Image-Text Representations, ICLR 2024 (PCME++). With means of unit length, the distance
    of samples is expected to be (Eq. 1)

        d = norm(mu_v - mu_t)^2 + sum sigma_v^2 + sum sigma_t^2 = 2 - 2 mu_v . mu_t + sum sigma_v^2 + sum sigma_t^2,

    and the logit of a match is -a d + b with learned a and b. The similarity is the logit over 2 a, the scale: the
    cosine of the means less half of both sums, moved by b / (2 a) - 1, so that it is positive where a match is more
    likely than not. Two entries behind each mean make it an inner product:

        (mu_v, b / (2 a) - 1 - sum sigma_v^2 / 2, 1) . (mu_t, 1, -sum sigma_t^2 / 2)

    The paper fine-tunes CLIP with one more transformer block for the variances, as `--clip.head pcmepp` does; here
    heads on frozen vectors take their place. Mixed images and averaged weights are not implemented; pseudo-positives
    and smooth labels belong to the loss (`pairsift.loss.ranking.BCE`).

    Args:
        image_dim: Length of the feature vector of an image.
        text_dim: Length of the feature vector of a text.
        options: See `PcmeppOptions`.
    """

    name: ClassVar[str] = "pcmepp"
    options: ClassVar[type[Options]] = PcmeppOptions
    loss: ClassVar[str | None] = "bce"

    def __init__(self, image_dim: int, text_dim: int, options: PcmeppOptions = PcmeppOptions()) -> None:
        super().__init__()
        self.dim = options.dim
        self.image_head = GaussianHead(image_dim, options, options.spread)
        self.text_head = GaussianHead(text_dim, options, options.spread)
        self.distance = ExpectedDistance(options)

    @property
    def index_dim(self) -> int:
        """Length of the vectors whose inner product is the similarity, dim + 2."""
        return self.dim + self.distance.behind

    def encode_images(self, items: Items) -> Codes:
        """Return means of images, (n, dim), of unit length; `variance` holds the sums of their variances, (n,)."""
        mean, log_variance = self.image_head(items.values)
        return self.distance.codes(mean, log_variance, images=True)

    def encode_texts(self, items: Items) -> Codes:
        """Return means of texts, (n, dim), of unit length; `variance` holds the sums of their variances, (n,)."""
        mean, log_variance = self.text_head(items.values)
        return self.distance.codes(mean, log_variance, images=False)

    def penalty(self, images: Codes, texts: Codes, exclude: Tensor, y: Tensor) -> Tensor | None:
        """Return the weighted divergences of image and caption from a standard normal distribution, (B,)."""
        return self.distance.penalty(images, texts)

    def scale(self) -> Tensor:
        """Return 2 a, at most 100."""
        return self.distance.scale()
