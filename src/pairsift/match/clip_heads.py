"""The heads of VSE-infinity, PCME and PCME++ on the tokens of a fine-tuned CLIP."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from pairsift.match.base import Codes, at_least_float32, unit
from pairsift.match.layers import Linear
from pairsift.match.pcme import SampledDistance
from pairsift.match.pcmepp import ExpectedDistance
from pairsift.match.vse import GeneralizedPool

DIM = 1024  # length of a vector in the papers


class TokenHead(nn.Module):
    """Codes from the pooled tokens of both towers: unit vectors, or Gaussians where there is a distance of these.

    Args:
        vision: Configuration of the tower of images in transformers.
        text: Configuration of the tower of texts.
        distance: What compares the Gaussians of PCME or PCME++; None for the cosine of VSE-infinity.
    """

    def __init__(self, vision: Any, text: Any, distance: SampledDistance | ExpectedDistance | None) -> None:
        super().__init__()
        self.distance = distance
        self.images, self.texts = PooledTokens(vision.hidden_size), PooledTokens(text.hidden_size)
        if distance is not None:
            self.image_variances = TokenVariances(vision, distance.spread, causal=False)
            self.text_variances = TokenVariances(text, distance.spread, causal=True)

    def states(self, output: Any) -> Tensor:
        """Return what the head reads in the output of a tower, (n, 1 or 2, length, width).

        These are the tokens as they leave the last block and, for the variances, as they reach it. Those of texts have
        left the last block through the tower's last norm, those of images have not.
        """
        before = () if self.distance is None else (output.hidden_states[-2],)
        return torch.stack([output.last_hidden_state, *before], 1)

    def codes(self, states: Tensor, mask: Tensor, images: bool) -> Codes:
        """Return the codes of images or of texts.

        Args:
            states: What `states` returned, (n, 1 or 2, length, width).
            mask: True at real tokens, which come first, (n, length).
            images: Whether the items are images.
        """
        mean = unit((self.images if images else self.texts)(states[:, 0], mask))
        if self.distance is None:
            return Codes(mean)
        variances = self.image_variances if images else self.text_variances
        return self.distance.codes(mean, variances(states[:, 1], mask), images)


class PooledTokens(nn.Module):
    """A linear map of each token, and generalized pooling.

    Args:
        width: Length of a token.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project, self.pool = Linear(width, DIM), GeneralizedPool()

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return one vector for each item, (n, length, width) to (n, 1024), float32 at least."""
        pooled: Tensor = self.pool(self.project(tokens), mask)
        return at_least_float32(pooled)


class TokenVariances(nn.Module):
    """Logarithms of variances: a transformer block beside the last one of a tower, and pooled tokens.

    Args:
        config: Configuration of the tower.
        spread: Where the sum of the variances of an item starts, up to what the tokens add.
        causal: Whether a token sees only itself and those before it.
    """

    def __init__(self, config: Any, spread: float, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        sizes = config.hidden_size, config.num_attention_heads, config.intermediate_size
        self.block = nn.TransformerEncoderLayer(*sizes, 0.0, quick_gelu, batch_first=True, norm_first=True)
        self.pooled = PooledTokens(config.hidden_size)
        nn.init.constant_(self.pooled.project.bias, math.log(spread / DIM))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the logarithms, (n, length, width) to (n, 1024)."""
        unseen = None
        if self.causal:
            unseen = torch.ones(2 * tokens.shape[1:2], dtype=torch.bool, device=tokens.device).triu(1)
        logarithms: Tensor = self.pooled(self.block(tokens, unseen), mask)
        return logarithms


def quick_gelu(x: Tensor) -> Tensor:
    """Return x sigmoid(1.702 x), the activation of OpenAI's CLIPs."""
    return x * torch.sigmoid(1.702 * x)
