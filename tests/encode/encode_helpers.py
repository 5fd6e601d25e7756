"""Small pairs and cheap encoders for the tests of this room."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pairsift.pairs.pairs import Pairs


def make_pairs(folder: Path, images: int = 7, captions: int = 2) -> Pairs:
    """Random 12x10 PNG files with a few captions each."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    names = [f"{at}.png" for at in range(images)]
    for name in names:
        if not (folder / name).exists():
            Image.fromarray(rng.integers(0, 256, (10, 12, 3), np.uint8)).save(folder / name)
    image_of = np.repeat(np.arange(images), captions)
    words = [f"caption {at} of image {row}" for at, row in enumerate(image_of)]
    split = np.full(len(words), "train", dtype="<U8")
    return Pairs("test", names, [folder / name for name in names], words, image_of, split)


class TinyImages:
    """Mean colours (times a weight), of the whole image or of its four quarters; counts the images it sees."""

    name = "tiny"
    dim = 3
    size = 8

    def __init__(self, weight: float = 1.0, regions: bool = False, slow: float = 0.0) -> None:
        self.kind: Literal["vector", "regions"] = "regions" if regions else "vector"
        self.regions = 4 if regions else 1
        self.weight, self.slow, self.prepared = weight, slow, 0

    def key(self) -> str:
        return hashlib.sha256(f"{self.weight} {self.kind}".encode()).hexdigest()

    def prepare(self, image: Image.Image) -> Tensor:
        self.prepared += 1
        return torch.from_numpy(np.array(image.resize((8, 8)))).float()

    def encode(self, batch: Tensor) -> Tensor:
        time.sleep(self.slow)
        quarters = batch.reshape(len(batch), 2, 4, 2, 4, 3).mean((2, 4)).reshape(len(batch), 4, 3) * self.weight
        return quarters if self.kind == "regions" else quarters.mean(1)


class TinyTexts:
    """Character codes: their mean, or one per character; counts the captions it sees."""

    name = "tiny"

    def __init__(self, kind: Literal["vector", "tokens", "ids"] = "vector", slow: float = 0.0) -> None:
        self.kind: Literal["vector", "tokens", "ids"] = kind
        self.dim = 1 if kind == "ids" else 2
        self.slow, self.seen = slow, 0

    def key(self) -> str:
        return hashlib.sha256(self.kind.encode()).hexdigest()

    def encode(self, captions: list[str]) -> np.ndarray | list[np.ndarray]:
        time.sleep(self.slow)
        self.seen += len(captions)
        codes = [np.array([ord(letter) for letter in caption], np.int32) for caption in captions]
        if self.kind == "ids":
            return codes
        tokens = [np.stack([one, one / 2], 1).astype(np.float32) for one in codes]
        return tokens if self.kind == "tokens" else np.stack([one.mean(0) for one in tokens])
