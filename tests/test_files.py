"""Files that a reader sees whole, whatever becomes of their writer."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from pairsift import files
from pairsift.errors import InputError, WriteError
from pairsift.files import MASK, in_turn, only_writer, read_parquet, replacing, write_json, write_parquet, write_text
from pairsift.run_folder import METRICS, PAIRS_FILE, read_metrics
from pairsift.table import read_pairs

KILLED = """
import os, signal, sys
from pathlib import Path
from pairsift.files import replacing
with replacing(Path(sys.argv[1]), locked=sys.argv[2] == "locked") as part:
    part.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a file.txt"
    path.write_text("old")
    return path


def names(path):
    return sorted(file.name for file in path.parent.iterdir())


@pytest.mark.parametrize("locked", [False, True])
def test_the_old_file_is_there_until_the_new_one_is_whole(path, locked):
    with replacing(path, locked=locked) as part:
        part.write_text("n")
        assert path.read_text() == "old"
        part.write_text("new")
        assert path.read_text() == "old" and part.parent == path.parent
    assert path.read_text() == "new" and names(path) == [path.name]


@pytest.mark.parametrize("error", [KeyError, OSError, KeyboardInterrupt])
def test_a_block_that_raises_leaves_the_old_file_alone(path, error):
    with pytest.raises(error), replacing(path) as part:
        part.write_text("half")
        raise error
    assert path.read_text() == "old" and names(path) == [path.name]


def test_two_writers_at_once_do_not_meet(path):
    with replacing(path) as first:
        first.write_text("first")
        with replacing(path) as second:
            assert not second.exists()
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first" and names(path) == [path.name]


@pytest.mark.parametrize("lock", ["open", "locked"])
def test_a_killed_writer_is_in_nobodys_way(path, lock):
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), lock], check=False)
    assert done.returncode == -signal.SIGKILL and path.read_text() == "old"
    (left,) = (file for file in path.parent.iterdir() if file != path)
    assert left.suffix == ".part" and left.read_bytes() == b"half"
    with replacing(path, locked=lock == "locked") as part:
        part.write_text("new")
    assert path.read_text() == "new"
    assert names(path) == ([path.name] if lock == "locked" else sorted([path.name, left.name]))


def test_durable_bytes_are_on_the_disk_before_they_count(path, monkeypatch):
    synced = []

    def fsync(number):
        synced.append((os.fstat(number).st_size, path.read_text()))

    monkeypatch.setattr(files.os, "fsync", fsync)
    with replacing(path, durable=True) as part:
        part.write_text("longer")
    assert synced == [(6, "old")] and path.read_text() == "longer"
    with replacing(path) as part:
        part.write_text("again")
    assert len(synced) == 1


def test_texts_and_json_are_written_as_they_are(path):
    write_text(path, "é\nline\r\nend")
    assert path.read_bytes() == "é\nline\r\nend".encode()
    write_json(path, {"a": [1, None]})
    assert json.loads(path.read_text()) == {"a": [1, None]} and path.read_text().endswith("}\n")
    assert names(path) == [path.name]


def test_a_table_comes_back(path):
    table = pa.table({"pair": [1, 2], "caption": ["a", None]})
    write_parquet(path, table)
    assert pyarrow.parquet.read_table(path).equals(table) and names(path) == [path.name]


@pytest.mark.parametrize("write", [write_text, write_json, lambda path, _: write_parquet(path, pa.table({"a": [1]}))])
def test_what_cannot_be_written_is_one_line(path, write):
    inside = path / "run.json"
    with pytest.raises(WriteError) as caught:
        write(inside, "text")
    assert str(caught.value).startswith(f"{inside}: cannot be written (") and "\n" not in str(caught.value)
    assert path.read_text() == "old" and names(path) == [path.name]


def test_a_text_that_cannot_be_encoded_is_no_error_of_the_disk(path):
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\udcff")
    assert path.read_text() == "old" and names(path) == [path.name]


HOLDING = """
import sys
from pathlib import Path
from pairsift.files import only_writer
from pairsift.run_folder import METRICS, PAIRS_FILE, read_metrics
from pairsift.table import read_pairs
with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_writer_is_refused_until_the_first_is_done_or_dead(path):
    for end in ("done", "dead"):
        with subprocess.Popen(
            [sys.executable, "-c", HOLDING, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as first:
            assert first.stdout.readline() == b"held\n"
            with (
                pytest.raises(InputError, match=rf"process {first.pid} on \S+ is writing {path}: wait"),
                only_writer(path),
            ):
                pass
            if end == "dead":
                first.kill()
            else:
                first.stdin.close()
        with only_writer(path), only_writer(path.with_name("other")):
            assert path.read_text() == "old"
        assert [file.name for file in path.parent.iterdir()] == [path.name]
    with pytest.raises(WriteError, match="nowhere"), only_writer(path.parent / "nowhere" / "file"):
        pass


@pytest.mark.parametrize("content", ["", "123\nhal"])
def test_a_lock_file_that_a_killed_process_had_only_begun_is_taken(path, content):
    lock = path.with_name(f".{path.name}.lock")
    for taken in (only_writer(path), in_turn(lock)):
        lock.write_text(content)
        with taken:
            assert lock.exists()
        assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_parts_of_killed_writers_are_removed_and_nothing_else(path):
    folder = path.parent
    kept = [path, folder / ".a file.txt.part", folder / ".a file.txt.0123456.part", folder / "b.01234567.part"]
    dead = [folder / ".a file.txt.01234567.part", folder / ".a file.txt.89abcdef.part"]
    other = folder / ".other.01234567.part"
    (below := folder / "below").mkdir()
    for file in (*kept, *dead[:1], other, below / other.name):
        file.write_text("half")
    dead[1].mkdir()
    (dead[1] / "half").write_text("half")
    files.remove_parts(folder, path.name)
    assert sorted(folder.iterdir()) == sorted([*kept, other, below])
    files.remove_parts(folder)
    assert sorted(folder.iterdir()) == sorted([*kept, below]) and not list(below.iterdir())


@pytest.mark.parametrize("content", [b"", b"PAR1", b"rubbish" * 9, None])
def test_a_damaged_table_and_damaged_metrics_of_a_run_are_one_line(tmp_path, content):
    write_parquet(tmp_path / PAIRS_FILE, pa.table({"pair": list(range(1000))}))
    whole = (tmp_path / PAIRS_FILE).read_bytes()
    (tmp_path / PAIRS_FILE).write_bytes(whole[: len(whole) // 2] if content is None else content)
    (tmp_path / METRICS).write_bytes(b'{"pairs": ' if content is None else content)
    for name, read in ((PAIRS_FILE, read_pairs), (METRICS, read_metrics)):
        with pytest.raises(InputError) as caught:
            read(tmp_path)
        line = str(caught.value)
        assert line.startswith(str(tmp_path / name)) and "copy of the run" in line and "\n" not in line
    with pytest.raises(InputError, match="cannot be read"):
        read_parquet(tmp_path / "missing.parquet")


def test_a_drive_without_modes_and_a_file_that_others_may_write(tmp_path, monkeypatch):
    with replacing(tmp_path / "x") as part:
        part.touch(mode=0o600)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o666 & ~MASK
    with replacing(tmp_path / "x") as part:
        part.touch()
        part.chmod(0o666)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o666
    monkeypatch.setattr(Path, "chmod", lambda *_: (_ for _ in ()).throw(PermissionError()))
    write_text(tmp_path / "x", "new")
    assert (tmp_path / "x").read_text() == "new"
