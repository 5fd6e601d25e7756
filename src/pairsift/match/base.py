"""The interface of all matchers, and the codes that they compute."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from pairsift.encode.features import Items
from pairsift.options import Options

PAPER_BATCH = 128  # pairs in a batch in the papers of NCR, PC2, PCSR and VSRN
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
        index: Vectors whose inner product is the similarity, (n, e), of any length, the first d entries a multiple of
            `vectors`; None where these are the global vectors themselves.
        extra: Further arrays of the matcher by name, one row per item, (n, ...).
    """

    vectors: Tensor
    tokens: Tensor | None = None
    mask: Tensor | None = None
    grams: Tensor | None = None
    index: Tensor | None = None
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def indexed(self) -> Tensor:
        """The vectors whose inner product is the similarity where the matcher factorises, (n, e)."""
        return self.vectors if self.index is None else self.index

    def rows(self, index: Tensor | slice) -> Codes:
        """Return the codes of these items, in this order."""
        tokens, mask, grams, indexed = (
            None if part is None else part[index] for part in (self.tokens, self.mask, self.grams, self.index)
        )
        extra = {name: part[index] for name, part in self.extra.items()}
        return Codes(self.vectors[index], tokens, mask, grams, indexed, extra)

    @staticmethod
    def join(parts: Sequence[Codes]) -> Codes:
        """Concatenate batches, and pad tokens, and arrays in `extra` with one entry a token, to the longest item."""
        if len(parts) == 1:
            return parts[0]
        vectors = torch.cat([part.vectors for part in parts])
        indexed = [part.index for part in parts if part.index is not None]
        index = torch.cat(indexed) if indexed else None
        extra = {name: _padded_and_joined([part.extra[name] for part in parts]) for name in parts[0].extra}
        if parts[0].tokens is None:
            return Codes(vectors, index=index, extra=extra)
        length = max(part.tokens.shape[1] for part in parts if part.tokens is not None)
        tokens, masks = [], []
        for part in parts:
            assert part.tokens is not None
            mask = part.mask if part.mask is not None else torch.ones_like(part.tokens[..., 0], dtype=torch.bool)
            gap = length - part.tokens.shape[1]
            tokens.append(functional.pad(part.tokens, (0, 0, 0, gap)))
            masks.append(functional.pad(mask, (0, gap)))
        return Codes(vectors, torch.cat(tokens), torch.cat(masks), index=index, extra=extra)


def _padded_and_joined(arrays: list[Tensor]) -> Tensor:
    """Concatenate arrays (n, ...) whose second axis may differ in length, with 0 behind the shorter ones."""
    if len({array.shape[1:] for array in arrays}) > 1:
        length = max(array.shape[1] for array in arrays)
        arrays = [functional.pad(a, [0, 0] * (a.ndim - 2) + [0, length - a.shape[1]]) for a in arrays]
    return torch.cat(arrays)


class Adam(NamedTuple):
    """The betas and the epsilon of AdamW; torch's own by default."""

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8


class Matcher(nn.Module, ABC):
    """The base class of matchers: two encoders and a similarity.

    Attributes:
        name: Name of the matcher on the command line.
        options: Type of the options that the constructor takes; `Options` itself where it takes none.
        image_kind: Kind of image features that the matcher takes, or `pixels`.
        text_kind: Kind of text features that the matcher takes, or `text` where the matcher brings a tokenizer.
        factorises: Whether the similarity, in evaluation mode, is the inner product of `Codes.indexed`, which are the
            global vectors unless the codes have others for it. If so, search uses an index.
        has_tokens: Whether the codes contain tokens in addition to the global vector.
        starts_trained: Whether the similarities are useful before any training with pairsift. If so, the networks as
            they start compete for the best checkpoint.
        preset: Name of the method preset for this matcher.
        method: Name of the method of a run that names none.
        loss: Name of the ranking loss of a run that names none, whatever the options (see `loss_of`); None for the loss
            of the preset.
        head_speed: Learning rate of the trainable part of a method, as a multiple of the matcher's learning rate.
        adam: Betas and epsilon of AdamW.
        gains_by_bf16: Whether training in bfloat16 on a GPU was measured to be much faster than in float32;
            `precision="auto"` follows it.
        keeps_recall_in_bf16: Whether training with products whose factors are rounded to bfloat16 was measured to reach
            the same recall on a CPU; `precision="auto"` follows it.
        dim: Length of a global vector, and of a token where the codes contain tokens.
        largest: Largest similarity that there can be. Methods state temperatures for similarities up to 1.
    """

    name: ClassVar[str]
    options: ClassVar[type[Options]] = Options
    image_kind: ClassVar[ImageKind]
    text_kind: ClassVar[TextKind]
    factorises: ClassVar[bool] = True
    has_tokens: ClassVar[bool] = False
    starts_trained: bool = False
    preset: ClassVar[str] = "paper"
    method: ClassVar[str] = "crossfit"
    loss: ClassVar[str | None] = None
    head_speed: ClassVar[float] = 1.0
    adam: ClassVar[Adam] = Adam()
    gains_by_bf16: ClassVar[bool] = False
    keeps_recall_in_bf16: ClassVar[bool] = False
    dim: int
    largest: float = 1.0

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

    @classmethod
    def loss_of(cls, options: Mapping[str, Any]) -> str | None:
        """Return the name of the ranking loss of a run that names none; None for the loss of the preset.

        Args:
            options: Options of the matcher that were given, as they were given.
        """
        return cls.loss

    def speed(self, name: str) -> float:
        """Return the learning rate of the parameter of this name as a multiple of the run's."""
        return 1.0

    def apart(self) -> dict[str, Matcher]:
        """Return the parts that train apart, by name, each as a matcher of its own; nothing where it trains as one."""
        return {}

    @abstractmethod
    def encode_images(self, items: Items) -> Codes:
        """Return the codes of a batch of images, (n, ...)."""

    @abstractmethod
    def encode_texts(self, items: Items) -> Codes:
        """Return the codes of a batch of texts, (n, ...)."""

    @property
    def index_dim(self) -> int:
        """Length of the vectors `Codes.indexed`."""
        return self.dim

    @property
    def shares_space(self) -> bool:
        """Whether the similarity, in evaluation mode, is the cosine of global vectors, so that they can be added."""
        return self.factorises and self.index_dim == self.dim

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the similarity of every image with every text, (n_images, n_texts), at least float32."""
        return products(images.indexed, texts.indexed)

    def pair_similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the similarity of every image with the text at the same position, (n,)."""
        return (at_least_float32(images.indexed) * at_least_float32(texts.indexed)).sum(1)

    def logits(self, images: Codes, texts: Codes) -> Tensor:
        """Return the unbounded scores of every image with every text, before any sigmoid, (n_images, n_texts)."""
        return self.similarity(images, texts) * self.scale()

    def intra_similarity(self, codes: Codes) -> Tensor:
        """Return the similarity of every item with every item of the same kind, (n, n)."""
        return products(codes.vectors, codes.vectors)

    def penalty(self, images: Codes, texts: Codes, exclude: Tensor, y: Tensor) -> Tensor | None:
        """Return what a step adds to the ranking loss of each pair, (B,), weights included; None for nothing.

        Args:
            images: Codes of the images of a step, (B, ...).
            texts: Codes of the captions beside them, (B, ...).
            exclude: True where row i and column j are not negatives of each other, (B, B).
            y: Correspondence of each pair, [0, 1], (B,).
        """
        return None

    def scale(self) -> Tensor:
        """Return the inverse temperature for losses with a softmax, a scalar: 1 / 0.07 unless the matcher learns it."""
        return torch.full((), 1 / 0.07, device=next(self.parameters()).device)


def scale_at(matcher: Matcher, temperature: float) -> Tensor:
    """Return the inverse of a temperature, a scalar; a temperature of 0 stands for the matcher's own scale.

    A temperature above 0 is meant for similarities up to 1, and is multiplied by the matcher's largest similarity.
    """
    scale = matcher.scale()
    return torch.full_like(scale, 1 / (temperature * matcher.largest)) if temperature else scale


def products(left: Tensor, right: Tensor) -> Tensor:
    """Return the inner products of rows, in float32 at least.

    In half precision many of them would be equal.
    """
    with torch.autocast(left.device.type, enabled=False):
        return at_least_float32(left) @ at_least_float32(right).T


def inverse_temperature(logarithm: Tensor) -> Tensor:
    """Return exp of a learned logarithm, limited to 100; the gradient is not cut off at the limit."""
    excess = (logarithm - math.log(100.0)).clamp(min=0)
    return (logarithm - excess.detach()).exp()


def at_least_float32(x: Tensor) -> Tensor:
    """Return x in float32 where its precision is lower, else unchanged."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def autocast_precision(x: Tensor) -> Tensor:
    """Return x in the precision of autocast where autocast is on, else in float32 at least."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else at_least_float32(x)


def unit(x: Tensor) -> Tensor:
    """Scale x to unit length along its last axis; an all-zero row stays zero and has a finite gradient."""
    return x / (x.square().sum(-1, keepdim=True) + 1e-12).sqrt()
