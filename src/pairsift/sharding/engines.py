"""What works on shards: this process, or the workers of a Ray cluster."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from threadpoolctl import threadpool_limits

from pairsift.encode.parallel import map_in_threads
from pairsift.errors import InputError
from pairsift.progress import progress

Work = Callable[[int], None]  # writes the part of a shard
Engine = Callable[[Work, Sequence[int]], None]  # writes the parts of these shards
PATIENCE = 10.0  # seconds in which a cluster answers
AT_ONCE = 8  # shards; each takes nearly a gigabyte of memory


def write_parts(
    work: Work, numbers: Sequence[int], engine: Engine | None, title: str, shown: bool, at_once: bool = False
) -> None:
    """Write the parts of these shards by an engine, or in this process.

    Args:
        work: What writes a part.
        numbers: Numbers of the shards.
        engine: The engine; None for this process.
        title: What is done, for the progress bar.
        shown: Whether this process shows its progress.
        at_once: Whether this process works on a shard with each core, at most eight, or on one after the other.
    """
    if engine is not None:
        engine(work, numbers)
        return
    with progress(len(numbers), title, "shards", shown) as count:
        for _ in _in_threads(work, numbers) if at_once else map(work, numbers):
            count(1)


def _in_threads(work: Work, numbers: Sequence[int]) -> Iterator[None]:
    """Work on shards in threads, with one core for each."""
    with threadpool_limits(1, "blas"):
        yield from map_in_threads(work, numbers, AT_ONCE)


def engine_of(ray: str | None) -> Engine | None:
    """Return the engine of a Ray cluster at an address, or of one of this machine; None where none is named.

    Raises:
        InputError: Ray is not installed, or nothing answers at the address.
    """
    if ray is None:
        return None
    if find_spec("ray") is None:
        raise InputError("--ray needs ray: run `pip install 'pairsift[ray]'`")
    _require_answer(ray)
    return partial(run_on_ray, address=ray)


def run_on_ray(work: Work, numbers: Sequence[int], address: str) -> None:
    """Write the parts of these shards by a Ray Data pipeline, with a worker for each core of the cluster.

    A worker that is lost costs its shard, which another one writes. All workers must see the same folders.

    Args:
        work: What writes a part; it is sent to the workers.
        numbers: Numbers of the shards.
        address: Address of a cluster, or `local`.

    Raises:
        InputError: There is no cluster at the address, or a part cannot be written.
    """
    if not numbers:
        return
    import ray.data

    try:
        ray.init(address, ignore_reinit_error=True, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"--ray {address}: {' '.join(str(error).split())}") from None
    cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    rows = ray.data.from_items([{"shard": number} for number in numbers], override_num_blocks=len(numbers))
    pool = ray.data.ActorPoolStrategy(min_size=1, max_size=min(cores, len(numbers)))
    done = rows.map(_Worker, fn_constructor_args=(work,), compute=pool)
    try:
        done.materialize()
    except ray.exceptions.RayError as error:
        raise InputError(f"--ray {address}: {_reason(error)}") from None


def _require_answer(address: str) -> None:
    """Raise an error where nothing answers at a host and a port: Ray itself goes on trying for minutes.

    Raises:
        InputError: Nothing answers.
    """
    if place := re.fullmatch(r"([^/:]+):(\d+)", address):
        try:
            socket.create_connection((place[1], int(place[2])), PATIENCE).close()
        except OSError as error:
            raise InputError(f"--ray {address}: nothing answers there ({error.strerror or error})") from error


def _reason(error: BaseException) -> str:
    """Return the line of the error that a chain of errors began with."""
    while (cause := error.__cause__ or getattr(error, "cause", None)) is not None:
        error = cause
    return " ".join(str(error).split())


class _Worker:
    """A worker that keeps what it needs from shard to shard."""

    def __init__(self, work: Work) -> None:
        from pairsift.cores import limit_threads

        limit_threads(1)
        self._work = work

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        self._work(int(row["shard"]))
        return row
