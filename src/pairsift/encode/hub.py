"""Encoders from transformers, loaded from a local folder or the Hugging Face hub."""

from __future__ import annotations

import importlib
import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from textwrap import shorten
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from pairsift.arrays import Ints
from pairsift.encode.encoder import MAX_TOKENS, Array, default_device, digest, without_surrogates
from pairsift.encode.hub_names import PREFIXES
from pairsift.errors import InputError

_IMAGES_PER_BATCH = {"cpu": 8, "cuda": 128}
_TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 65536}
NAFLEX = (
    "reads images of any shape as rows of patches (NaFlex); give a checkpoint of one size, such as "
    "google/siglip2-base-patch16-224"
)
SAMPLE = "A Dog's naïve, ROUGH-haired friend: 12.5 % of them!\tÉtude 狗"  # a caption that shows how tokenizers differ


@dataclass(frozen=True)
class Loaded:
    """A pretrained model with its tokenizer or image processor.

    Attributes:
        model: The network, float32, in evaluation mode.
        processor: The tokenizer or the image processor of the network.
        random_weights: Names of weights that were not in the file and are therefore random.
    """

    model: Any
    processor: Any
    random_weights: frozenset[str]

    @property
    def two_sided(self) -> bool:
        """A bool: whether this is a model of images and texts with a common space, as CLIP is."""
        return hasattr(self.model, "get_image_features") and hasattr(self.model, "get_text_features")

    def key(self, *steps: str) -> str:
        """Return a digest over the weights, the architecture, and `steps`, which describe the processing."""
        config = {
            name: value
            for name, value in self.model.config.to_dict().items()
            if name not in ("_name_or_path", "transformers_version")
        }
        weights: dict[str, Tensor] = self.model.state_dict()
        loaded = {name: tensor for name, tensor in weights.items() if name not in self.random_weights}
        return digest([*steps, json.dumps(config, sort_keys=True, default=str)], loaded)


def load(name: str, source: str, part: Literal["tokenizer", "processor"]) -> Loaded:
    """Load a model with its tokenizer or image processor.

    Only safetensors files are read, and no remote code is run.

    Args:
        name: Name that the user requested, for messages.
        source: A folder, or an id on the hub.
        part: Which of the two goes with the model.

    Raises:
        InputError: transformers is missing, or the model cannot be located, reached or read, or lacks weights.
    """
    library, place = transformers(), model_place(name, source)
    with quiet(library, name):
        processor = tokenizer(library, place) if part == "tokenizer" else image_processor(library, place)
        model, info = library.AutoModel.from_pretrained(
            place, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    missing = frozenset(str(key) for key in info["missing_keys"])
    lost = sorted(key for key in missing if "pooler" not in key)
    if lost:
        raise InputError(f"{name} cannot be used: its weights lack {len(lost)} tensors, among them {lost[0]}")
    return Loaded(model.float().eval().requires_grad_(False), processor, missing)


def transformers() -> ModuleType:
    """Import and return the library transformers.

    Raises:
        InputError: The library is not installed.
    """
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise InputError("models of a hub need transformers: run `pip install 'pairsift[hf]'`") from error


def model_place(name: str, source: str) -> str:
    """Return the place for transformers to load from: a folder, or an id on the hub.

    Raises:
        InputError: The source is empty, it can only be a folder and the folder does not exist, or it is a folder
            without a configuration, whose kind old versions of transformers would guess from its name.
    """
    path = Path(source).expanduser()
    if not source or (source.startswith(("/", ".", "~")) and not path.is_dir()):
        raise InputError(f"{name}: there is no such folder; give one with config.json and model.safetensors")
    if path.is_dir() and not (path / "config.json").is_file():
        raise InputError(
            f"{name} cannot be loaded: {path} has no config.json; give a folder with config.json and model.safetensors"
        )
    return str(path) if path.is_dir() else source


def tokenizer(library: ModuleType, place: str) -> Any:
    """Load the tokenizer at this place."""
    return library.AutoTokenizer.from_pretrained(place, trust_remote_code=False)


def id_maker(
    tokenizer: Any, limit: int | None, pads: bool = False, prefix: str = ""
) -> Callable[[list[str]], list[list[int]]]:
    """Return a function that gives captions their token ids, cut at a length; several threads may call it.

    Args:
        tokenizer: A tokenizer.
        limit: The length; None cuts nothing.
        pads: Whether shorter captions are padded to it, on the side of the tokenizer.
        prefix: Text before every caption.
    """
    padding = "max_length" if pads else False
    tokenizing = threading.Lock()  # a call changes the state of a tokenizer

    def ids_of(captions: list[str]) -> list[list[int]]:
        if not captions:
            return []
        with tokenizing:
            cut = {"truncation": limit is not None, "max_length": limit, "verbose": False}
            return list(tokenizer([prefix + text for text in captions], padding=padding, **cut)["input_ids"])

    return ids_of


def lengths(ids: Sequence[Sequence[int]]) -> Ints:
    """Return the number of token ids of each caption, (n,)."""
    return np.array([len(caption_ids) for caption_ids in ids], np.int64)


def image_processor(library: ModuleType, place: str) -> Any:
    """Load the image processor at this place that uses PIL.

    Every version of transformers has such a processor, and it does not need torchvision.
    """
    if int(library.__version__.split(".")[0]) >= 5:
        return library.AutoImageProcessor.from_pretrained(place, trust_remote_code=False, backend="pil")
    return library.AutoImageProcessor.from_pretrained(place, trust_remote_code=False, use_fast=False)


@contextmanager
def quiet(library: ModuleType, name: str) -> Iterator[None]:
    """Suppress the output of transformers, and convert its exceptions to an error of one line.

    Raises:
        InputError: The body raised an exception.
    """
    talk, hub = library.utils.logging, logging.getLogger("huggingface_hub")
    level, bar, hub_level = talk.get_verbosity(), talk.is_progress_bar_enabled(), hub.level
    talk.set_verbosity_error()
    talk.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    try:
        yield
    except Exception as error:  # hub, file and configuration errors have many types
        message = shorten(str(error), 200, placeholder=" …").rstrip(".") or type(error).__name__
        advice = "give a folder with config.json, model.safetensors and the tokenizer's or processor's files"
        if isinstance(error, ImportError):  # such as sentencepiece, which SigLIP's tokenizer needs
            advice = "run `pip install 'pairsift[hf]'`"
        raise InputError(f"{name} cannot be loaded ({message}); {advice}") from error
    finally:
        talk.set_verbosity(level)
        hub.setLevel(hub_level)
        if bar:
            talk.enable_progress_bar()


def projected_vectors(output: Any) -> Tensor:
    """Return the vectors in the output of `get_image_features` or `get_text_features`, float32 on the CPU.

    The type of the output differs between versions of transformers.
    """
    vectors = output if isinstance(output, torch.Tensor) else output.pooler_output
    return vectors.float().cpu()


def position_offset(model: torch.nn.Module) -> int:
    """Return how many positions of a model no token has: RoBERTa and its kin count from behind the padding's id."""
    for name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            return int(padding) + 1
    return 0


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
        if probe.ndim != 3:
            raise InputError(f"{self.name} {NAFLEX}")
        self.size = int(min(probe.shape[-2:]))
        shape = self.encode(probe[None]).shape
        self.regions = int(shape[1]) if regions else 1
        self.dim = int(shape[-1])

    def key(self) -> str:
        """Return a hexadecimal digest over weights and preprocessing."""
        if self._key is None:
            processing = self._loaded.processor.to_dict()
            processing = {name: value for name, value in processing.items() if not name.endswith("_class")}
            self._key = self._loaded.key("hub image", self.kind, json.dumps(processing, sort_keys=True, default=str))
        return self._key

    def prepare(self, image: Image.Image) -> Tensor:
        """Resize, crop and scale as the model's processor does, -> (3, height, width) float32."""
        values = self._loaded.processor(image, return_tensors="np")["pixel_values"][0]
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))

    @torch.inference_mode()
    def encode(self, batch: Tensor) -> Tensor:
        """Encode prepared images, (n, 3, height, width) -> (n, dim) or (n, regions, dim), float32 on the CPU."""
        chunks = torch.split(batch, _IMAGES_PER_BATCH[self._device.type])
        return torch.cat([self._encode(chunk.to(self._device)) for chunk in chunks])

    def _encode(self, pixels: Tensor) -> Tensor:
        if self.kind == "vector" and self._loaded.two_sided:
            return projected_vectors(self._model.get_image_features(pixel_values=pixels))
        hidden: Any = self._tower(pixel_values=pixels).last_hidden_state
        if hidden.ndim == 4:  # (n, channels, height, width) of a convolutional network
            hidden, extra = hidden.flatten(2).transpose(1, 2), 0
        else:  # patches form a square; class and register tokens come before them
            extra = hidden.shape[1] - isqrt(hidden.shape[1]) ** 2
        if self.kind == "vector":
            hidden = hidden[:, :1] if extra else hidden
            return torch.as_tensor(hidden.mean(1)).float().cpu()
        return torch.as_tensor(hidden[:, extra:]).float().cpu()


class HubTextEncoder:
    """A language model of transformers, or the text side of a model like CLIP.

    The vector of a caption is the projected vector of a CLIP-like model, else the average of the last layer over the
    caption's tokens. Tokens are the rows of the last layer. Captions are cut at the limit of the model, at most 512
    tokens. The text that a model's makers put before every caption is known for the hub ids of `HUB_MODELS`, not for
    folders.

    Args:
        source: Folder or hub id.
        tokens: Whether to keep one vector per token.

    Raises:
        InputError: The model cannot be loaded.
    """

    kind: Literal["vector", "tokens", "ids"]

    def __init__(self, source: str, tokens: bool = False) -> None:
        self.name = f"hf:{source}"
        self.kind = "tokens" if tokens else "vector"
        self._device = default_device()
        self._loaded = load(self.name, source, "tokenizer")
        self._model, self._tokenizer = self._loaded.model.to(self._device), self._loaded.processor
        self._tower = getattr(self._model, "text_model", self._model)
        config = getattr(self._model.config, "text_config", None) or self._model.config
        positions = getattr(config, "max_position_embeddings", None)
        limits = positions and positions - position_offset(self._tower), self._tokenizer.model_max_length
        self.limit = int(min(limit for limit in (*limits, MAX_TOKENS) if limit))
        self._pad = int(self._tokenizer.pad_token_id or 0)
        self._pads_fully = str(self._model.config.model_type).startswith("siglip")  # as in its training
        self._pads_left = self._pads_fully and self._tokenizer.padding_side == "left"  # elsewhere a mask hides padding
        prefix = PREFIXES.get(source, "")
        self._ids, self._all_ids = (id_maker(self._tokenizer, limit, prefix=prefix) for limit in (self.limit, None))
        self._key: str | None = None
        self.dim = int(self._run(self._ids(["a"]))[1].shape[-1])

    def key(self) -> str:
        """Return a hexadecimal digest over weights and tokenizer."""
        if self._key is None:
            words = sorted(self._tokenizer.get_vocab().items())
            sample = self._ids([SAMPLE])
            description = f"{type(self._tokenizer).__name__} {words} {sample}" + " left" * self._pads_left
            self._key = self._loaded.key("hub text", self.kind, str(self.limit), description)
        return self._key

    def count_tokens(self, captions: list[str]) -> Ints:
        """Return the number of tokens of each caption before it is cut, (n,)."""
        return lengths(self._all_ids(without_surrogates(captions)))

    @torch.inference_mode()
    def encode(self, captions: list[str]) -> Array | list[Array]:
        """Encode captions, -> (n, dim) float32, or a list of n arrays (length, dim), length at least 1."""
        ids = self._ids(without_surrogates(captions))
        vectors = np.zeros((len(ids), self.dim), np.float32)
        tokens: list[Array] = [np.zeros((1, self.dim), np.float32)] * len(ids)
        for rows in self._batches(ids):
            mask, values = self._run([ids[row] for row in rows])
            if self.kind == "vector":
                vectors[rows] = values.numpy()
            else:
                for row, states, real in zip(rows, values, mask, strict=True):
                    tokens[row] = states[real].numpy()
        return vectors if self.kind == "vector" else tokens

    def _batches(self, ids: list[list[int]]) -> Iterator[Ints]:
        """Yield rows of captions of similar length, which need little padding.

        Captions without any token are left out.
        """
        length = lengths(ids)
        order = np.argsort(length, kind="stable")
        order = order[length[order] > 0]
        while len(order):
            count = max(1, _TOKENS_PER_BATCH[self._device.type] // int(length[order[-1]]))
            yield order[-count:]
            order = order[:-count]

    def _run(self, ids: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Encode one batch, -> mask of real tokens (n, length), (n, dim) vectors or (n, length, dim) tokens, on CPU."""
        length = self.limit if self._pads_fully else max(map(len, ids))
        padded = np.full((len(ids), length), self._pad, np.int64)
        mask: NDArray[np.bool_] = np.arange(length) < np.array([len(caption_ids) for caption_ids in ids])[:, None]
        mask = np.flip(mask, 1).copy() if self._pads_left else mask
        padded[mask] = np.concatenate([np.asarray(caption_ids, np.int64) for caption_ids in ids])
        real = torch.from_numpy(mask)
        inputs: dict[str, Any] = {"input_ids": torch.from_numpy(padded).to(self._device)}
        if not self._pads_fully:
            inputs["attention_mask"] = real.to(self._device, torch.int64)
        with torch.inference_mode():
            if self.kind == "vector" and self._loaded.two_sided:
                return real, projected_vectors(self._model.get_text_features(**inputs))
            hidden: Tensor = self._tower(**inputs).last_hidden_state.float().cpu()
        if self.kind == "tokens":
            return real, hidden
        weights = real[:, :, None].to(hidden.dtype)
        return real, (hidden * weights).sum(1) / weights.sum(1)
