"""Files that a reader sees whole, the old one or the new one, and locks between processes."""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import SoftFileLease, Timeout

from pairsift.errors import InputError, writing

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)
LOCK = ".lock"  # in a folder that one process at a time may write
LEASE = 30.0  # seconds without a sign of life after which a process on another machine counts as dead
MASK = os.umask(0o022)  # of the process, which can only be read by setting it
os.umask(MASK)
UNWRITTEN = 2.0  # seconds after which a lock file that is still empty counts as that of a dead process


@contextmanager
def replacing(path: Path, durable: bool = False, locked: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside a file, and put what the block writes there in the file's place.

    The block may also make a folder there, for a path where nothing is yet.

    A block that raises leaves the file as it was, and no temporary file. Only a killed process leaves one, which no
    other writer needs or reads, until `remove_parts`. Errors pass as they are; `errors.writing` around this makes one
    line of them.

    Args:
        path: The file, in a folder that exists.
        durable: Whether all bytes must be on the disk before the file is replaced, so that a machine that stops at any
            moment has the old file or the new one too.
        locked: Whether the caller holds a lock, so that nobody else writes this file. The temporary path is then the
            same every time, and the next writer takes the place of one that was killed.
    """
    unique = "" if locked else f".{secrets.token_hex(4)}"
    part = path.with_name(f".{path.name}{unique}.part")
    try:
        yield part
        if durable:
            with part.open("r+b") as stream:
                os.fsync(stream.fileno())
        with suppress(OSError):  # some libraries make files that others cannot read, and some drives have no modes
            if part.is_file():
                part.chmod(part.stat().st_mode | (0o666 & ~MASK))
        part.replace(path)
    finally:
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def remove_parts(folder: Path, name: str = "*") -> None:
    """Remove what killed writers of files left beside them; the caller holds the lock of all writers of these.

    Args:
        folder: The folder of the files.
        name: The name of one file; by default all files in the folder and below it.
    """
    pattern = f".{'*' if name == '*' else escape(name)}.{'[0-9a-f]' * 8}.part"
    for part in list(folder.rglob(pattern) if name == "*" else folder.glob(pattern)):
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder, with those that it lies in.

    Raises:
        WriteError: It cannot be made.
    """
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def write_text(path: Path, content: str) -> None:
    """Write a text as UTF-8, with the line ends that it has.

    Raises:
        WriteError: It cannot be written; what was there stays.
    """
    with writing(path), replacing(path) as part:
        part.write_text(content, encoding="utf-8", newline="\n")


def write_json(path: Path, content: object) -> None:
    """Write a value as JSON that a person can read.

    Raises:
        WriteError: It cannot be written; what was there stays.
    """
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_lines(path: Path, lines: Iterable[object]) -> None:
    """Write values as JSON lines.

    Raises:
        WriteError: They cannot be written; what was there stays.
    """
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))


def write_parquet(path: Path, table: pa.Table, durable: bool = False) -> None:
    """Write a table as Parquet, as `replacing` describes it.

    Raises:
        WriteError: It cannot be written; what was there stays.
    """
    from pyarrow import parquet  # heavy, and not every command writes a table

    with writing(path), replacing(path, durable) as part:
        parquet.write_table(table, part)


def read_parquet(path: Path, **options: Any) -> pa.Table:
    """Read a table of a run's folder, with options of pyarrow's `read_table`.

    Raises:
        InputError: It is missing or damaged.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.read_table(path, **options)
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: cannot be read ({reason}); take it from a copy of the run, or fit again") from error


@contextmanager
def only_writer(path: Path, wait: bool = True) -> Iterator[Callable[[], None]]:
    """Refuse other processes that are about to write the same file or folder, as long as the block lasts.

    A process that was killed is in nobody's way: on its own machine at once, on another one after `LEASE` seconds
    without a sign of life. This holds on network drives too, where the system has no locks between machines.

    Args:
        path: The file, or a folder that exists.
        wait: Whether to wait for a sign of life of a process on another machine, which may be dead.

    Yields:
        A function that raises an InputError once another process has taken over, because this one gave no sign of life.

    Raises:
        InputError: Another process is writing; the line names it and its machine.
        WriteError: There is no such folder, or it cannot be written.
    """
    lock_file = path / LOCK if path.is_dir() else path.with_name(f".{path.name}.lock")
    with writing(path):
        if not lock_file.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(lock_file))
        lease = _lease(lock_file)
        try:
            _acquire(lease, path, wait)
        except Timeout:
            raise InputError(
                f"{_holder(lease)} is writing {path}: wait until it is done, or remove {lock_file} if it is not running"
            ) from None

    def require_held() -> None:
        if lease.compromise is not None:
            raise InputError(f"{_holder(lease)} has taken over {path} while this process stood still: stopped here")

    try:
        yield require_held
    finally:
        with suppress(OSError):
            lease.release()


@contextmanager
def in_turn(lock_file: Path, waiting: str = "") -> Iterator[None]:
    """Wait until no other process that lives is in such a block with this lock file, in a folder that exists.

    Args:
        lock_file: The file, which is there as long as somebody holds the lock.
        waiting: A warning where another process has to be waited for.
    """
    lease = _lease(lock_file)
    try:
        lease.acquire(timeout=0)
    except Timeout:
        if waiting:
            log.warning("%s (%s)", waiting, lock_file)
        lease.acquire()
    try:
        yield
    finally:
        lease.release()


def _lease(lock_file: Path) -> SoftFileLease:
    """Return the lease of a lock file.

    A process that was killed as it made the file left it empty, and nobody would take it. It is marked as broken here.
    """
    end = time.monotonic() + UNWRITTEN
    with suppress(OSError), lock_file.open("rb+") as file:
        while not os.fstat(file.fileno()).st_size and os.fstat(file.fileno()).st_nlink:
            if time.monotonic() > end:
                file.write(b"broken")
                break
            time.sleep(UNWRITTEN / 100)
    return SoftFileLease(lock_file, lease_duration=LEASE)


def _acquire(lease: SoftFileLease, path: Path, wait: bool) -> None:
    """Take a lease, where nobody has it or who had it is dead.

    Raises:
        Timeout: A process that lives has it, or without `wait` one on another machine that may live.
    """
    try:
        lease.acquire(timeout=0)
    except Timeout:
        owner = lease.owner
        if not wait or (owner is not None and owner.hostname == _machine()):
            raise
        print(
            f"{_holder(lease)} began to write {path}: waiting up to {LEASE:.0f} seconds to see if it is still there",
            file=sys.stderr,
            flush=True,
        )
        lease.acquire(timeout=LEASE + 1)


def _machine() -> str:
    """Return the name of this machine as the owner of a lease has it."""
    with tempfile.TemporaryDirectory() as folder, SoftFileLease(Path(folder) / LOCK) as lease:
        owner = lease.owner
        return "" if owner is None else owner.hostname


def _holder(lease: SoftFileLease) -> str:
    """Return who holds a lease, in words."""
    owner = lease.owner
    return "another process" if owner is None else f"process {owner.pid} on {owner.hostname.partition('?')[0]}"
