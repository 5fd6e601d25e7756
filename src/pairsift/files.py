"""Files that a reader sees whole, the old one or the new one, and locks between processes."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pairsift.errors import InputError, writing

if TYPE_CHECKING:
    import pyarrow as pa


@contextmanager
def replacing(path: Path, durable: bool = False, locked: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside a file, and put what the block writes there in the file's place.

    The block may also make a folder there, for a path where nothing is yet.

    A block that raises leaves the file as it was, and no temporary file. Only a killed process leaves one, which no
    other writer needs or reads. Errors pass as they are; `errors.writing` around this makes one line of them.

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
        part.replace(path)
    finally:
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def is_partial(file: Path, path: Path) -> bool:
    """Return whether a file is what a killed writer of `path` left behind."""
    return file.parent == path.parent and file.name.startswith(f".{path.name}.") and file.suffix == ".part"


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


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table as Parquet.

    Raises:
        WriteError: It cannot be written; what was there stays.
    """
    from pyarrow import parquet  # heavy, and not every command writes a table

    with writing(path), replacing(path) as part:
        parquet.write_table(table, part)


def try_lock(file: IO[bytes]) -> bool:
    """Lock an open file unless another process or another open file has locked it; closing the file releases it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Refuse other calls that are about to write the same file, as long as the block lasts.

    Nothing of a killed process is in the way: its lock ends with it.

    Raises:
        InputError: Another call is writing the file.
        WriteError: There is no such folder, or it cannot be written.
    """
    lock_file = path.with_name(f".{path.name}.lock")
    with writing(path):
        file = _open_lock(lock_file)
    if file is None:
        raise InputError(f"another call is writing {path}: wait until it is done, or name another file")
    with file:
        try:
            yield
        finally:
            with suppress(OSError):
                lock_file.unlink()


def _open_lock(lock_file: Path) -> IO[bytes] | None:
    """Open and lock a file that its holder removes at the end; return None if another process holds it."""
    while True:
        file = lock_file.open("a+b")
        if not try_lock(file):
            file.close()
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), lock_file.stat()):
                return file
        file.close()  # its holder removed it between the two steps
