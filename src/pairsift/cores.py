"""The cores that this process may use, and threads that sleep while they wait for each other.

Where several programs share the cores, a thread that spins while it waits takes the core from the very thread that it
waits for. But a thread that sleeps at once has to be woken, which costs operations of less than a millisecond a quarter
to a half more time. So threads spin for about as long as waking takes, and then sleep. The libraries read how to wait
when they are loaded, so this module imports none of them.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Mapping, MutableMapping
from functools import cache

# GNU's OpenMP, which torch brings on Linux, sleeps after 1000 turns, about 30 microseconds; LLVM's and Intel's at once.
OPENMP_WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}
OPENMP_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
LONGEST_TRIAL = 0.3  # seconds
WORTHWHILE = 1.5  # times as fast as float32: bfloat16 is 5 to 10 times as fast with AMX, and slower without
BLAS_WAITING = ("OPENBLAS_THREAD_TIMEOUT", "4")  # the shortest wait: 2**4 ticks of the processor's clock


def let_threads_sleep(environment: MutableMapping[str, str] = os.environ) -> None:
    """Ask OpenMP and OpenBLAS to let waiting threads sleep soon, unless the user chose otherwise.

    It holds for libraries that are loaded later, and for child processes. Libraries that are loaded already go on as
    they do.

    Args:
        environment: The variables of the process.
    """
    if not any(name in environment for name in OPENMP_CHOICES):
        environment.update(OPENMP_WAITING)
    environment.setdefault(*BLAS_WAITING)


def rank_and_count(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return the number of this process, from 0, and how many there are, as torchrun says; (0, 1) without torchrun.

    Args:
        environment: The variables of the process.
    """
    count = int(environment.get("WORLD_SIZE") or 1)
    return (int(environment.get("RANK") or 0), count) if count > 1 else (0, 1)


def say_less(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let torch not warn of broken connections between processes, which end by a line of ours, unless asked otherwise.

    Args:
        environment: The variables of the process.
    """
    if rank_and_count(environment)[1] > 1:
        environment.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def usable_cores() -> int:
    """Return the number of cores that this process may use, at least 1.

    It is the smallest of three: the cores that the scheduler gives it, the CPU quota of its container, rounded up, and
    `OMP_NUM_THREADS`.
    """
    from joblib import cpu_count

    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # a list has one number for each nested level
    cores = int(cpu_count())
    return min(cores, int(limit)) if limit.isdecimal() and int(limit) else cores


def limit_threads(threads: int = 0) -> None:
    """Set the number of threads of torch and of the loaded BLAS libraries.

    Args:
        threads: The number for torch; 0 for the usable cores, or fewer where torch has fewer already.
    """
    import torch
    from threadpoolctl import ThreadpoolController

    cores = usable_cores()
    for library in ThreadpoolController().select(user_api="blas").lib_controllers:
        if (library.num_threads or 1) > cores:
            library.set_num_threads(cores)
    number = threads or min(cores, torch.get_num_threads())
    if number != torch.get_num_threads():
        torch.set_num_threads(number)


@cache
def bfloat16_pays() -> bool:
    """Return whether matrix products in bfloat16 are at least 1.5 times as fast as in float32 on this CPU.

    The first call measures both for at most half a second, with the threads that torch has then. The answer holds for
    the process.
    """
    import torch

    pair = [torch.ones(512, 512, dtype=precision) for precision in (torch.float32, torch.bfloat16)]
    fastest = [float("inf")] * 2
    begun = time.perf_counter()
    with torch.inference_mode():
        for _ in range(10):
            for kind, matrix in enumerate(pair):
                before = time.perf_counter()
                matrix @ matrix
                fastest[kind] = min(fastest[kind], time.perf_counter() - before)
            if time.perf_counter() - begun > LONGEST_TRIAL:
                break
    return fastest[0] >= WORTHWHILE * fastest[1]


def peak_memory() -> float:
    """Return the largest resident memory of this process so far, in GB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
