"""Checkpoints of the SGRAF family as their authors publish them, read without running anything that they hold.

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

DATA_SIZES = ("image_dim", "vocabulary_size", "regions")  # that the data decides


class _Unread:
    """Stands for a number of numpy's in the pickle, such as a `best_rsum`: nothing of numpy is called to make it."""

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, _: object) -> None:
        pass


# Beside tensors and plain values a file may name only these; a Namespace is a bag of attributes, without code.
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
        epoch: Epoch that the file says it is of, if it does.
        rsum: Its best rSum by its own word, if it gives one as a plain number.
    """

    path: Path
    kind: str
    options: Mapping[str, int]
    networks: list[dict[str, Tensor]]
    epoch: int | None
    rsum: float | None


def read_published(path: Path) -> Published:
    """Read a checkpoint of the SGRAF family.

    Sizes come from the parameters' shapes. A `module.` before a name is taken away; encoders behind the third, such as
    PC2's classifier, are left out with a note.

    Raises:
        InputError: It cannot be read without running code, or parameters are missing, too many or misshapen.
    """
    raw = _unpickle(path)
    try:
        keys = _keys(raw)
        _check_norms(raw.get("opt"))
        found = [_parameters(key, raw[key]) for key in keys]
        kind, options = _kind(found[0]), _sizes(found[0])
        with torch.device("meta"):
            wanted = _matcher(kind, options).state_dict()
        networks = [_renamed(one, wanted) for one in found]
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
        if named := re.search(r"GLOBAL (\S+)", str(error)):
            raise InputError(
                f"{path}: holds {named[1]}, no tensor and no plain value; nothing of it was run, and it is not read"
            ) from error
        raise InputError(f"{path}: is no checkpoint of tensors and plain values that torch reads") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # a damaged file makes torch raise almost anything
        lines = str(error).splitlines() or [type(error).__name__]
        raise InputError(f"{path}: is no whole checkpoint of torch's ({lines[0]}); copy it again") from error


def _keys(raw: object) -> tuple[str, ...]:
    """Names of the networks in the file."""
    for keys in (("model",), ("model_A", "model_B")):
        if isinstance(raw, dict) and all(key in raw for key in keys):
            return keys
    shown = ", ".join(map(str, raw)) if isinstance(raw, dict) else type(raw).__name__
    raise InputError(f"holds {shown[:200]}; a checkpoint of the SGRAF family has `model`, or `model_A` and `model_B`")


def _check_norms(options: object) -> None:
    given = vars(options) if isinstance(options, argparse.Namespace) else {}
    for name in ("no_imgnorm", "no_txtnorm"):
        if given.get(name) is True:
            raise InputError(f"was trained with {name}, without codes of unit length, which no matcher here does")


def _parameters(key: str, encoders: object) -> dict[str, Tensor]:
    """Return the parameters of the three encoders of one network; their names are distinct."""
    if not isinstance(encoders, list | tuple) or len(encoders) < ENCODERS:
        raise InputError(f"{key} is no list of the states of an image, a text and a similarity encoder")
    if len(encoders) > ENCODERS:
        log.warning("%s: what follows its three encoders (%d more) is not read", key, len(encoders) - ENCODERS)
    found: dict[str, Tensor] = {}
    for encoder in encoders[:ENCODERS]:
        if not isinstance(encoder, Mapping):
            raise InputError(f"{key} holds a {type(encoder).__name__} in the place of an encoder's state")
        for name, value in encoder.items():
            if not isinstance(value, Tensor):
                raise InputError(f"its {name} is a {type(value).__name__}, no tensor")
            found[str(name).removeprefix("module.")] = value
    return found


def _kind(found: Mapping[str, Tensor]) -> str:
    for kind, module in (("sgr", "SGR_module."), ("saf", "SAF_module.")):
        if any(name.startswith(module) for name in found):
            return kind
    raise InputError("its similarity encoder has neither an SGR_module nor an SAF_module")


def _sizes(found: Mapping[str, Tensor]) -> dict[str, int]:
    sizes = {}
    for option, (name, axis) in SIZES.items():
        if name not in found:
            raise InputError(f"has no parameter {name}")
        if found[name].ndim <= axis:
            raise InputError(f"its {name} has the shape {tuple(found[name].shape)}, which has no axis {axis}")
        sizes[option] = found[name].shape[axis]
    steps = {step[1] for name in found if (step := re.match(r"SGR_module\.(\d+)\.", name))}
    return {**sizes, "steps": len(steps)} if steps else sizes


def _renamed(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters under the names of `wanted`: exactly these, with the same shapes and types."""
    names = {name: _published_name(name) for name in wanted}
    if extra := sorted(found.keys() - names.values()):
        raise InputError(f"has a parameter {extra[0]}, which is not known")
    state = {}
    for name, like in wanted.items():
        theirs = names[name]
        if theirs not in found:
            raise InputError(f"has no parameter {theirs}")
        value = found[theirs]
        if value.shape != like.shape:
            raise InputError(
                f"its {theirs} has the shape {tuple(value.shape)}; with the others goes {tuple(like.shape)}"
            )
        state[name] = value.to(like.dtype)
    return state


def _published_name(name: str) -> str:
    stem, _, leaf = name.rpartition(".")
    if stem.startswith("steps."):
        _, number, part = stem.split(".")
        return f"SGR_module.{number}.{STEP[part]}.{leaf}"
    return f"{STEMS[stem]}.{leaf}"
