"""What works on shards: this process, or the workers of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from pairsift.errors import InputError

Work = Callable[[int], None]  # writes the part of a shard
Engine = Callable[[Work, Sequence[int]], None]  # writes the parts of these shards
LOCAL = "local"  # a Ray cluster of this machine alone


def run_here(work: Work, numbers: Sequence[int]) -> None:
    """Write the parts of these shards in this process, one after the other."""
    for number in numbers:
        work(number)


def engine_of(ray: str | None) -> Engine | None:
    """Return the engine of a Ray cluster at an address, or of one of this machine; None where none is named.

    Raises:
        InputError: Ray is not installed.
    """
    if ray is None:
        return None
    if find_spec("ray") is None:
        raise InputError("--ray needs ray: run `pip install 'pairsift[ray]'`")
    return partial(run_on_ray, address=ray)


def run_on_ray(work: Work, numbers: Sequence[int], address: str) -> None:
    """Write the parts of these shards by a Ray Data pipeline, with a worker for each core of the cluster.

    A worker that is lost costs its shard, which another one writes. All workers must see the same folders.

    Args:
        work: What writes a part; it is sent to the workers.
        numbers: Numbers of the shards.
        address: Address of a cluster, or `local`.

    Raises:
        InputError: There is no cluster at the address.
    """
    import ray.data

    if not numbers:
        return
    try:
        ray.init(
            None if address == LOCAL else address, ignore_reinit_error=True, log_to_driver=False, logging_level="error"
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"--ray {address}: {' '.join(str(error).split())}") from None
    cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    rows = ray.data.from_items([{"shard": number} for number in numbers], override_num_blocks=len(numbers))
    done = rows.map(_Worker, fn_constructor_args=(work,), concurrency=(1, min(cores, len(numbers))), max_restarts=-1)
    done.materialize()


class _Worker:
    """A worker that keeps what it needs from shard to shard."""

    def __init__(self, work: Work) -> None:
        from pairsift.cores import limit_threads

        limit_threads(1)
        self._work = work

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        self._work(int(row["shard"]))
        return row
