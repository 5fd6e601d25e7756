"""One process writes a run: others are refused in a line, and nothing of a dead one is in the way."""

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

import pairsift
from pairsift.cli import main
from pairsift.errors import InputError
from pairsift.files import only_writer
from pairsift.review import Decision

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # whole fits, on slow cores
LEASE = 2.0  # seconds, in the tests of other machines
HOLDING = """
import socket, sys, time
from pathlib import Path
from pairsift import files
host, lease = sys.argv[2:]
if host:
    socket.gethostname = lambda: host
files.LEASE = float(lease)
with files.only_writer(Path(sys.argv[1])) as require_held:
    print("held", flush=True)
    for _ in sys.stdin:
        try:
            require_held()
            print("still", flush=True)
        except ValueError as error:
            print(error, flush=True)
"""


@pytest.fixture
def holder():
    """A function that starts a process which holds a folder, perhaps as if on another machine."""
    started = []

    def hold(folder, host="", lease=30.0):
        words = [sys.executable, "-c", HOLDING, str(folder), host, str(lease)]
        child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(child)
        assert child.stdout.readline() == "held\n"
        return child

    yield hold
    for child in started:
        child.kill()
        child.communicate()


@pytest.fixture
def own(run, tmp_path):
    shutil.copytree(run.folder, tmp_path / "run")
    return tmp_path / "run"


def test_writers_are_refused_and_readers_do_not_wait(own, scenes, tmp_path, holder, capsys):
    pair = pairsift.open_run(own, progress=False).pairs()["pair"].to_pylist()[0]
    config = tmp_path / "options.yaml"
    shutil.copy(own / "config.yaml", config)
    child = holder(own)
    writers = [
        ["fit", f"--config={config}", f"--out={own}", "--overwrite", "--quiet"],
        ["audit", str(own), "--quiet"],
    ]
    for words in writers:
        assert main(words) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and f"process {child.pid} on " in err, err
        assert f"is writing {own}: wait until it is done" in err
    opened = pairsift.open_run(own, progress=False)
    with pytest.raises(InputError, match=f"process {child.pid} on"):
        opened.recalibrate()
    (own / "model" / "captions.safetensors").unlink()  # so that a search encodes the captions, and cannot keep them
    assert main(["search", str(own), "a red ball"]) == 0 and main(["evaluate", str(own)]) == 0
    assert len(opened.captions_for(next((scenes / "images").iterdir()), 3)) == 3
    assert main(["export", str(own), "--out", str(tmp_path / "clean.csv")]) == 0
    opened.decisions().decide([Decision(pair, "keep")])
    assert child.poll() is None  # the lock was held throughout
    assert not (own / "model" / "captions.safetensors").exists()
    capsys.readouterr()
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert main(["audit", str(own), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_dead_process_gives_its_lock_back_at_once_also_where_the_system_has_no_locks(
    tmp_path, holder, monkeypatch, capsys
):
    def refuse(*args):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    for name in ("flock", "lockf"):
        monkeypatch.setattr(fcntl, name, refuse)  # as on a network drive
    child = holder(tmp_path)
    with pytest.raises(InputError, match=f"process {child.pid} on"), only_writer(tmp_path):
        pass
    child.send_signal(signal.SIGKILL)
    child.wait()
    with only_writer(tmp_path):
        assert "waiting" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_another_machine_is_waited_for_only_as_long_as_it_may_be_dead(tmp_path, holder, monkeypatch, capsys):
    monkeypatch.setattr("pairsift.files.LEASE", LEASE)
    child = holder(tmp_path, "elsewhere", LEASE)
    with pytest.raises(InputError, match=f"process {child.pid} on elsewhere is writing"), only_writer(tmp_path):
        pass
    assert "waiting up to 2 seconds to see if it is still there" in capsys.readouterr().err
    child.send_signal(signal.SIGKILL)
    child.wait()
    with only_writer(tmp_path):
        pass


def test_a_search_does_not_wait_for_another_machine(own, scenes, holder, monkeypatch, capsys):
    monkeypatch.setattr("pairsift.files.LEASE", 60.0)
    holder(own, "elsewhere", 60.0)
    (own / "model" / "captions.safetensors").unlink()
    opened = pairsift.open_run(own, progress=False)
    assert len(opened.captions_for(next((scenes / "images").iterdir()), 3)) == 3
    assert "waiting" not in capsys.readouterr().err


def test_a_process_that_stood_still_writes_no_more(tmp_path, holder, monkeypatch):
    monkeypatch.setattr("pairsift.files.LEASE", LEASE)
    child = holder(tmp_path, "elsewhere", LEASE)
    child.send_signal(signal.SIGSTOP)
    with only_writer(tmp_path) as require_held:
        child.send_signal(signal.SIGCONT)
        time.sleep(LEASE)  # until its next sign of life
        child.stdin.write("?\n")
        child.stdin.flush()
        assert f"process {os.getpid()} on " in (line := child.stdout.readline()) and "has taken over" in line
        require_held()
