"""What an image encoder and a text encoder are: frozen models that turn pixels and words into arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

Array = NDArray[np.generic]

MAX_TOKENS = 512  # longer captions are cut where every token is kept


class ImageEncoder(Protocol):
    """A frozen model of images.

    Attributes:
        name: What it is asked for by, such as `efficientnet-lite0`.
        kind: `vector` for one vector per image, `regions` for a fixed number of them.
        dim: Size of one vector.
        regions: Vectors per image; 1 where `kind` is `vector`.
        size: Side of the square that the model sees, in pixels. Much larger JPEGs are decoded at a reduced scale.
    """

    name: str
    kind: Literal["vector", "regions"]
    dim: int
    regions: int
    size: int

    def key(self) -> str:
        """Hexadecimal digest over weights and preprocessing: equal keys mean equal features."""
        ...

    def prepare(self, image: Image.Image) -> Tensor:
        """Make one RGB image into what `encode` stacks; called in several threads at once."""
        ...

    def encode(self, batch: Tensor) -> Tensor:
        """Encode stacked images, (n, ...) -> (n, dim) or (n, regions, dim), float32 on the CPU."""
        ...


class TextEncoder(Protocol):
    """A frozen model of captions, or the vocabulary that numbers their words.

    Attributes:
        name: What it is asked for by, such as `wordllama`.
        kind: `vector` for one vector per caption, `tokens` for one per token, `ids` for one number per word.
        dim: Size of one vector; 1 for ids.
    """

    name: str
    kind: Literal["vector", "tokens", "ids"]
    dim: int

    def key(self) -> str:
        """Hexadecimal digest over weights and tokeniser: equal keys mean equal features."""
        ...

    def encode(self, captions: list[str]) -> Array | list[Array]:
        """Encode captions.

        Returns:
            (n, dim) for `vector`; a list of n arrays (length, dim) for `tokens` or (length,) for `ids`, where every
            length is at least 1.
        """
        ...


def digest(parts: Iterable[str], weights: Mapping[str, Tensor] | None = None) -> str:
    """32 hexadecimal digits over some text and some tensors (names, shapes, types and values)."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(part.encode("utf-8", "surrogatepass") + b"\0")
    for name, tensor in sorted((weights or {}).items()):
        hasher.update(f"\1{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        plain = tensor.detach().cpu().contiguous()
        hasher.update(plain.reshape(-1).view(torch.uint8).numpy().data if plain.numel() else b"")
    return hasher.hexdigest()[:32]


def readable(captions: list[str]) -> list[str]:
    """The captions with half characters (lone surrogates), which no tokeniser takes, replaced by `?`."""
    return [caption.encode("utf-8", "replace").decode("utf-8") for caption in captions]


def default_device() -> torch.device:
    """The first GPU where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
