"""Work in several threads, in order and with bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def map_in_threads(work: Callable[[_In], _Out], tasks: Iterable[_In], most: int | None = None) -> Iterator[_Out]:
    """Yield `work(task)` for each task in order, computed by as many threads as torch uses.

    Each thread computes on one core. This is faster than sharing every operation among all cores. It is far faster if
    other programs need the cores too, because no core waits for another in the middle of an operation.

    Args:
        work: Function that is called in several threads at the same time.
        tasks: Tasks, taken one by one. Before a result is requested, at most two more tasks are taken than there are
            threads.
        most: Most threads; None for no limit.
    """
    cores = torch.get_num_threads()
    count = cores if most is None else min(cores, most)
    pool = ThreadPoolExecutor(count, "encode", _take_one_core)
    try:
        yield from _results(pool, work, tasks, count + 1)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(cores)  # for threads that start later; the one of this thread has not changed


def map_ahead(make: Callable[[_In], _Out], tasks: Iterable[_In], depth: int = 2) -> Iterator[_Out]:
    """Yield `make(task)` for each task in order.

    A thread computes up to `depth` results ahead of the result in use.
    """
    with ThreadPoolExecutor(1, "prefetch") as thread:
        yield from _results(thread, make, tasks, depth)


def _results(pool: ThreadPoolExecutor, work: Callable[[_In], _Out], tasks: Iterable[_In], most: int) -> Iterator[_Out]:
    """Yield the results in the order of the tasks, with at most `most` tasks waiting while a result is in use."""
    waiting: deque[Future[_Out]] = deque()
    for task in tasks:
        waiting.append(pool.submit(work, task))
        if len(waiting) > most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _take_one_core() -> None:
    torch.get_num_threads()  # the first use of torch in a thread applies the common number, so it comes first
    torch.set_num_threads(1)
