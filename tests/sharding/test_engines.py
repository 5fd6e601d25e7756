"""Shards that one process works on."""

import threading
import time

import pytest
import torch

from pairsift.errors import InputError
from pairsift.sharding import engines
from pairsift.sharding.engines import write_parts


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_two_cores_work_on_two_shards_at_once(two_threads):
    meeting, seen = threading.Barrier(2, timeout=20), []

    def work(number):
        meeting.wait()  # broken where a shard waits for the end of the one before
        seen.append((number, torch.get_num_threads()))

    write_parts(work, range(6), None, "judging", False, at_once=True)
    assert sorted(seen) == [(number, 1) for number in range(6)]
    assert torch.get_num_threads() == 2


def test_there_is_a_limit_to_shards_in_memory(two_threads, monkeypatch):
    monkeypatch.setattr(engines, "AT_ONCE", 1)
    busy, most = set(), []

    def work(number):
        busy.add(number)
        time.sleep(0.02)
        most.append(len(busy))
        busy.remove(number)

    write_parts(work, range(6), None, "judging", False, at_once=True)
    assert most == [1] * 6 and torch.get_num_threads() == 2


def test_a_cluster_that_does_not_answer_is_one_line():
    pytest.importorskip("ray", reason="ray is not installed")
    with pytest.raises(InputError, match=r"--ray 127\.0\.0\.1:9: nothing answers there \(Connection refused\)"):
        engines.engine_of("127.0.0.1:9")


@pytest.mark.parametrize("at_once", [False, True])
def test_a_shard_that_cannot_be_written_ends_the_work(two_threads, at_once):
    written = []

    def work(number):
        if number == 3:
            raise InputError("the disk is full")
        written.append(number)

    with pytest.raises(InputError, match="the disk is full"):
        write_parts(work, range(40), None, "judging", False, at_once)
    assert {0, 1, 2} <= set(written) and len(written) < 20
