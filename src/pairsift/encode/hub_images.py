"""Image encoders from transformers: vision models, and the image side of models like CLIP."""

from __future__ import annotations

import json
from math import isqrt
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pairsift.encode.encoder import default_device
from pairsift.encode.hub import load, pooled

_CHUNK = {"cpu": 8, "cuda": 128}  # images per batch


class HubImageEncoder:
    """A vision model of transformers, or the image side of a model like CLIP.

    The vector of an image is the projected vector of a CLIP-like model, else the class token, else the average over the
    image. Regions are the patches of the last layer without class and register tokens, row by row from the top left.

    Args:
        source: Folder or hub id.
        regions: Whether to keep the patches.

    Raises:
        InputError: The model cannot be loaded.
    """

    kind: Literal["vector", "regions"]

    def __init__(self, source: str, regions: bool = False) -> None:
        self.name = f"hf:{source}"
        self.kind = "regions" if regions else "vector"
        self._device = default_device()
        self._loaded = load(self.name, source, "processor")
        self._model = self._loaded.model.to(self._device)
        self._tower = getattr(self._model, "vision_model", self._model)
        self._key: str | None = None
        probe = self.prepare(Image.new("RGB", (64, 64)))
        self.size = int(min(probe.shape[-2:]))
        shape = self.encode(probe[None]).shape
        self.regions = int(shape[1]) if regions else 1
        self.dim = int(shape[-1])

    def key(self) -> str:
        """Return a hexadecimal digest over weights and preprocessing."""
        if self._key is None:
            processing = self._loaded.front.to_dict()
            processing = {name: value for name, value in processing.items() if not name.endswith("_class")}
            self._key = self._loaded.key("hub image", self.kind, json.dumps(processing, sort_keys=True, default=str))
        return self._key

    def prepare(self, image: Image.Image) -> Tensor:
        """Resize, crop and scale as the model's processor does, -> (3, height, width) float32."""
        values = self._loaded.front(image, return_tensors="np")["pixel_values"][0]
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))

    @torch.inference_mode()
    def encode(self, batch: Tensor) -> Tensor:
        """Encode prepared images, (n, 3, height, width) -> (n, dim) or (n, regions, dim), float32 on the CPU."""
        chunks = torch.split(batch, _CHUNK[self._device.type])
        return torch.cat([self._encode(chunk.to(self._device)) for chunk in chunks])

    def _encode(self, pixels: Tensor) -> Tensor:
        if self.kind == "vector" and self._loaded.two_sided:
            return pooled(self._model.get_image_features(pixel_values=pixels))
        hidden: Any = self._tower(pixel_values=pixels).last_hidden_state
        if hidden.ndim == 4:  # (n, channels, height, width) of a convolutional network
            hidden, extra = hidden.flatten(2).transpose(1, 2), 0
        else:  # patches form a square; class and register tokens come before them
            extra = hidden.shape[1] - isqrt(hidden.shape[1]) ** 2
        if self.kind == "vector":
            hidden = hidden[:, :1] if extra else hidden
            return torch.as_tensor(hidden.mean(1)).float().cpu()
        return torch.as_tensor(hidden[:, extra:]).float().cpu()
