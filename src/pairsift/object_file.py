"""Objects of our data classes in a safetensors file, from which nothing is executed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from pairsift.errors import InputError, writing
from pairsift.files import replacing

T = TypeVar("T")
PACKAGE = __name__.partition(".")[0]


def write_object(path: Path, value: object) -> None:
    """Write an object of a data class of this package; the file is replaced atomically.

    Its fields hold numbers, texts, arrays, tensors, None, further such objects, and lists, tuples and mappings by name
    of all these. An array that several fields hold is written once.

    Raises:
        TypeError: A field holds something else.
        WriteError: The file cannot be written.
    """
    tensors: dict[str, torch.Tensor] = {}
    tree = _Writer(tensors).tree(value)
    with writing(path), replacing(path, durable=True) as part:
        save_file(tensors, part, {"tree": json.dumps(tree)})


def read_object(path: Path, kind: type[T]) -> T:
    """Read what `write_object` wrote.

    Args:
        path: The file.
        kind: Class of the object.

    Raises:
        InputError: The file is missing or damaged, or holds another object.
    """
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            value = _read(json.loads(file.metadata()["tree"]), tensors)
    except FileNotFoundError:
        raise InputError(f"{path} is missing") from None
    except Exception as error:  # safetensors raises errors of its own class
        raise InputError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(value, kind):
        raise InputError(f"{path} holds no {kind.__name__}")
    return value


class _Writer:
    """A writer of the tree of an object, which puts its arrays aside.

    Args:
        tensors: Where the arrays are put, by name.
    """

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self._names: dict[int, str] = {}
        self._kept: list[object] = []  # so that no id is used twice

    def tree(self, value: object) -> object:
        """Return a value as JSON has it."""
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray | torch.Tensor):
            return {"array": self._name(value), "numpy": isinstance(value, np.ndarray)}
        if isinstance(value, list | tuple):
            return {"tuple" if isinstance(value, tuple) else "list": [self.tree(item) for item in value]}
        if isinstance(value, Mapping):
            return {"map": {name: self.tree(item) for name, item in value.items()}}
        if is_dataclass(value) and type(value).__module__.partition(".")[0] == PACKAGE:
            named = {field.name: self.tree(getattr(value, field.name)) for field in fields(value)}
            return {"class": [type(value).__module__, type(value).__qualname__], "fields": named}
        raise TypeError(f"{type(value).__qualname__} cannot be written")

    def _name(self, value: np.ndarray | torch.Tensor) -> str:
        if id(value) not in self._names:
            self._kept.append(value)
            self._names[id(value)] = name = str(len(self._names))
            tensor = torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value
            self._tensors[name] = tensor.detach().clone().contiguous()
        return self._names[id(value)]


def _read(tree: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Return the value of a tree.

    Raises:
        ValueError: It names no data class of this package.
    """
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        tensor = tensors[tree["array"]]
        return tensor.numpy() if tree["numpy"] else tensor
    if "map" in tree:
        return {name: _read(item, tensors) for name, item in tree["map"].items()}
    if "class" not in tree:
        items = [_read(item, tensors) for item in tree["tuple" if "tuple" in tree else "list"]]
        return tuple(items) if "tuple" in tree else items
    module, name = tree["class"]
    if module.partition(".")[0] != PACKAGE:
        raise ValueError(f"{module} is not part of {PACKAGE}")
    import_module(module)
    found = getattr(sys.modules[module], name)
    if not (isinstance(found, type) and is_dataclass(found)):
        raise ValueError(f"{name} is no data class")
    return found(**{field: _read(item, tensors) for field, item in tree["fields"].items()})
