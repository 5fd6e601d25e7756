"""Checkpoints of the SGRAF family as their authors publish them, read without running any code in them.

SGRAF, NCR, PC2, GSC, DECL, BiCro and others store one pickle: under `model`, or under `model_A` and `model_B` for two
networks, a list of the state dicts of an image encoder, a text encoder and a similarity encoder.
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

from pairsift.errors import InputError
from pairsift.match import MATCHERS
from pairsift.match.base import Matcher

log = logging.getLogger(__name__)

ENCODERS = 3
STEMS = {
    "regions": "fc",
    "words.vectors": "embed",
    "words.gru": "cap_rnn",
    "image_attention.local": "v_global_w.embedding_local.0",
    "image_attention.local_norm": "v_global_w.embedding_local.1",
    "image_attention.whole": "v_global_w.embedding_global.0",
    "image_attention.whole_norm": "v_global_w.embedding_global.1",
    "image_attention.common": "v_global_w.embedding_common.0",
    "text_attention.local": "t_global_w.embedding_local.0",
    "text_attention.whole": "t_global_w.embedding_global.0",
    "text_attention.common": "t_global_w.embedding_common.0",
    "local": "sim_tranloc_w",
    "whole": "sim_tranglo_w",
    "head": "sim_eval_w",
    "gate": "SAF_module.attn_sim_w",
    "gate_norm": "SAF_module.bn",
}
STEP = {"query": "graph_query_w", "key": "graph_key_w", "out": "sim_graph_w"}
SIZES = {
    "image_dim": ("fc.weight", 1),
    "dim": ("fc.weight", 0),
    "vocabulary_size": ("embed.weight", 0),
    "word_dim": ("embed.weight", 1),
    "regions": ("v_global_w.embedding_local.1.weight", 0),
    "similarity_dim": ("sim_eval_w.weight", 1),
}

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
        kind: The matcher, `sgr` or `saf`.
        options: Every size that the matcher's constructor takes.
        networks: The matcher's state for each network.
        epoch: Epoch as stated in the file; None if it states none.
        rsum: Best rSum as stated in the file; None if it states none as a plain number.
    """

    path: Path
    kind: str
    options: Mapping[str, int]
    networks: list[dict[str, Tensor]]
    epoch: int | None
    rsum: float | None


def read_published(path: Path) -> Published:
    """Read a checkpoint of the SGRAF family.

    Sizes come from the parameters' shapes. The prefix `module.` of a name is removed. Encoders after the third, such as
    PC2's classifier, are left out with a warning.

    Raises:
        InputError: The file cannot be read without running code, or a parameter is missing, unknown or misshapen.
    """
    raw = _unpickle(path)
    try:
        keys = _keys(raw)
        _check_norms(raw.get("opt"))
        parameters = [_parameters(key, raw[key]) for key in keys]
        kind, options = _kind(parameters[0]), _sizes(parameters[0])
        with torch.device("meta"):
            reference = _matcher(kind, options).state_dict()
        networks = [_renamed(state, reference) for state in parameters]
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    epoch, rsum = raw.get("epoch"), raw.get("best_rsum")
    return Published(
        path,
        kind,
        options,
        networks,
        epoch if isinstance(epoch, int) else None,
        float(rsum) if isinstance(rsum, int | float) else None,
    )


def _matcher(kind: str, sizes: Mapping[str, int]) -> Matcher:
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


def _keys(raw: object) -> tuple[str, ...]:
    """Return the keys of the networks in the file."""
    for keys in (("model",), ("model_A", "model_B")):
        if isinstance(raw, dict) and all(key in raw for key in keys):
            return keys
    content = ", ".join(map(str, raw)) if isinstance(raw, dict) else type(raw).__name__
    raise InputError(f"holds {content[:200]}; a checkpoint of the SGRAF family has `model`, or `model_A` and `model_B`")


def _check_norms(options: object) -> None:
    values = vars(options) if isinstance(options, argparse.Namespace) else {}
    for name in ("no_imgnorm", "no_txtnorm"):
        if values.get(name) is True:
            raise InputError(
                f"was trained with {name}, so its codes do not have unit length; no matcher here supports that"
            )


def _parameters(key: str, encoders: object) -> dict[str, Tensor]:
    """Return the parameters of the three encoders of one network; their names are distinct."""
    if not isinstance(encoders, list | tuple) or len(encoders) < ENCODERS:
        raise InputError(f"{key} is no list of the states of an image, a text and a similarity encoder")
    if len(encoders) > ENCODERS:
        log.warning("%s: only its first three encoders are read; encoders ignored: %d", key, len(encoders) - ENCODERS)
    parameters: dict[str, Tensor] = {}
    for encoder in encoders[:ENCODERS]:
        if not isinstance(encoder, Mapping):
            raise InputError(f"{key} holds a {type(encoder).__name__} in the place of an encoder's state")
        for name, value in encoder.items():
            if not isinstance(value, Tensor):
                raise InputError(f"its {name} is of type {type(value).__name__}, not a tensor")
            parameters[str(name).removeprefix("module.")] = value
    return parameters


def _kind(parameters: Mapping[str, Tensor]) -> str:
    for kind, module in (("sgr", "SGR_module."), ("saf", "SAF_module.")):
        if any(name.startswith(module) for name in parameters):
            return kind
    raise InputError("its similarity encoder has neither an SGR_module nor an SAF_module")


def _sizes(parameters: Mapping[str, Tensor]) -> dict[str, int]:
    sizes = {}
    for option, (name, axis) in SIZES.items():
        if name not in parameters:
            raise InputError(f"has no parameter {name}")
        if parameters[name].ndim <= axis:
            raise InputError(f"its {name} has the shape {tuple(parameters[name].shape)}, which has no axis {axis}")
        sizes[option] = parameters[name].shape[axis]
    steps = {step[1] for name in parameters if (step := re.match(r"SGR_module\.(\d+)\.", name))}
    return {**sizes, "steps": len(steps)} if steps else sizes


def _renamed(parameters: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters under the names of `reference`, with its types; names and shapes must be the same."""
    names = {name: _published_name(name) for name in reference}
    if extra := sorted(parameters.keys() - names.values()):
        raise InputError(f"has an unknown parameter {extra[0]}")
    state = {}
    for name, expected in reference.items():
        published_name = names[name]
        if published_name not in parameters:
            raise InputError(f"has no parameter {published_name}")
        value = parameters[published_name]
        if value.shape != expected.shape:
            raise InputError(
                f"its {published_name} has the shape {tuple(value.shape)}; the other parameters need "
                f"{tuple(expected.shape)}"
            )
        state[name] = value.to(expected.dtype)
    return state


def _published_name(name: str) -> str:
    stem, _, leaf = name.rpartition(".")
    if stem.startswith("steps."):
        _, number, part = stem.split(".")
        return f"SGR_module.{number}.{STEP[part]}.{leaf}"
    return f"{STEMS[stem]}.{leaf}"
