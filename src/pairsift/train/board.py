"""The log for TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from pairsift.errors import InputError

Board = Callable[[Mapping[str, object], int], None]


def require_board() -> None:
    """Raise an error if TensorBoard is not installed.

    Raises:
        InputError: TensorBoard is not installed.
    """
    if find_spec("tensorboard") is None:
        raise InputError("--tensorboard needs TensorBoard: pip install 'pairsift[log]'")


def make_board(folder: Path) -> Board:
    """Return a function that writes the numbers of a log line as scalars of an epoch, under `tensorboard/`."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"))

    def write(line: Mapping[str, object], epoch: int) -> None:
        for name, value in numbers(line).items():
            writer.add_scalar(name, value, epoch)
        writer.flush()

    return write


def numbers(line: Mapping[str, object], prefix: str = "") -> dict[str, float]:
    """Return the numbers of a nested mapping by their path, such as `dev/rsum`."""
    flat: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, Mapping):
            flat |= numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            flat[prefix + name] = float(value)
    return flat
