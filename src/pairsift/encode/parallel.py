"""Work spread over threads, in order and with bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def ordered(work: Callable[[_In], _Out], tasks: Iterable[_In], ahead: int = 2) -> Iterator[_Out]:
    """Yield `work(task)` for each task in order, worked on by as many threads as torch uses.

    Each thread computes on one core. That is faster than to share every operation among all cores, and far faster where
    other programs need the cores too: no core ever waits for another in the middle of an operation.

    Args:
        work: Called in several threads at once.
        tasks: Taken one by one, at most `ahead` more than there are threads before a result is asked for.
        ahead: See `tasks`.
    """
    count = torch.get_num_threads()
    waiting: deque[Future[_Out]] = deque()
    with _pool(count) as pool:
        for task in tasks:
            waiting.append(pool.submit(work, task))
            if len(waiting) >= count + ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def prefetched(make: Callable[[_In], _Out], tasks: Iterable[_In], depth: int = 2) -> Iterator[_Out]:
    """Yield `make(task)` for each task in order; a thread makes up to `depth` of them ahead of the one in use."""
    waiting: deque[Future[_Out]] = deque()
    with ThreadPoolExecutor(1, "prefetch") as thread:
        for task in tasks:
            waiting.append(thread.submit(make, task))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def _pool(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads in which torch uses one core each.

    `torch.set_num_threads` holds for the thread that calls it and for threads that start later. So every thread of the
    pool is started and set here, and then this thread sets again what held before.
    """
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, "encode")
    together = threading.Barrier(count)

    def settle() -> None:
        torch.get_num_threads()  # a thread takes over the common number on its first use of torch: let that pass
        torch.set_num_threads(1)
        together.wait(60)  # keeps each thread busy until all have started

    try:
        try:
            for started in [pool.submit(settle) for _ in range(count)]:
                started.result()
        finally:
            torch.set_num_threads(before)
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
