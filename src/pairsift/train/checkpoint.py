"""The checkpoint: a file with everything that a run needs to continue, replaced atomically."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from pairsift.arrays import Array
from pairsift.errors import InputError, writing
from pairsift.files import replacing

if TYPE_CHECKING:  # methods take seconds to import, and reading weights needs none of them
    from pairsift.steps import Network


def write_tensors(path: Path, tensors: dict[str, Tensor], facts: dict[str, object] | None = None) -> None:
    """Write tensors, with facts as JSON in the header; the file is replaced atomically.

    Raises:
        WriteError: The file cannot be written; the old file is kept.
    """
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with writing(path), replacing(path, durable=True) as part:
        save_file(copies, part, {"facts": json.dumps(facts or {})})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Read the tensors and the facts that `write_tensors` wrote.

    Raises:
        InputError: The file is missing or cannot be read as safetensors.
    """
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
    except FileNotFoundError:
        raise InputError(f"{path} is missing") from None
    except Exception as error:
        raise InputError(f"{path} cannot be read as safetensors: {error}") from None


def pack(
    networks: Sequence[Network], optimizers: Sequence[torch.optim.Optimizer], state: dict[str, Array]
) -> dict[str, Tensor]:
    """Return weights, optimizer moments and the method's state under flat names."""
    tensors = {f"state/{name}": torch.from_numpy(np.ascontiguousarray(array)) for name, array in state.items()}
    for k, network in enumerate(networks):
        tensors |= {f"network/{k}/{name}": value for name, value in network.state_dict().items()}
    for k, optimizer in enumerate(optimizers):
        for number, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{k}/{number}/{name}": value for name, value in moments.items()}
    return tensors


def unpack(
    tensors: dict[str, Tensor],
    networks: Sequence[Network],
    optimizers: Sequence[torch.optim.Optimizer],
) -> dict[str, Array]:
    """Load weights and moments into the networks and optimizers, and return the method's state."""
    for k, network in enumerate(networks):
        network.load_state_dict(with_prefix(tensors, f"network/{k}/"))
    for k, optimizer in enumerate(optimizers):
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in with_prefix(tensors, f"optimizer/{k}/").items():
            number, moment = name.split("/")
            moments.setdefault(int(number), {})[moment] = value
        optimizer_state = optimizer.state_dict()
        optimizer_state["state"] = moments
        optimizer.load_state_dict(optimizer_state)
    return {name: value.numpy() for name, value in with_prefix(tensors, "state/").items()}


def with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with `prefix`, under their names without the prefix."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
