"""Trainable heads on frozen vectors: residual perceptrons, and Gaussians with a mean and variances."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from pairsift.match.base import ImageKind, Matcher, TextKind, at_least_float32, inverse_temperature, unit
from pairsift.match.layers import Dropout
from pairsift.options import Options


class HeadSizes(Options):
    """The sizes of a residual head."""

    dim: int = Field(default=1024, ge=1, description="Length of the common vectors.")
    hidden: int = Field(default=512, ge=1, description="Width inside a residual block.")
    depth: int = Field(default=1, ge=0, description="Residual blocks per head.")
    dropout: float = Field(default=0.4, ge=0, lt=1, description="Probability of dropping a hidden unit.")


class VectorMatcher(Matcher):
    """The base class of matchers of one frozen vector for each image and text, with a learned temperature.

    Attributes:
        log_scale: Logarithm of the inverse temperature.
    """

    image_kind: ClassVar[ImageKind] = "vector"
    text_kind: ClassVar[TextKind] = "vector"
    preset: ClassVar[str] = "two_tower"
    log_scale: nn.Parameter

    def scale(self) -> Tensor:
        """Return the learned inverse temperature, at most 100."""
        return inverse_temperature(self.log_scale)


class ResidualHead(nn.Module):
    """A linear projection of normalised vectors with residual blocks: norm, linear, GELU, dropout, linear.

    The last linear layer of a block starts at zero, so training starts from the linear projection. A head that starts
    as the identity adds a projection that starts at zero to the unit vector times sqrt(dim).

    Args:
        width: Length of the vectors.
        sizes: See `HeadSizes`.
        identity: Whether the head starts as the identity, up to the length of a vector; `sizes.dim` is then `width`.
    """

    def __init__(self, width: int, sizes: HeadSizes, identity: bool = False) -> None:
        super().__init__()
        self.identity = identity
        dropout, linear = Dropout(sizes.dropout / 2), nn.Linear(width, sizes.dim)
        if identity:
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.project = nn.Sequential(nn.LayerNorm(width), dropout, linear)
        blocks = (_block(sizes.dim, sizes.hidden, sizes.dropout) for _ in range(sizes.depth))
        self.blocks = nn.ModuleList(blocks)

    def start_linear(self, mean: Tensor, projection: Tensor) -> None:
        """Start as a linear map of the normalised vectors: the projection onto k directions, and 0 elsewhere.

        Args:
            mean: What is subtracted from the normalised vectors, (width,).
            projection: (width, k); of more than `dim` directions, the first count.
        """
        linear, weight = self.project[-1], projection.T
        assert isinstance(linear, nn.Linear)
        k = min(len(weight), linear.out_features)
        with torch.no_grad():
            linear.weight.zero_()[:k] = weight[:k]
            linear.bias.zero_()[:k] = -(weight[:k] @ mean)

    def forward(self, x: Tensor) -> Tensor:
        """Map the vectors, (n, width) to (n, dim)."""
        x = self.project(x) + math.sqrt(x.shape[-1]) * unit(at_least_float32(x)) if self.identity else self.project(x)
        for block in self.blocks:
            x = x + block(x)
        return x


def normalised(vectors: Tensor) -> Tensor:
    """Return the vectors with mean 0 and variance 1 each, as the projection of a new head reads them, (n, width)."""
    return functional.layer_norm(vectors, vectors.shape[-1:])


class GaussianHead(nn.Module):
    """A Gaussian with a diagonal covariance for each vector: a residual head for the mean, another for the variances.

    Args:
        width: Length of the vectors.
        sizes: See `HeadSizes`.
        spread: Sum of the variances of an item where training starts, above 0.
    """

    def __init__(self, width: int, sizes: HeadSizes, spread: float) -> None:
        super().__init__()
        self.mean = ResidualHead(width, sizes)
        output = nn.Linear(sizes.hidden, sizes.dim)
        nn.init.constant_(output.bias, math.log(spread / sizes.dim))
        layers = nn.LayerNorm(width), nn.Linear(width, sizes.hidden), nn.GELU(), Dropout(sizes.dropout), output
        self.log_variance = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return means of unit length and logarithms of the variances, (n, dim) each, float32 at least."""
        return unit(at_least_float32(self.mean(x))), at_least_float32(self.log_variance(x))


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of each Gaussian from the standard normal distribution, (n,).

        1/2 mean_d ( sigma_d^2 + mu_d^2 - 1 - log sigma_d^2 )

    It is the mean over the directions instead of their sum: beside a ranking loss that is a mean over a batch, the sum
    over 1,024 directions outweighs it, the variances grow, and nothing is learned.

    Args:
        mean: mu, (n, d).
        log_variance: log sigma^2, (n, d).
    """
    return (log_variance.exp() + mean.square() - 1 - log_variance).mean(1) / 2


def _block(dim: int, hidden: int, dropout: float) -> nn.Sequential:
    output = nn.Linear(hidden, dim)
    nn.init.zeros_(output.weight)
    nn.init.zeros_(output.bias)
    return nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, hidden), nn.GELU(), Dropout(dropout), output)
