"""The pseudo-classifier of PC2 and PCSR, one for both modalities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from pairsift.arrays import Array
from pairsift.errors import InputError
from pairsift.loss.classes import batch_entropy, pseudo_label_loss
from pairsift.match.base import Codes, Matcher
from pairsift.methods.parts.part import Part
from pairsift.steps import Observation, Setting, Term

HIDDEN = 256


class PseudoClassifier(Part):
    """The pseudo-classifier C, one for both modalities: images and captions teach each other classes without labels.

    State: `predictions`, (networks, n_images, K), each image's class prediction in the last pass; 0 before the first.
    """

    per_image: ClassVar[tuple[str, ...]] = ("predictions",)

    classes: int = Field(default=128, ge=2, description="Number of classes, K.")
    reads: Literal["global", "flat"] = Field(
        default="global",
        description="What it reads: global vectors, or all tokens in a row (flat, as the published code of PC2).",
    )

    def check(self, method: str, matcher: type[Matcher]) -> None:
        """Refuse a matcher that lacks what the classifier reads.

        Raises:
            InputError: It has no tokens.
        """
        if self.reads == "flat" and not matcher.has_tokens:
            option = f"{method}.classifier.reads"
            raise InputError(f"{option} flat needs tokens, {matcher.name} has none; use {option} global")

    def head(self, dim: int) -> nn.Module:
        """Return the network's trainable part: codes, with vectors and tokens of length `dim`, to class logits."""
        return CLASSIFIERS[self.reads](dim, self.classes)

    def begin(self, setting: Setting, state: dict[str, Array]) -> None:
        """Let every image start without a prediction."""
        super().begin(setting, state)
        state["predictions"] = np.zeros((setting.networks, setting.n_images, self.classes), np.float32)

    def observe(self, observation: Observation) -> dict[str, Tensor]:
        """Return the images' class predictions, (B, K)."""
        return {"predictions": observation.network.logits(observation.images).softmax(1)}

    def update(self, notes: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """Keep the predictions of the pass."""
        for k, noted in enumerate(notes):
            self.state["predictions"][k, self.setting.image_of[self.setting.ids]] = noted["predictions"]

    def facts(self) -> dict[str, float]:
        """Return how many classes the training images are put into, in the mean of the networks, after a first pass."""
        predictions = self.state["predictions"][:, np.unique(self.setting.image_of[self.setting.ids])]
        if not predictions.any():
            return {}
        return {"classes_in_use": float(np.mean([len(np.unique(network.argmax(1))) for network in predictions]))}

    def terms(self, images: Tensor, texts: Tensor, pseudo_weight: float, entropy_weight: float) -> list[Term]:
        """Return the terms that train the classifier on clean pairs.

        Args:
            images: Class logits of the images, (B, K).
            texts: Class logits of their captions, (B, K).
            pseudo_weight: Weight of the pseudo-classification loss (PC2 Eq. 2, PCSR Eq. 1).
            entropy_weight: Weight of the entropy of the mean prediction (PC2 Eq. 3, PCSR Eq. 2).
        """
        return [
            self.setting.auxiliary_term("pseudo", pseudo_label_loss(images, texts), pseudo_weight),
            self.setting.auxiliary_term("entropy", batch_entropy(images), entropy_weight),
        ]


class GlobalClassifier(nn.Module):
    """A classifier of global vectors, scaled to a mean square of 1: linear, ReLU, linear.

    A unit vector of many dimensions has entries so small that the biases of a layer as PyTorch initialises it outweigh
    all differences between items. Every item is then put into the same few classes, and the gradient on the other
    classes is too small to change that. With scaled vectors, He initialisation and biases of 0 they start spread.

    Args:
        dim: Length of a global vector.
        classes: Number of classes K.
    """

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.layers = _layers(dim, classes)

    def forward(self, codes: Codes) -> Tensor:
        """Return logits, (n, K)."""
        logits: Tensor = self.layers(_unit_mean_square(codes.vectors))
        return logits


class FlatClassifier(nn.Module):
    """A classifier of all tokens side by side, the published code's form; for codes with tokens.

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
        """Return logits, (n, K)."""
        assert codes.tokens is not None
        logits: Tensor = self.layers(_unit_mean_square(stretch(codes.tokens, codes.mask, self.rows)).flatten(1))
        return logits


def stretch(tokens: Tensor, mask: Tensor | None, rows: int) -> Tensor:
    """Interpolate each item's real tokens, (n, length, d), linearly to `rows` of them, (n, rows, d).

    Row r of an item with l tokens lies at position r (l - 1) / (rows - 1). The real tokens come first.
    """
    n, length, dim = tokens.shape
    lengths = torch.full((n,), length, device=tokens.device) if mask is None else mask.sum(1).clamp(min=1)
    place = torch.arange(rows, device=tokens.device) * (lengths[:, None] - 1) / max(1, rows - 1)
    below = place.floor().long()
    above = torch.minimum(below + 1, lengths[:, None] - 1)
    lower, upper = (tokens.gather(1, index[..., None].expand(n, rows, dim)) for index in (below, above))
    return lower + (place - below)[..., None].to(tokens.dtype) * (upper - lower)


def _unit_mean_square(vectors: Tensor) -> Tensor:
    """Scale vectors to a mean square of 1: unit vectors of length d by the root of d."""
    return nn.functional.rms_norm(vectors, vectors.shape[-1:])


def _layers(width: int, classes: int) -> nn.Sequential:
    layers = nn.Linear(width, HIDDEN), nn.Linear(HIDDEN, classes)
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1])


CLASSIFIERS: dict[str, Callable[[int, int], nn.Module]] = {
    "global": GlobalClassifier,
    "flat": FlatClassifier,
}
