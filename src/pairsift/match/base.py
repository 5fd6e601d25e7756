"""What every matcher offers, and the codes it works on."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from pairsift.encode.features import Items

ImageKind = Literal["vector", "regions", "pixels"]
TextKind = Literal["vector", "tokens", "ids", "text"]


@dataclass(frozen=True)
class Codes:
    """What a matcher's encoder made of a batch of images or of texts.

    Attributes:
        vectors: Global vectors of unit length, (n, d).
        tokens: Region or word codes, (n, length, d); None where the matcher needs only the vectors.
        mask: True at real tokens, (n, length).
        grams: Inner products of each item's tokens with each other, (n, length, length), where a similarity has made
            them for all its blocks.
    """

    vectors: Tensor
    tokens: Tensor | None = None
    mask: Tensor | None = None
    grams: Tensor | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def rows(self, index: Tensor | slice) -> Codes:
        """The codes of these items, in this order."""
        pick = [None if part is None else part[index] for part in (self.tokens, self.mask, self.grams)]
        return Codes(self.vectors[index], *pick)

    @staticmethod
    def join(parts: Sequence[Codes]) -> Codes:
        """Put batches one after the other, padding tokens to the longest."""
        if len(parts) == 1:
            return parts[0]
        if parts[0].tokens is None:
            return Codes(torch.cat([part.vectors for part in parts]))
        length = max(part.tokens.shape[1] for part in parts if part.tokens is not None)
        tokens, masks = [], []
        for part in parts:
            assert part.tokens is not None
            mask = part.mask if part.mask is not None else torch.ones_like(part.tokens[..., 0], dtype=torch.bool)
            gap = length - part.tokens.shape[1]
            tokens.append(functional.pad(part.tokens, (0, 0, 0, gap)))
            masks.append(functional.pad(mask, (0, gap)))
        return Codes(torch.cat([part.vectors for part in parts]), torch.cat(tokens), torch.cat(masks))


class Matcher(nn.Module, ABC):
    """Two encoders and a similarity.

    Attributes:
        name: What the command line calls it.
        image_kind: The features of an image that it takes, or `pixels`.
        text_kind: The features of a text that it takes, or `text`, which it numbers itself.
        factorises: Whether the similarity is the inner product of the global vectors; then search uses an index.
        has_tokens: Whether codes carry tokens beside the global vector.
        starts_trained: Whether its similarities mean something before any training here.
        preset: Name of the methods' preset that suits it.
        head_speed: How many times as fast as the matcher a method's own trainable part learns.
        dim: Length of a global vector, and of a token where there are tokens.
    """

    name: ClassVar[str]
    image_kind: ClassVar[ImageKind]
    text_kind: ClassVar[TextKind]
    factorises: ClassVar[bool] = True
    has_tokens: ClassVar[bool] = False
    starts_trained: ClassVar[bool] = False
    preset: ClassVar[str] = "paper"
    head_speed: ClassVar[float] = 1.0
    dim: int

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Refuse options of the constructor that cannot be used, before any work.

        Raises:
            InputError: One cannot.
        """
        return None

    @abstractmethod
    def encode_images(self, items: Items) -> Codes:
        """Codes of a batch of images, (n, ...)."""

    @abstractmethod
    def encode_texts(self, items: Items) -> Codes:
        """Codes of a batch of texts, (n, ...)."""

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Similarity of every image with every text, (n_images, n_texts), float32 at least."""
        return products(images.vectors, texts.vectors)

    def pair_similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Similarity of every image with the text in the same place, (n,)."""
        return (full(images.vectors) * full(texts.vectors)).sum(1)

    def logits(self, images: Codes, texts: Codes) -> Tensor:
        """Scores of every image with every text before they are squashed, (n_images, n_texts), any real number."""
        return self.similarity(images, texts) * self.scale()

    def intra_similarity(self, codes: Codes) -> Tensor:
        """Similarity of every item with every item of the same kind, (n, n)."""
        return products(codes.vectors, codes.vectors)

    def scale(self) -> Tensor:
        """Inverse temperature for losses with a softmax, scalar; a constant 1 / 0.07 unless the matcher learns it."""
        return torch.full((), 1 / 0.07, device=next(self.parameters()).device)


def products(left: Tensor, right: Tensor) -> Tensor:
    """Inner products of rows, in float32 at least: in half precision many would be the same."""
    with torch.autocast(left.device.type, enabled=False):
        return full(left) @ full(right).T


def inverse_temperature(logarithm: Tensor) -> Tensor:
    """exp of a learned logarithm, at most 100; at the limit the gradient still passes, so that it can come back."""
    beyond = (logarithm - math.log(100.0)).clamp(min=0)
    return (logarithm - beyond.detach()).exp()


def full(x: Tensor) -> Tensor:
    """x in float32 where it has less precision."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def unit(x: Tensor) -> Tensor:
    """x scaled to unit length along its last axis; an all-zero row stays zero, with a gradient that is finite."""
    return x / (x.square().sum(-1, keepdim=True) + 1e-12).sqrt()
