"""Several processes train as one does: the same losses, gradients and state, and the loss of a process ends all."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import shared_jobs
import torch
from train_helpers import dying

from pairsift.encode import features as features_module
from pairsift.errors import InputError
from pairsift.processes import ALONE, Processes, joined
from pairsift.train.batches import cut

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # slow cores

CHILD = Path(shared_jobs.__file__)
LOST = re.compile(
    r"pairsift: the process with rank 1 \(of 2\) was lost: no sign of life for \d seconds; "
    r"repeat the command with --resume to continue the run\n"
)


@pytest.fixture
def double(monkeypatch):
    """Features are float64 in this process too, and sampled noise is 0."""
    monkeypatch.setattr(features_module, "_standard", features_module._standard)
    monkeypatch.setattr(torch, "randn", torch.randn)
    shared_jobs.in_double()


class Job:
    """Several processes of the child, as torchrun would start them."""

    def __init__(self, count: int, folder: Path, event: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        path = os.pathsep.join([str(CHILD.parent), str(CHILD.parent.parent), *sys.path])
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "PYTHONPATH": path}
        self.processes = [
            subprocess.Popen(
                [sys.executable, CHILD, folder, event],
                env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(count)
        ]

    def wait(self, *ranks: int) -> list[tuple[int, str]]:
        """Return exit codes and error streams of these processes, or of all, and end the others."""
        try:
            return [
                (process.wait(200), process.stderr.read())
                for rank, process in enumerate(self.processes)
                if rank in (ranks or range(len(self.processes)))
            ]
        finally:
            for process in self.processes:
                process.kill()
                process.wait()
                process.stderr.close()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process records of every case."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features_module, "_standard", features_module._standard)
        patch.setattr(torch, "randn", torch.randn)
        shared_jobs.in_double()
        yield {name: shared_jobs.train(name, folder / name) for name in shared_jobs.cases()}


def assert_same(found, expected, where: str = "") -> None:
    """Compare tensors by name, to a millionth of their size or of 1."""
    assert found.keys() == expected.keys(), where
    for name, value in expected.items():
        place = f"{where} {name}: "
        torch.testing.assert_close(found[name], value, rtol=1e-6, atol=1e-6, equal_nan=True, msg=place.__add__)


@pytest.mark.parametrize("count", [2, 4])
def test_several_processes_have_the_losses_gradients_and_state_of_one(count, alone, tmp_path):
    for code, err in Job(count, tmp_path, "cases").wait():
        assert code == 0, err
    for name in shared_jobs.cases(count == 2):
        expected = alone[name]
        for rank in range(count):
            found = torch.load(tmp_path / f"{name}.{rank}.pt")
            assert found["log"] == expected["log"], name
            assert len(found["steps"]) == len(expected["steps"]), name
            for step, (now, then) in enumerate(zip(found["steps"], expected["steps"], strict=True)):
                assert_same(now, then, f"{name}, step {step}")
            assert_same(found["state"], expected["state"], name)
            assert_same(found["weights"], expected["weights"], name)


def test_the_cases_reach_every_method_and_have_steps(alone):
    assert set(shared_jobs.METHODS) <= set(alone)
    assert all(len(found["steps"]) >= 2 for name, found in alone.items() if name != "linear")
    batches = cut(np.arange(39), shared_jobs.BATCH)
    assert any(len(batch) % 2 for batch in batches)
    moved = alone["plain"]["steps"]
    assert not torch.equal(moved[0]["grad matcher.log_scale"], moved[1]["grad matcher.log_scale"])


def test_a_killed_process_ends_all_with_one_line_and_one_process_goes_on(double, tmp_path):
    began = time.monotonic()
    (first, err), (last, _) = Job(2, tmp_path / "two", "KILL").wait()
    assert time.monotonic() - began < 60 and last == -signal.SIGKILL
    assert first == 2 and LOST.fullmatch(err), err
    assert_same(shared_jobs.resumed(tmp_path / "two"), shared_jobs.resumed(tmp_path / "straight"))


def test_a_stopped_process_ends_all_with_one_line(tmp_path):
    ((code, err),) = Job(2, tmp_path, "STOP").wait(0)
    assert code == 2 and LOST.fullmatch(err), err


def test_an_error_in_one_process_ends_all_with_its_line_alone(tmp_path):
    (first, others), (last, err) = Job(2, tmp_path, "fail").wait()
    assert (first, others, last, err) == (2, "", 2, "pairsift: image 3 is gone\n")


def test_two_processes_go_on_where_one_ended(double, tmp_path):
    class DeathError(BaseException):
        pass

    def die() -> None:
        raise DeathError

    with pytest.raises(DeathError):
        dying(shared_jobs.DEATH, die)(shared_jobs.cases()[shared_jobs.RESUMED](tmp_path / "one", ALONE)).run()
    for code, err in Job(2, tmp_path / "one", "resume").wait():
        assert code == 0, err
    straight = shared_jobs.resumed(tmp_path / "straight")
    for rank in range(2):
        assert_same(torch.load(tmp_path / "one" / f"end.{rank}.pt"), straight)


@pytest.mark.parametrize("total", [1, 2, 3, 4, 5, 21, 64])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_shares_are_all_items_once_and_nearly_equal(total, count):
    shares = [np.arange(total)[Processes(rank, count).share(total)] for rank in range(count)]
    np.testing.assert_array_equal(np.concatenate(shares), np.arange(total))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert not Processes(0, count).divides(total) or (count > 1 and min(sizes) >= 2)


def test_without_torchrun_a_process_is_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined("cpu") as processes:
        assert processes is ALONE and processes.first


def test_one_gpu_for_all_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="give cuda in the place of cuda:1"), joined("cuda:1"):
        pass
