"""What a run records while it trains: the method's values for every pair, and the log for TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa

from pairsift.arrays import Array, Bools, Floats, Ints
from pairsift.errors import InputError
from pairsift.files import write_parquet

Board = Callable[[Mapping[str, object], int], None]
BINS = 20  # of a histogram


def epoch_summary(values: Mapping[str, Array], matched: Bools | None) -> dict[str, dict[str, object]]:
    """Return the mean and a histogram of every array, over networks and pairs.

    Args:
        values: By name, an array with a number per network and training pair, (networks, n); arrays of integers, such
            as ids, are left out.
        matched: Whether each training pair truly matches, (n,); None where the truth is unknown.

    Returns:
        By name: `edges` of the 20 bins, then for `all`, and with the truth also for `matching` and `mismatched`, the
        `mean` (None without pairs) and the `counts` of the bins. Values that are not finite are left out.
    """
    values = {name: array for name, array in values.items() if np.issubdtype(array.dtype, np.floating)}
    groups = {"all": np.ones(len(next(iter(values.values()))[0]), np.bool_)} if values else {}
    if matched is not None and groups:
        groups |= {"matching": matched, "mismatched": ~matched}
    return {name: _summary(np.asarray(array, np.float64), groups) for name, array in values.items()}


def _summary(values: Array, groups: Mapping[str, Bools]) -> dict[str, object]:
    finite = np.isfinite(values)
    low, high = (float(values[finite].min()), float(values[finite].max())) if finite.any() else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    summary: dict[str, object] = {"edges": [round(edge, 6) for edge in edges.tolist()]}
    for group, members in groups.items():
        group_values = values[:, members][finite[:, members]]
        counts = np.histogram(group_values, edges)[0].tolist()
        summary[group] = {"mean": float(group_values.mean()) if len(group_values) else None, "counts": counts}
    return summary


def write_state(path: Path, ids: Ints, values: Mapping[str, Array], matched: Bools | None) -> None:
    """Write the last value of every array for every training pair as Parquet.

    The columns are `pair`, `truly_matching` where the truth is known, and `<name>_<network>`.

    Args:
        path: The Parquet file, which is replaced atomically.
        ids: The training pairs, (n,).
        values: By name, an array with a number per network and training pair, (networks, n).
        matched: Whether each training pair truly matches, (n,); None where the truth is unknown.

    Raises:
        WriteError: The file cannot be written.
    """
    columns: dict[str, Ints | Bools | Floats] = {"pair": ids}
    if matched is not None:
        columns["truly_matching"] = matched
    for name, array in values.items():
        columns |= {f"{name}_{k}": row for k, row in enumerate(array)}
    write_parquet(path, pa.table(columns))


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
