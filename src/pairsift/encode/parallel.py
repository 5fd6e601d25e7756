"""Work in several threads, in order and with bounded memory."""

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
    """Yield `work(task)` for each task in order, computed by as many threads as torch uses.

    Each thread computes on one core. This is faster than sharing every operation among all cores. It is far faster if
    other programs need the cores too, because no core waits for another in the middle of an operation.

    Args:
        work: Function that is called in several threads at the same time.
        tasks: Tasks, taken one by one. Before a result is requested, at most `ahead` more tasks are taken than there
            are threads.
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
    """Yield `make(task)` for each task in order.

    A thread computes up to `depth` results ahead of the result in use.
    """
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
    """Provide a pool of threads that use one core each, also in torch.

    `torch.set_num_threads` applies to the thread that calls it and to threads that start later. Therefore every thread
    of the pool is started and set here. After that, this thread restores the previous number.
    """
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, "encode")
    together = threading.Barrier(count)

    def settle() -> None:
        torch.get_num_threads()  # the first use of torch in a thread applies the common number, so it comes first
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
