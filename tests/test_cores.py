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
from pairsift.cores import bfloat16_pays, let_threads_sleep, limit_threads, usable_cores

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OPENBLAS_THREAD_TIMEOUT", "OMP_NUM_THREADS")
COUNT = "from pairsift.cores import usable_cores; print(usable_cores())"


@pytest.fixture
def many_cores(monkeypatch):
    """A process that may use 64 cores."""
    monkeypatch.setattr("joblib.cpu_count", lambda: 64)


@pytest.fixture
def threads():
    """Torch and the BLAS libraries keep their numbers of threads beyond the test."""
    before = torch.get_num_threads()
    libraries = [(one, one.num_threads) for one in ThreadpoolController().lib_controllers]
    yield
    for library, count in libraries:
        library.set_num_threads(count)
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("chosen", "cores"), [("3", 3), (" 5 , 2", 5), ("100", 64), ("0", 64), ("-1", 64), ("lots", 64), ("", 64)]
)
def test_omp_num_threads_bounds_the_cores(monkeypatch, many_cores, chosen, cores):
    monkeypatch.setenv("OMP_NUM_THREADS", chosen)
    assert usable_cores() == cores


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_affinity_bounds_the_cores():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); " + COUNT
    assert child(code).stdout == "1\n"


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


@pytest.mark.parametrize(("bfloat16", "pays"), [(0.2, True), (0.9, False), (3.0, False)])
def test_bfloat16_pays_where_its_products_take_less_time(monkeypatch, bfloat16, pays):
    clock, product = [0.0], torch.Tensor.__matmul__

    def timed(left, right):
        clock[0] += 0.01 * (bfloat16 if left.dtype == torch.bfloat16 else 1)
        return product(left[:2, :2], right[:2, :2])

    monkeypatch.setattr(torch.Tensor, "__matmul__", timed)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    bfloat16_pays.cache_clear()
    try:
        assert bfloat16_pays() is pays
        used = clock[0]
        assert bfloat16_pays() is pays and clock[0] == used < 0.5
    finally:
        bfloat16_pays.cache_clear()
