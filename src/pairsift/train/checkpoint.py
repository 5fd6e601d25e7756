"""One file that holds everything a run needs to go on, replaced atomically."""

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

if TYPE_CHECKING:  # methods take seconds to import, and whoever reads weights needs none
    from pairsift.steps import Network


def write_tensors(path: Path, tensors: dict[str, Tensor], facts: dict[str, object] | None = None) -> None:
    """Write tensors, and facts as JSON beside them in the header, so that a reader sees the old file or the new one.

    Raises:
        WriteError: The file cannot be written; what was there stays.
    """
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with writing(path), replacing(path, durable=True) as part:
        save_file(whole, part, {"facts": json.dumps(facts or {})})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Read what `write_tensors` wrote.

    Raises:
        InputError: The file is missing or is no such file.
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
    """Weights, optimizer moments and the method's state under flat names."""
    tensors = {f"state/{name}": torch.from_numpy(np.ascontiguousarray(array)) for name, array in state.items()}
    for k, (network, optimizer) in enumerate(zip(networks, optimizers, strict=True)):
        tensors |= {f"network/{k}/{name}": value for name, value in network.state_dict().items()}
        for number, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{k}/{number}/{name}": value for name, value in moments.items()}
    return tensors


def unpack(
    tensors: dict[str, Tensor],
    networks: Sequence[Network],
    optimizers: Sequence[torch.optim.Optimizer],
) -> dict[str, Array]:
    """Put weights and moments back; returns the method's state."""
    for k, (network, optimizer) in enumerate(zip(networks, optimizers, strict=True)):
        network.load_state_dict(under(tensors, f"network/{k}/"))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in under(tensors, f"optimizer/{k}/").items():
            number, moment = name.split("/")
            moments.setdefault(int(number), {})[moment] = value
        whole = optimizer.state_dict()
        whole["state"] = moments
        optimizer.load_state_dict(whole)
    return {name: value.numpy() for name, value in under(tensors, "state/").items()}


def under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with `prefix`, under their names without the prefix."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
