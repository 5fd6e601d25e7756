"""The loading of models with transformers, from a local folder or the Hugging Face hub."""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from pairsift.encode.encoder import digest
from pairsift.errors import InputError


@dataclass(frozen=True)
class Loaded:
    """A pretrained model with its tokenizer or image processor.

    Attributes:
        model: The network, float32, in evaluation mode.
        front: The tokenizer or the image processor of the network.
        made_up: Names of weights that were not in the file and are therefore random.
    """

    model: Any
    front: Any
    made_up: frozenset[str]

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
        loaded = {name: tensor for name, tensor in weights.items() if name not in self.made_up}
        return digest([*steps, json.dumps(config, sort_keys=True, default=str)], loaded)


def load(name: str, source: str, front: str) -> Loaded:
    """Load a model with its tokenizer or image processor.

    Only safetensors files are read, and no remote code is run.

    Args:
        name: Name that the user requested, for messages.
        source: A folder, or an id on the hub.
        front: `tokenizer` or `processor`.

    Raises:
        InputError: transformers is missing, or the model cannot be located, reached or read, or lacks weights.
    """
    library, place = transformers(), find(name, source)
    with using(library, name):
        front_part = tokenizer(library, place) if front == "tokenizer" else image_processor(library, place)
        model, info = library.AutoModel.from_pretrained(
            place, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    missing = frozenset(str(key) for key in info["missing_keys"])
    lost = sorted(key for key in missing if "pooler" not in key)
    if lost:
        raise InputError(f"{name} cannot be used: its weights lack {len(lost)} tensors, among them {lost[0]}")
    return Loaded(model.float().eval().requires_grad_(False), front_part, missing)


def transformers() -> ModuleType:
    """Import and return the library transformers.

    Raises:
        InputError: The library is not installed.
    """
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise InputError("models of a hub need transformers: run `pip install 'pairsift[hf]'`") from error


def find(name: str, source: str) -> str:
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


def image_processor(library: ModuleType, place: str) -> Any:
    """Load the image processor at this place that uses PIL.

    Every version of transformers has such a processor, and it does not need torchvision.
    """
    if int(library.__version__.split(".")[0]) >= 5:
        return library.AutoImageProcessor.from_pretrained(place, trust_remote_code=False, backend="pil")
    return library.AutoImageProcessor.from_pretrained(place, trust_remote_code=False, use_fast=False)


@contextmanager
def using(library: ModuleType, name: str) -> Iterator[None]:
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
        message = " ".join(str(error).split())
        if len(message) > 200:
            message = message[: message.rfind(". ", 0, 200)] if ". " in message[:200] else message[:200]
        message = message.rstrip(".") or type(error).__name__
        advice = "give a folder with config.json, model.safetensors and the tokenizer's or processor's files"
        raise InputError(f"{name} cannot be loaded ({message}); {advice}") from error
    finally:
        talk.set_verbosity(level)
        hub.setLevel(hub_level)
        if bar:
            talk.enable_progress_bar()


def pooled(output: Any) -> Tensor:
    """Return the vectors in the output of `get_image_features` or `get_text_features`, float32 on the CPU.

    The type of the output differs between versions of transformers.
    """
    vectors = output if isinstance(output, torch.Tensor) else output.pooler_output
    return vectors.float().cpu()
