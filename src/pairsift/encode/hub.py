"""Loading models with transformers, from a local folder or the Hugging Face hub."""

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
    """A pretrained model with what goes before it.

    Attributes:
        model: The network, float32, in evaluation mode.
        front: Its tokenizer or image processor.
        made_up: Names of weights that were not in the file and so are random.
    """

    model: Any
    front: Any
    made_up: frozenset[str]

    @property
    def two_sided(self) -> bool:
        """Whether this is a model of images and texts with a common space, as CLIP is."""
        return hasattr(self.model, "get_image_features") and hasattr(self.model, "get_text_features")

    def key(self, *steps: str) -> str:
        """Digest over weights, architecture, and what `steps` says of the processing."""
        config = {
            name: value
            for name, value in self.model.config.to_dict().items()
            if name not in ("_name_or_path", "transformers_version")
        }
        weights: dict[str, Tensor] = self.model.state_dict()
        known = {name: tensor for name, tensor in weights.items() if name not in self.made_up}
        return digest([*steps, json.dumps(config, sort_keys=True, default=str)], known)


def load(name: str, source: str, front: str) -> Loaded:
    """Load a model with its tokenizer or image processor; only safetensors are read and no foreign code is run.

    Args:
        name: What the user asked for, for messages.
        source: A folder, or an id on the hub.
        front: `tokenizer` or `processor`.

    Raises:
        InputError: transformers is missing, or the model cannot be found, reached or read, or lacks weights.
    """
    library, place = transformers(), find(name, source)
    with using(library, name):
        before = tokenizer(library, place) if front == "tokenizer" else image_processor(library, place)
        model, info = library.AutoModel.from_pretrained(
            place, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    missing = frozenset(str(key) for key in info["missing_keys"])
    lost = sorted(key for key in missing if "pooler" not in key)
    if lost:
        raise InputError(f"{name} cannot be used: its weights lack {len(lost)} tensors, among them {lost[0]}")
    return Loaded(model.float().eval().requires_grad_(False), before, missing)


def transformers() -> ModuleType:
    """The library.

    Raises:
        InputError: It is not installed.
    """
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise InputError("models of a hub need transformers: run `pip install 'pairsift[hf]'`") from error


def find(name: str, source: str) -> str:
    """Where transformers is to look: a folder, or an id on the hub.

    Raises:
        InputError: What can only be a folder is none.
    """
    path = Path(source).expanduser()
    if not source or (source.startswith(("/", ".", "~")) and not path.is_dir()):
        raise InputError(f"{name}: there is no such folder; give one with config.json and model.safetensors")
    return str(path) if path.is_dir() else source


def tokenizer(library: ModuleType, place: str) -> Any:
    """The tokenizer there."""
    return library.AutoTokenizer.from_pretrained(place, trust_remote_code=False)


def image_processor(library: ModuleType, place: str) -> Any:
    """The processor there that computes with PIL, which every version has and which needs no torchvision."""
    if int(library.__version__.split(".")[0]) >= 5:
        return library.AutoImageProcessor.from_pretrained(place, trust_remote_code=False, backend="pil")
    return library.AutoImageProcessor.from_pretrained(place, trust_remote_code=False, use_fast=False)


@contextmanager
def using(library: ModuleType, name: str) -> Iterator[None]:
    """Hold back what transformers prints, and make one line of what it raises.

    Raises:
        InputError: Something else was raised.
    """
    talk, hub = library.utils.logging, logging.getLogger("huggingface_hub")
    level, bar, hub_level = talk.get_verbosity(), talk.is_progress_bar_enabled(), hub.level
    talk.set_verbosity_error()
    talk.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    try:
        yield
    except Exception as error:  # hub, file and configuration errors come as many types
        said = " ".join(str(error).split())
        if len(said) > 200:
            said = said[: said.rfind(". ", 0, 200)] if ". " in said[:200] else said[:200]
        said = said.rstrip(".") or type(error).__name__
        advice = "give a folder with config.json, model.safetensors and the tokenizer's or processor's files"
        raise InputError(f"{name} cannot be loaded ({said}); {advice}") from error
    finally:
        talk.set_verbosity(level)
        hub.setLevel(hub_level)
        if bar:
            talk.enable_progress_bar()


def pooled(output: Any) -> Tensor:
    """The vectors in what `get_image_features` or `get_text_features` gives, which differs between versions."""
    vectors = output if isinstance(output, torch.Tensor) else output.pooler_output
    return vectors.float().cpu()
