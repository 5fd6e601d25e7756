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
from collections.abc import Iterator, MutableMapping
from math import ceil
from pathlib import Path, PurePosixPath

# GNU's OpenMP, which torch brings on Linux, sleeps after 1000 turns, about 30 microseconds; LLVM's and Intel's at once.
OPENMP_WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}
OPENMP_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
BLAS_WAITING = {"OPENBLAS_THREAD_TIMEOUT": "4"}  # the shortest wait: 2**4 ticks of the processor's clock
BLAS_CHOICES = ("OPENBLAS_THREAD_TIMEOUT",)
V1_QUOTA, V1_PERIOD, V2_MAX = "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.max"


def let_threads_sleep(environment: MutableMapping[str, str] = os.environ) -> None:
    """Ask OpenMP and OpenBLAS to let waiting threads sleep soon, unless the user chose otherwise.

    It holds for libraries that are loaded later, and for child processes. Libraries that are loaded already go on as
    they do.

    Args:
        environment: The variables of the process.
    """
    for choices, waiting in ((OPENMP_CHOICES, OPENMP_WAITING), (BLAS_CHOICES, BLAS_WAITING)):
        if not any(name in environment for name in choices):
            environment.update(waiting)


def usable_cores(process: Path = Path("/proc/self")) -> int:
    """Return the number of cores that this process may use, at least 1.

    It is the smallest of three: the cores that the scheduler gives it, the CPU quota of its control groups, rounded up,
    and `OMP_NUM_THREADS`.

    Args:
        process: The folder where the kernel describes the process.
    """
    get_affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    counts = [len(get_affinity(0)) if get_affinity else os.cpu_count() or 1]
    counts += [ceil(cores) for cores in _quotas(process)]
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # a list has one number for each nested level
    counts += [int(limit)] if limit.isdecimal() and int(limit) else []
    return max(1, min(counts))


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


def peak_memory() -> float:
    """Return the largest resident memory of this process so far, in GB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def _quotas(process: Path) -> Iterator[float]:
    """Yield the CPU quotas of the process's control groups and of the groups around them, in cores."""
    try:
        groups = [line.split(":", 2) for line in (process / "cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    except OSError:
        return
    paths = {name: path for _, names, path in groups for name in names.split(",")}  # version 2 has the empty name
    for mount in mounts:
        root, point, kind, options = mount[3], mount[4], mount[mount.index("-") + 1], mount[-1]
        name = {"cgroup2": "", "cgroup": "cpu"}.get(kind)
        if name in paths and (not name or name in options.split(",")):
            folder = Path(point, _path_below(paths[name], root))
            for group in (folder, *folder.parents):
                if group.is_relative_to(point) and (cores := _quota(group)):
                    yield cores


def _path_below(path: str, root: str) -> str:
    """Return the part of a group's path below a mount's root; empty where the mount does not show the group."""
    visible = PurePosixPath(path).is_relative_to(root) and ".." not in path
    return str(PurePosixPath(path).relative_to(root)) if visible else ""


def _quota(group: Path) -> float | None:
    """Return a control group's CPU quota in cores; None where it has none."""
    try:
        if (group / V2_MAX).exists():
            quota, period = (group / V2_MAX).read_text().split()
        else:
            quota, period = (group / V1_QUOTA).read_text(), (group / V1_PERIOD).read_text()
        return int(quota) / int(period) if int(quota) > 0 and int(period) > 0 else None
    except (OSError, ValueError):  # no limit is "max" in version 2 and -1 in version 1
        return None
