"""The preprocessing of a CLIP or SigLIP model: its tokenizer and its image processor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from pairsift.arrays import Ints
from pairsift.encode.cache import encode_pairs
from pairsift.encode.encoder import Array, digest, without_surrogates
from pairsift.encode.features import Features, Table
from pairsift.encode.hub import (
    NAFLEX,
    SAMPLE,
    id_maker,
    image_processor,
    lengths,
    model_place,
    quiet,
    tokenizer,
    transformers,
)
from pairsift.encode.lazy_rows import Bytes, ImagePixels
from pairsift.errors import InputError
from pairsift.pairs.pairs import Pairs

MODELS = {"clip": "CLIPModel", "siglip": "SiglipModel"}  # classes of transformers by kinds of models
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


class ClipPreprocessor:
    """The tokenizer and the image processor of a CLIP or SigLIP model.

    For the cache, it is a text encoder of token ids.

    Args:
        checkpoint: A folder, or an id on the hub.
        pretrained: Whether to use the weights of the checkpoint. The folder of a finished run stores its weights
            elsewhere.

    Attributes:
        siglip: Whether this is a SigLIP. Its captions are padded to the model's length, as they were in its training.
        size: Shape of an image's pixels, (3, height, width).
        factor: Factor of a byte, before `mean` is subtracted and the result is divided by `std`.
        mean: Mean of each channel, (3,).
        std: Standard deviation of each channel, (3,).

    Raises:
        InputError: transformers is missing, or there is no CLIP or SigLIP whose parts fit together.
    """

    kind: Literal["vector", "tokens", "ids"] = "ids"
    dim = 1

    def __init__(self, checkpoint: str, pretrained: bool = True) -> None:
        self.name = f"--clip.checkpoint {checkpoint}"
        self.place, self.pretrained = model_place(self.name, checkpoint), pretrained
        self._library = transformers()
        with quiet(self._library, self.name):
            self.config: Any = self._library.AutoConfig.from_pretrained(self.place, trust_remote_code=False)
        kind = self.config.model_type
        if kind == "siglip2":
            raise InputError(f"{self.name}: {NAFLEX}")
        if kind not in MODELS:
            raise InputError(f"{self.name}: is a {kind or 'model without a name'} and no CLIP or SigLIP")
        self.siglip = kind == "siglip"
        folder = Path(self.place)
        if pretrained and folder.is_dir() and not any(next(folder.glob(pattern), None) for pattern in WEIGHTS):
            raise InputError(f"{self.name}: holds no weights; give a folder with model.safetensors")
        with quiet(self._library, self.name):
            self._tokenizer = tokenizer(self._library, self.place)
            self._processor = image_processor(self._library, self.place)
        self.limit = int(min(self.config.text_config.max_position_embeddings, self._tokenizer.model_max_length))
        self._ids = id_maker(self._tokenizer, self.limit, pads=self.siglip)
        self._all_ids = id_maker(self._tokenizer, None)
        processing: dict[str, Any] = self._processor.to_dict()
        self.factor = float(processing["rescale_factor"]) if processing.get("do_rescale") else 1.0
        scales = bool(processing.get("do_normalize"))
        self.mean: list[float] = list(processing["image_mean"]) if scales else [0.0] * 3
        self.std: list[float] = list(processing["image_std"]) if scales else [1.0] * 3
        self._check()

    def _check(self) -> None:
        """Raise InputError if the parts belong to different models."""
        height, width = self.crop(Image.new("RGB", (64, 48))).shape[1:]
        self.size = (3, int(height), int(width))
        side = self.config.vision_config.image_size
        if self.size[1:] != (side, side):
            raise InputError(f"{self.name}: its processor makes {width} x {height} pixels, its model takes {side}")
        text, ids = self.config.text_config, self._ids(["a"])[0]
        end = max(ids) if text.eos_token_id == 2 else text.eos_token_id  # 2: old configurations; the model handles it
        ends = self.siglip or (end in ids and ids.index(end) == len(ids) - 1)  # a SigLIP's configuration names no end
        if max(ids) >= text.vocab_size or not ends:
            raise InputError(f"{self.name}: its tokenizer belongs to another model")

    def count_tokens(self, captions: list[str]) -> Ints:
        """Return the number of tokens of each caption before it is cut, (n,)."""
        return lengths(self._all_ids(without_surrogates(captions)))

    def key(self) -> str:
        """Return a hexadecimal digest over the tokenizer."""
        entries = [f"{word} {number}" for word, number in sorted(self._tokenizer.get_vocab().items())]
        sample = self._ids([SAMPLE])
        return digest(["front", type(self._tokenizer).__name__, str(self.limit), str(sample), *entries])

    def encode(self, captions: list[str]) -> Array | list[Array]:
        """Convert captions to token ids, cut at the model's length, -> n arrays (length,)."""
        return [np.asarray(ids, np.int32) for ids in self._ids(without_surrogates(captions))]

    def crop(self, image: Image.Image) -> Bytes:
        """Resize and crop an RGB image as the checkpoint's processor does, (3, height, width)."""
        pixels = self._processor(image, do_rescale=False, do_normalize=False, return_tensors="np")["pixel_values"][0]
        return np.asarray(pixels, np.uint8)

    def model(self) -> nn.Module:
        """Return the model in float32, with the checkpoint's weights, or with random weights that are replaced later.

        Raises:
            InputError: The weights cannot be read, or some are missing.
        """
        model: nn.Module
        kind = getattr(self._library, MODELS[self.config.model_type])
        if not self.pretrained:
            model = kind(self.config)
            return model
        with quiet(self._library, self.name):
            model, info = kind.from_pretrained(self.place, weights_only=True, output_loading_info=True)
        if info["missing_keys"]:
            lost = sorted(map(str, info["missing_keys"]))
            raise InputError(f"{self.name}: its weights lack {len(lost)} tensors, among them {lost[0]}")
        return model.float()

    def save(self, folder: Path) -> None:
        """Write everything except the weights, so that a run no longer needs the checkpoint."""
        for part in (self.config, self._tokenizer, self._processor):
            part.save_pretrained(folder)

    def features(
        self, pairs: Pairs, cache: Path | None = None, progress: bool = True
    ) -> tuple[Features, dict[int, str]]:
        """Return pixels that are decoded when they are gathered, and the ids of the captions.

        Every image is decoded once beforehand to detect broken images. The cache stores the result.

        Args:
            pairs: The pairs.
            cache: As in `encode_pairs`.
            progress: Whether to show progress bars.

        Returns:
            The features, and the images that cannot be decoded, as a dict from row to reason.
        """
        checked, failures = encode_pairs(pairs, _DecodeCheck(self), self, cache, progress=progress)
        pixels = ImagePixels(pairs.paths, self.crop, self.size, failures)
        return Features(Table(pixels), checked.texts), failures


def is_siglip(checkpoint: str) -> bool:
    """Return whether a folder holds a SigLIP, by its configuration; of an id on the hub the name tells."""
    file = Path(checkpoint).expanduser() / "config.json"
    if not file.is_file():
        return "siglip" in checkpoint.lower()
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return isinstance(config, dict) and config.get("model_type") == "siglip"


class _DecodeCheck:
    """An image encoder for the cache, which only detects the images that fail."""

    name, dim, regions = "pixels", 1, 1
    kind: Literal["vector", "regions"] = "vector"

    def __init__(self, preprocessor: ClipPreprocessor) -> None:
        self._crop, self.size = preprocessor.crop, max(preprocessor.size)
        processing = {
            name: value for name, value in preprocessor._processor.to_dict().items() if not name.endswith("_class")
        }
        self._key = digest(["decoded", json.dumps(processing, sort_keys=True, default=str)])

    def key(self) -> str:
        return self._key

    def prepare(self, image: Image.Image) -> Tensor:
        self._crop(image)
        return torch.zeros(1)

    def encode(self, batch: Tensor) -> Tensor:
        return batch
