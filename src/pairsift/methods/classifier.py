"""The pseudo-classifier of PC2 and PCSR, one for both modalities."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pairsift.match.base import Codes, unit

HIDDEN = 256
SHARPNESS = 20.0


class GlobalClassifier(nn.Module):
    """Class logits from global vectors: linear, ReLU, linear.

    Args:
        dim: Length of a global vector.
        classes: Number of classes K.
    """

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.layers = _layers(dim, classes)

    def forward(self, codes: Codes) -> Tensor:
        """Logits, (n, K)."""
        logits: Tensor = self.layers(codes.vectors)
        return logits


class DirectionClassifier(nn.Module):
    """Class logits as `SHARPNESS` times the cosine of the global vector with each class's learned direction.

    Different vectors choose different classes from the first step on. The perceptron of `GlobalClassifier` puts nearly
    all into one class at first, and a short schedule may end before it has spread them.

    Args:
        dim: Length of a global vector.
        classes: Number of classes K.
    """

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.directions = nn.Parameter(unit(torch.randn(classes, dim)))

    def forward(self, codes: Codes) -> Tensor:
        """Logits, (n, K)."""
        logits: Tensor = SHARPNESS * codes.vectors @ unit(self.directions).T
        return logits


class FlatClassifier(nn.Module):
    """Class logits from all tokens side by side, the published code's form; for codes with tokens.

    An item's own tokens are brought to `rows` of them by linear interpolation (36 regions stay as they are), so that
    unlike in the published code a caption's logits do not depend on the longest caption of its batch.

    Args:
        dim: Length of a token.
        classes: Number of classes K.
        rows: Tokens per item after interpolation.
    """

    def __init__(self, dim: int, classes: int, rows: int = 36) -> None:
        super().__init__()
        self.rows = rows
        self.layers = _layers(rows * dim, classes)

    def forward(self, codes: Codes) -> Tensor:
        """Logits, (n, K)."""
        assert codes.tokens is not None
        logits: Tensor = self.layers(stretch(codes.tokens, codes.mask, self.rows).flatten(1))
        return logits


def stretch(tokens: Tensor, mask: Tensor | None, rows: int) -> Tensor:
    """Each item's real tokens, (n, length, d), interpolated linearly to `rows` of them, (n, rows, d).

    Row r of an item with l tokens lies at position r (l - 1) / (rows - 1). The real tokens come first.
    """
    n, length, dim = tokens.shape
    lengths = torch.full((n,), length, device=tokens.device) if mask is None else mask.sum(1).clamp(min=1)
    place = torch.arange(rows, device=tokens.device) * (lengths[:, None] - 1) / max(1, rows - 1)
    below = place.floor().long()
    above = torch.minimum(below + 1, lengths[:, None] - 1)
    left, right = (tokens.gather(1, index[..., None].expand(n, rows, dim)) for index in (below, above))
    return left + (place - below)[..., None].to(tokens.dtype) * (right - left)


def _layers(width: int, classes: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes))
