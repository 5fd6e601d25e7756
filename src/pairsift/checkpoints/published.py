"""Checkpoints as their authors publish them, read without running any code in them.

SGRAF, NCR, PC2, GSC, DECL, BiCro and others store one pickle: under `model`, or under `model_A` and `model_B` for two
networks, a list of the state dicts of an image encoder, a text encoder and a similarity encoder. SCAN, VSRN and
VSE-infinity store a list of two, IMRAM one state dict, and all of them the options of the training under `opt`. NPC
stores the state dict of a CLIP, under OpenAI's names.
"""

from __future__ import annotations

import argparse
import logging
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pairsift.checkpoints.layouts import CLIP_SIGN, ENCODERS, Layout, clip_state, layout_of
from pairsift.errors import InputError
from pairsift.match import MATCHERS
from pairsift.match.base import Matcher

log = logging.getLogger(__name__)

CLIP = "clip"
MINIMUM = 2  # encoders of a network
COUNTER = "num_batches_tracked"
DATA_SIZES = ("image_dim", "vocabulary_size", "regions")  # sizes that depend on the data


class _Unread:
    """A stand-in for a NumPy number in the pickle, such as `best_rsum`: no function of NumPy is called to make it."""

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, _: object) -> None:
        pass


# Besides tensors and plain values, a file may name only these. A Namespace holds attributes and no code.
NUMBERS = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar", "numpy.dtype")
ALLOWED: list[Any] = [argparse.Namespace, *((_Unread, name) for name in NUMBERS)]


@dataclass(frozen=True)
class Published:
    """A published checkpoint in this package's names.

    Attributes:
        path: The file.
        kind: Name of the matcher.
        options: Every option and size that the matcher's constructor takes.
        networks: The matcher's state for each network.
        epoch: Epoch as stated in the file; None if it states none.
        rsum: Best rSum as stated in the file; None if it states none as a plain number.
        spare_words: Most rows that the embedding of words may have beyond the vocabulary.
    """

    path: Path
    kind: str
    options: Mapping[str, Any]
    networks: list[dict[str, Tensor]]
    epoch: int | None
    rsum: float | None
    spare_words: int = 0


def read_published(path: Path) -> Published:
    """Read a published checkpoint.

    Sizes come from the parameters' shapes, and what no shape tells from the options in the file. The prefix `module.`
    of a name is removed. Encoders beyond the layout, such as PC2's classifier, are left out with a warning. The
    counters of batch norms, which older versions of torch did not store, may be missing.

    Raises:
        InputError: The file cannot be read without running code, or a parameter is missing, unknown or misshapen.
    """
    raw = _unpickle(path)
    try:
        if (clip := _clip(raw)) is not None:
            return Published(path, CLIP, {}, [clip_state(clip)], _epoch(raw), None)
        keys, stored = _keys(raw), _options(raw.get("opt"))
        found = {key: _parameters(key, raw[key]) for key in keys}
        layout = layout_of(found[keys[0]], stored)
        parameters = [layout.prepare(_read_encoders(key, raw[key], state, layout)) for key, state in found.items()]
        options = layout.all_settings(stored, parameters[0])
        with torch.device("meta"):
            reference = _matcher(layout.kind, options).state_dict()
        networks = [_renamed(state, reference, layout) for state in parameters]
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    rsum = raw.get("best_rsum")
    return Published(
        path,
        layout.kind,
        options,
        networks,
        _epoch(raw),
        float(rsum) if isinstance(rsum, int | float) else None,
        layout.spare_words,
    )


def _matcher(kind: str, sizes: Mapping[str, Any]) -> Matcher:
    """Return a matcher of these sizes."""
    matcher = MATCHERS[kind]
    data = {name: size for name, size in sizes.items() if name in DATA_SIZES}
    options = matcher.options(**{name: size for name, size in sizes.items() if name not in DATA_SIZES})
    return matcher.make(options, **data)


def _unpickle(path: Path) -> Any:
    """Return the content of the pickle, read by torch's unpickler for weights, which runs no other code."""
    try:
        with torch.serialization.safe_globals(ALLOWED):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if name := re.search(r"GLOBAL (\S+)", str(error)):
            raise InputError(
                f"{path}: holds {name[1]}, which is neither a tensor nor a plain value; none of its code was run, and "
                "it is not read"
            ) from error
        raise InputError(f"{path}: is no checkpoint of tensors and plain values that torch reads") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # a damaged file makes torch raise almost anything
        lines = str(error).splitlines() or [type(error).__name__]
        raise InputError(f"{path}: is no complete torch checkpoint ({lines[0]}); copy it again") from error


def _clip(raw: object) -> dict[str, Tensor] | None:
    """Return the weights of a CLIP under OpenAI's names, as NPC stores them; None where the file holds none."""
    state = raw.get("state_dict") if isinstance(raw, dict) else None
    if not isinstance(state, Mapping) or not any(str(name).removeprefix("module.") == CLIP_SIGN for name in state):
        return None
    return _tensors(state)


def _epoch(raw: Mapping[str, Any]) -> int | None:
    return raw["epoch"] if isinstance(raw.get("epoch"), int) else None


def _keys(raw: object) -> tuple[str, ...]:
    """Return the keys of the networks in the file."""
    for keys in (("model",), ("model_A", "model_B")):
        if isinstance(raw, dict) and all(key in raw for key in keys):
            return keys
    content = ", ".join(map(str, raw)) if isinstance(raw, dict) else type(raw).__name__
    raise InputError(
        f"holds {content[:200]}; a published checkpoint has `model`, or `model_A` and `model_B`, or a CLIP's "
        "`state_dict`"
    )


def _options(stored: object) -> dict[str, Any]:
    """Return the options that the authors' program stored; empty where there are none."""
    if isinstance(stored, argparse.Namespace):
        return dict(vars(stored))
    return {str(name): value for name, value in stored.items()} if isinstance(stored, Mapping) else {}


def _parameters(key: str, stored: object) -> dict[str, Tensor]:
    """Return the parameters of one network; in a list of encoders, each name begins with its encoder's name."""
    if isinstance(stored, Mapping):
        return _tensors(stored)
    if not isinstance(stored, list | tuple) or len(stored) < MINIMUM:
        raise InputError(f"{key} is neither a network's state nor a list of the states of its encoders")
    parameters: dict[str, Tensor] = {}
    for beginning, encoder in zip(ENCODERS, stored, strict=False):
        if not isinstance(encoder, Mapping):
            raise InputError(f"{key} holds a {type(encoder).__name__} in the place of an encoder's state")
        parameters |= {beginning + name: value for name, value in _tensors(encoder).items()}
    return parameters


def _tensors(state: Mapping[Any, Any]) -> dict[str, Tensor]:
    """Return a state without the prefix that training on several GPUs gives to names."""
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise InputError(f"its {name} is of type {type(value).__name__}, not a tensor")
    return {str(name).removeprefix("module."): value for name, value in state.items()}


def _read_encoders(key: str, stored: object, parameters: Mapping[str, Tensor], layout: Layout) -> dict[str, Tensor]:
    """Return the parameters of the encoders that the layout has, without others such as PC2's classifier."""
    if isinstance(stored, list | tuple) and (count := len(stored) - layout.encoders) > 0:
        log.warning("%s: only its first %d encoders are read; encoders ignored: %d", key, layout.encoders, count)
    ignored = ENCODERS[layout.encoders :]
    return {name: value for name, value in parameters.items() if not name.startswith(ignored)}


def _renamed(parameters: Mapping[str, Tensor], reference: Mapping[str, Tensor], layout: Layout) -> dict[str, Tensor]:
    """Return the parameters under the names of `reference`, with its types; names and shapes must be the same."""
    names = {name: layout.published_name(name) for name in reference}
    known = parameters.keys() - names.values()
    if extra := sorted(name for name in known if not name.startswith(layout.unread)):
        raise InputError(f"has an unknown parameter {extra[0]}")
    state = {}
    for name, expected in reference.items():
        published_name = names[name]
        if published_name not in parameters:
            if published_name.endswith(COUNTER):
                state[name] = torch.zeros_like(expected, device="cpu")
                continue
            raise InputError(f"has no parameter {published_name}")
        value = parameters[published_name]
        if value.shape != expected.shape:
            raise InputError(
                f"its {published_name} has the shape {tuple(value.shape)}; the other parameters need "
                f"{tuple(expected.shape)}"
            )
        state[name] = value.to(expected.dtype)
    return state
