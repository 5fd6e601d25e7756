"""The interfaces of image and text encoders, which turn pixels and words into arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from pairsift.arrays import Ints
from pairsift.cores import bfloat16_pays
from pairsift.errors import InputError

Array = NDArray[np.generic]

TOKENS_PER_LETTER = 4  # at most, so that the tokens of short captions need not be counted
MAX_TOKENS = 512  # longer captions are cut if one vector or id per token is kept


class ImageEncoder(Protocol):
    """A frozen model of images.

    Attributes:
        name: Name that selects the encoder, such as `efficientnet-lite0`.
        kind: `vector` for one vector per image, `regions` for a fixed number of vectors per image.
        dim: Size of one vector.
        regions: Number of vectors per image; 1 if `kind` is `vector`.
        size: Side of the square input of the model, in pixels. Much larger JPEGs are decoded at a reduced scale.
    """

    name: str
    kind: Literal["vector", "regions"]
    dim: int
    regions: int
    size: int

    def key(self) -> str:
        """Return a hexadecimal digest over weights and preprocessing: equal keys mean equal features."""
        ...

    def prepare(self, image: Image.Image) -> Tensor:
        """Convert one RGB image to a tensor; `encode` takes a stack of them.

        Several threads call this method at the same time.
        """
        ...

    def encode(self, batch: Tensor) -> Tensor:
        """Encode stacked images, (n, ...) -> (n, dim) or (n, regions, dim), float32 on the CPU."""
        ...


class TextEncoder(Protocol):
    """A frozen model of captions, or the vocabulary that numbers their words.

    Attributes:
        name: Name that selects the encoder, such as `wordllama`.
        kind: `vector` for one vector per caption, `tokens` for one vector per token, `ids` for one number per word.
        dim: Size of one vector; 1 for ids.
    """

    name: str
    kind: Literal["vector", "tokens", "ids"]
    dim: int

    def key(self) -> str:
        """Return a hexadecimal digest over weights and tokenizer: equal keys mean equal features."""
        ...

    def encode(self, captions: list[str]) -> Array | list[Array]:
        """Encode captions.

        Returns:
            (n, dim) for `vector`; a list of n arrays (length, dim) for `tokens` or (length,) for `ids`, where every
            length is at least 1.
        """
        ...


@runtime_checkable
class Limited(Protocol):
    """A text encoder that reads no more than the beginning of a long caption.

    Attributes:
        name: Name that selects the encoder.
        limit: The largest number of tokens that it reads.
    """

    name: str
    limit: int

    def count_tokens(self, captions: list[str]) -> Ints:
        """Return the number of tokens of each caption before it is cut, (n,)."""
        ...


class JoinedEncoder:
    """A text encoder that concatenates the vectors of several text encoders, each scaled to length 1.

    Args:
        parts: The encoders, at least one, all of kind `vector`.
    """

    kind: Literal["vector", "tokens", "ids"] = "vector"

    def __init__(self, parts: Sequence[TextEncoder]) -> None:
        self.parts = tuple(parts)
        self.name = "+".join(part.name for part in parts)
        self.dim = sum(part.dim for part in parts)

    def key(self) -> str:
        """Return a hexadecimal digest over the keys of the parts."""
        return digest(["joined", *(part.key() for part in self.parts)])

    def encode(self, captions: list[str]) -> Array:
        """Encode captions, -> (n, dim) float32."""
        if not captions:
            return np.zeros((0, self.dim), np.float32)
        return self.joined([np.asarray(part.encode(captions)) for part in self.parts])

    def joined(self, vectors: Sequence[Array]) -> Array:
        """Join the vectors of the parts, (n, d) each, at least one row."""
        from sklearn.preprocessing import normalize

        return np.concatenate([normalize(part) for part in vectors], 1)


def digest(parts: Iterable[str], weights: Mapping[str, Tensor] | None = None) -> str:
    """Return 32 hexadecimal digits over texts and tensors (names, shapes, types and values)."""
    hasher = hashlib.sha256()
    for part in parts:
        text = part.encode("utf-8", "surrogatepass")
        hasher.update(b"%d " % len(text) + text)
    for name, tensor in sorted((weights or {}).items()):
        hasher.update(f"\1{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        values = tensor.detach().cpu().contiguous()
        hasher.update(values.reshape(-1).view(torch.uint8).numpy().data if values.numel() else b"")
    return hasher.hexdigest()[:32]


def without_surrogates(captions: list[str]) -> list[str]:
    """Replace lone surrogates in captions by `?`, because tokenizers do not accept them."""
    return [caption.encode("utf-8", "replace").decode("utf-8") for caption in captions]


def cut_line(captions: Sequence[str], encoder: TextEncoder) -> str | None:
    """Return a line about the captions that are longer than a text encoder reads, or None if there are none."""
    parts = encoder.parts if isinstance(encoder, JoinedEncoder) else (encoder,)
    for part in parts:
        if isinstance(part, Limited):
            long = [caption for caption in captions if TOKENS_PER_LETTER * len(caption) > part.limit]
            cut = int((part.count_tokens(long) > part.limit).sum()) if long else 0
            if cut:
                return (
                    f"{cut:,} of {len(captions):,} captions have more than the {part.limit} tokens that {part.name} "
                    "reads: their ends do not count"
                )
    return None


def package_folder(module: str, package: str, name: str) -> Path:
    """Return the folder of a Python package that holds weights. Its code is not run.

    Args:
        module: Name by which the package is imported.
        package: Name by which it is installed.
        name: Name of the encoder that needs it.

    Raises:
        InputError: The package is not installed.
    """
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"{name} needs a package that is missing: run `pip install {package}`")
    return Path(spec.submodule_search_locations[0])


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def default_device() -> torch.device:
    """Return the first GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def precision_on(device: torch.device) -> torch.dtype:
    """Return the precision of a frozen network: bfloat16 on a CPU that is fast at its products, else float32."""
    return torch.bfloat16 if device.type == "cpu" and bfloat16_pays() else torch.float32
