"""How many cores a process may use, and that its waiting threads sleep."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from threadpoolctl import ThreadpoolController

import pairsift
from pairsift import InputError
from pairsift.cores import let_threads_sleep, limit_threads, usable_cores

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OPENBLAS_THREAD_TIMEOUT", "OMP_NUM_THREADS")


@pytest.fixture
def many_cores(monkeypatch):
    """A process that the scheduler gives 64 cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.fixture
def threads():
    """Torch and the BLAS libraries keep their numbers of threads beyond the test."""
    before = torch.get_num_threads()
    libraries = [(one, one.num_threads) for one in ThreadpoolController().lib_controllers]
    yield
    for library, count in libraries:
        library.set_num_threads(count)
    torch.set_num_threads(before)


def describe(folder: Path, groups: str, *mounts: tuple[str, str, str]) -> Path:
    """Write what the kernel says of a process; each mount has a root, a folder and its kind with its options."""
    process = folder / "process"
    process.mkdir()
    (process / "cgroup").write_text(groups)
    lines = ["22 27 0:21 / /proc rw,relatime shared:13 - proc proc rw"]
    for number, (root, point, kind) in enumerate(mounts):
        name, options = kind.split(" ")
        lines.append(
            f"{30 + number} 23 0:29 {root} {folder / point} rw,nosuid shared:{number} - {name} {name} {options}"
        )
    (process / "mountinfo").write_text("\n".join(lines) + "\n")
    return process


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


QUOTAS = {"400000 100000": 4, "150000 100000": 2, "20000 100000": 1, "9900000 100000": 64, "max 100000": 64}
BROKEN = {"": 64, "0 100000": 64, "100000 0": 64, "many 100000": 64}


@pytest.mark.parametrize(("text", "cores"), (QUOTAS | BROKEN).items())
def test_quota_of_version_2_is_rounded_up(tmp_path, many_cores, text, cores):
    write(tmp_path / "fs/slice/unit", cpu__max=text)
    assert usable_cores(describe(tmp_path, "0::/slice/unit\n", ("/", "fs", "cgroup2 rw"))) == cores


def test_the_smallest_quota_of_the_groups_around_counts(tmp_path, many_cores):
    write(tmp_path / "fs/slice/unit", cpu__max="800000 100000")
    write(tmp_path / "fs/slice", cpu__max="300000 100000")
    write(tmp_path, cpu__max="100000 100000")  # lies above the mount: not a control group
    assert usable_cores(describe(tmp_path, "0::/slice/unit\n", ("/", "fs", "cgroup2 rw"))) == 3


@pytest.mark.parametrize(("quota", "cores"), [("250000", 3), ("-1", 64)])
def test_quota_of_version_1(tmp_path, many_cores, quota, cores):
    write(tmp_path / "cpu/unit", cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000")
    write(tmp_path / "memory/unit", cpu__cfs_quota_us="100000", cpu__cfs_period_us="100000")  # of another controller
    groups = "5:memory:/unit\n4:cpuacct,cpu:/unit\n1:name=systemd:/\n0::/\n"
    mounts = ("/", "cpu", "cgroup rw,cpuacct,cpu"), ("/", "memory", "cgroup rw,memory"), ("/", "unified", "cgroup2 rw")
    assert usable_cores(describe(tmp_path, groups, *mounts)) == cores


@pytest.mark.parametrize(
    ("path", "root"), [("/docker/abc", "/docker/abc"), ("/docker/abc", "/other"), ("/../../unit", "/"), ("/", "/")]
)
def test_a_container_sees_its_own_group_as_the_mount(tmp_path, many_cores, path, root):
    write(tmp_path / "fs", cpu__max="500000 100000")
    assert usable_cores(describe(tmp_path, f"0::{path}\n", (root, "fs", "cgroup2 rw"))) == 5


def test_the_group_below_a_containers_mount(tmp_path, many_cores):
    write(tmp_path / "fs/child", cpu__max="600000 100000")
    assert usable_cores(describe(tmp_path, "0::/docker/abc/child\n", ("/docker/abc", "fs", "cgroup2 rw"))) == 6


@pytest.mark.parametrize(
    ("chosen", "cores"), [("3", 3), (" 5 , 2", 5), ("100", 64), ("0", 64), ("-1", 64), ("lots", 64), ("", 64)]
)
def test_omp_num_threads_bounds_the_cores(tmp_path, monkeypatch, many_cores, chosen, cores):
    monkeypatch.setenv("OMP_NUM_THREADS", chosen)
    assert usable_cores(tmp_path / "nothing") == cores


def test_without_affinity_the_machine_counts(tmp_path, monkeypatch, many_cores):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert usable_cores(tmp_path / "nothing") == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores(tmp_path / "nothing") == 1


@pytest.mark.parametrize("name", CHOICES[:3])
def test_what_the_user_chose_for_openmp_stays(name):
    environment = {name: "17"}
    let_threads_sleep(environment)
    assert environment == {name: "17", "OPENBLAS_THREAD_TIMEOUT": "4"}


def test_what_the_user_chose_for_openblas_stays():
    environment = {"OPENBLAS_THREAD_TIMEOUT": "26"}
    let_threads_sleep(environment)
    assert environment.pop("OPENBLAS_THREAD_TIMEOUT") == "26" and environment.keys() <= set(CHOICES[:2])


def child(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh process."""
    clean = {name: value for name, value in os.environ.items() if name not in CHOICES}
    paths = {"PYTHONPATH": str(Path(pairsift.__file__).parents[1])}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**clean, **paths, **variables})


def spins_of(code: str, **variables: str) -> set[str]:
    """Return how long threads spin before they sleep, as each OpenMP library (GNU or LLVM) says when it is loaded."""
    shown = child(code, OMP_DISPLAY_ENV="verbose", **variables).stderr
    return set(re.findall(r"(?:GOMP_SPINCOUNT|KMP_BLOCKTIME)\s*=\s*'?(\d+)", shown))


@pytest.mark.slow
def test_openmp_is_told_before_it_is_loaded():
    assert spins_of("import pairsift.runs.fit") in ({"1000"}, {"0"})  # what GNU and what LLVM say
    assert spins_of("import pairsift, torch", GOMP_SPINCOUNT="17", KMP_BLOCKTIME="17") == {"17"}


@pytest.mark.slow
def test_torch_imported_before_goes_on_without_a_word():
    done = child("import torch, pairsift, pairsift.runs.fit; print(torch.ones(3).sum())")
    assert done.stdout == "tensor(3.)\n" and done.stderr == ""


@pytest.mark.slow
def test_threads_follow_cores_taken_away_after_the_import():
    code = """
import os, torch, numpy
torch.set_num_threads(3)
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
else:
    os.cpu_count = lambda: 1
from pairsift.cores import limit_threads
limit_threads()
from threadpoolctl import threadpool_info
print(torch.get_num_threads(), all(one["num_threads"] == 1 for one in threadpool_info() if one["user_api"] == "blas"))
"""
    assert child(code).stdout == "1 True\n"


def test_torch_takes_the_usable_cores_at_most(monkeypatch, threads):
    monkeypatch.setattr("pairsift.cores.usable_cores", lambda: 2)
    torch.set_num_threads(5)
    limit_threads()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    limit_threads()
    assert torch.get_num_threads() == 1  # what was chosen before is not raised
    limit_threads(5)
    assert torch.get_num_threads() == 5  # what is asked for counts


def test_a_fit_has_its_threads_before_it_encodes(tmp_path, monkeypatch, threads):
    monkeypatch.setattr("pairsift.cores.usable_cores", lambda: 2)
    seen = []

    def prepare(*given, **named):
        seen.append(torch.get_num_threads())
        raise InputError("enough")

    monkeypatch.setattr("pairsift.runs.fit.prepare", prepare)
    for wanted in (0, 3):
        torch.set_num_threads(5)
        with pytest.raises(InputError, match="enough"):
            pairsift.fit(tmp_path, out=tmp_path / "run", train=pairsift.TrainOptions(threads=wanted))
    assert seen == [2, 3]
