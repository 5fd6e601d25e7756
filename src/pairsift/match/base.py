"""The interface of all matchers, and the codes that they compute."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from pairsift.encode.features import Items
from pairsift.options import Options

ImageKind = Literal["vector", "regions", "pixels"]
TextKind = Literal["vector", "tokens", "ids", "text"]


@dataclass(frozen=True)
class Codes:
    """The codes of a batch of images or of texts, computed by the encoder of a matcher.

    Attributes:
        vectors: Global vectors of unit length, (n, d).
        tokens: Region or word codes, (n, length, d); None where the matcher needs only the vectors.
        mask: True at real tokens, (n, length).
        grams: Gram matrix of the tokens of each item, (n, length, length); None unless a similarity has computed them
            for all its blocks.
    """

    vectors: Tensor
    tokens: Tensor | None = None
    mask: Tensor | None = None
    grams: Tensor | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def rows(self, index: Tensor | slice) -> Codes:
        """Return the codes of these items, in this order."""
        parts = [None if part is None else part[index] for part in (self.tokens, self.mask, self.grams)]
        return Codes(self.vectors[index], *parts)

    @staticmethod
    def join(parts: Sequence[Codes]) -> Codes:
        """Concatenate batches, and pad tokens to the longest item."""
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
    """The base class of matchers: two encoders and a similarity.

    Attributes:
        name: Name of the matcher on the command line.
        options: Type of the options that the constructor takes; `Options` itself where it takes none.
        image_kind: Kind of image features that the matcher takes, or `pixels`.
        text_kind: Kind of text features that the matcher takes, or `text` where the matcher brings a tokenizer.
        factorises: Whether the similarity is the inner product of the global vectors. If so, search uses an index.
        has_tokens: Whether the codes contain tokens in addition to the global vector.
        starts_trained: Whether the similarities are useful before any training with pairsift.
        preset: Name of the method preset for this matcher.
        head_speed: Learning rate of the trainable part of a method, as a multiple of that of the matcher.
        dim: Length of a global vector, and of a token where the codes contain tokens.
    """

    name: ClassVar[str]
    options: ClassVar[type[Options]] = Options
    image_kind: ClassVar[ImageKind]
    text_kind: ClassVar[TextKind]
    factorises: ClassVar[bool] = True
    has_tokens: ClassVar[bool] = False
    starts_trained: ClassVar[bool] = False
    preset: ClassVar[str] = "paper"
    head_speed: ClassVar[float] = 1.0
    dim: int

    @classmethod
    def check(cls, options: Options) -> None:
        """Raise an error if the options cannot be used, before any work is done.

        Raises:
            InputError: An option cannot be used.
        """
        return None

    @classmethod
    def make(cls, options: Options, **data: Any) -> Self:
        """Return a matcher with these options, which reach the constructor where the class has any of its own.

        Args:
            options: Of the type that the class names.
            data: What the constructor takes of the data, such as `image_dim`.
        """
        return cls(**data) if cls.options is Options else cls(**data, options=options)

    @abstractmethod
    def encode_images(self, items: Items) -> Codes:
        """Return the codes of a batch of images, (n, ...)."""

    @abstractmethod
    def encode_texts(self, items: Items) -> Codes:
        """Return the codes of a batch of texts, (n, ...)."""

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the similarity of every image with every text, (n_images, n_texts), at least float32."""
        return products(images.vectors, texts.vectors)

    def pair_similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the similarity of every image with the text at the same position, (n,)."""
        return (full(images.vectors) * full(texts.vectors)).sum(1)

    def logits(self, images: Codes, texts: Codes) -> Tensor:
        """Return the unbounded scores of every image with every text, before any sigmoid, (n_images, n_texts)."""
        return self.similarity(images, texts) * self.scale()

    def intra_similarity(self, codes: Codes) -> Tensor:
        """Return the similarity of every item with every item of the same kind, (n, n)."""
        return products(codes.vectors, codes.vectors)

    def scale(self) -> Tensor:
        """Return the inverse temperature for losses with a softmax, a scalar: 1 / 0.07 unless the matcher learns it."""
        return torch.full((), 1 / 0.07, device=next(self.parameters()).device)


def scale_at(matcher: Matcher, temperature: float) -> Tensor:
    """Return the inverse of a temperature, scalar; that of the matcher where the temperature is 0."""
    scale = matcher.scale()
    return torch.full_like(scale, 1 / temperature) if temperature else scale


def products(left: Tensor, right: Tensor) -> Tensor:
    """Return the inner products of rows, in float32 at least, because in half precision many would be equal."""
    with torch.autocast(left.device.type, enabled=False):
        return full(left) @ full(right).T


def inverse_temperature(logarithm: Tensor) -> Tensor:
    """Return exp of a learned logarithm, limited to 100; the gradient is not cut off at the limit."""
    excess = (logarithm - math.log(100.0)).clamp(min=0)
    return (logarithm - excess.detach()).exp()


def full(x: Tensor) -> Tensor:
    """Return x in float32 where its precision is lower, else unchanged."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def unit(x: Tensor) -> Tensor:
    """Scale x to unit length along its last axis; an all-zero row stays zero and has a finite gradient."""
    return x / (x.square().sum(-1, keepdim=True) + 1e-12).sqrt()
