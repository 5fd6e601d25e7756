"""The files within tar files: where their bytes lie, without unpacking them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Self

from pairsift.errors import InputError
from pairsift.pairs.text import one_line

HEADER = 1 << 20  # bytes; no header of a file is longer, and no more is read at once where one says so
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")  # first bytes of gzip, bzip2, xz and zstandard
BEFORE = "what lies before that is read"
CUT = f"is cut off: it ends after {{:,}} bytes, within a file; {BEFORE}"
PACKED = "is compressed; unpack it to a plain .tar file first"


@dataclass(frozen=True, slots=True)
class Member:
    """A file within a tar file.

    Attributes:
        tar: The tar file.
        name: Path within the tar file, with slashes, and without `./` at its start.
        offset: Position of its first byte in the tar file.
        size: Number of its bytes.
        problem: Reason why its bytes cannot be read, in words that follow its name; empty if they can.
    """

    tar: Path
    name: str
    offset: int
    size: int
    problem: str = ""

    @property
    def base(self) -> str:
        """The name without its folders."""
        return self.name.rpartition("/")[2]


Read = Callable[[Member], bytes]


class _Blocks(io.BufferedReader):
    """The reader of a tar file's headers.

    Attributes:
        last: The bytes that were read last.
        damage: Positions where a header was expected and was broken or cut off.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self.last = b""
        self.damage: list[int] = []

    def read(self, size: int | None = -1, /) -> bytes:
        """Read a part of a header.

        Raises:
            tarfile.ReadError: The header says that it has an impossible size.
        """
        if size is None or not 0 <= size <= HEADER:
            raise tarfile.ReadError(f"a header with {size} bytes")
        self.last = super().read(size)
        return self.last


class _Header(tarfile.TarInfo):
    """A header that notes where another header is damaged, which `tarfile` passes over without a word."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> Self:
        """Return the next header of a tar file."""
        blocks = tar.fileobj
        assert isinstance(blocks, _Blocks)
        place = blocks.tell()
        try:
            return super().fromtarfile(tar)
        except tarfile.HeaderError:
            if any(blocks.last):  # zeros are the end of a tar file, behind which another one may follow
                blocks.damage.append(place)
            raise


def scan(path: Path) -> tuple[list[Member], str]:
    """Return the files within a tar file in their order, and the problem of the tar file as a whole.

    Folders, hidden files and files whose names start and end with `__` are left out. Behind a damaged place, reading
    goes on with the next header that is whole.

    Args:
        path: The tar file.

    Returns:
        The files, and the problem in one line, in words that follow the name of the tar file; or an empty string.
    """
    members: list[Member] = []
    try:
        with _Blocks(path) as blocks:
            if blocks.peek(8).startswith(COMPRESSED):
                return [], PACKED
            problem = _read_headers(path, blocks, members)
    except OSError as error:
        return members, one_line(f"cannot be read: {error.strerror or error}")
    return members, problem


def _read_headers(path: Path, blocks: _Blocks, members: list[Member]) -> str:
    """Append the files of a tar file to `members`, and return the problem of the tar file."""
    size = path.stat().st_size
    end = 0
    try:
        with tarfile.open(fileobj=blocks, mode="r:", tarinfo=_Header, ignore_zeros=True, encoding="utf-8") as tar:
            while (info := tar.next()) is not None:
                if info.size < 0:  # it would lead back
                    raise tarfile.ReadError(f"a file of {info.size} bytes")
                tar.members.clear()  # type: ignore[attr-defined]  # it would keep all headers
                end = info.offset_data + info.size
                member = _member(path, info, size)
                if member is not None:
                    members.append(member)
    except (tarfile.TarError, ValueError, OverflowError) as error:
        if not size:
            return "is an empty file"
        cut = end > size or "end of data" in str(error)
        return CUT.format(size) if cut else one_line(f"is damaged after byte {end:,} ({error}); {BEFORE}")
    if not blocks.damage:
        return ""
    if not members:
        return "is not a tar file"
    cut = blocks.damage[-1] + tarfile.BLOCKSIZE > size
    return CUT.format(size) if cut else f"is damaged at byte {blocks.damage[0]:,}; the other files in it are read"


def _member(path: Path, info: tarfile.TarInfo, size: int) -> Member | None:
    """Return a file of a tar file as its header describes it; None for what is no file of the user.

    Args:
        path: The tar file.
        info: The header.
        size: Bytes of the tar file.
    """
    name = str(PurePosixPath(info.name))
    base = name.rpartition("/")[2]
    if base.startswith(".") or (base.startswith("__") and base.endswith("__")):
        return None
    problem = ""
    if info.issym() or info.islnk():
        problem = "is a link within the tar file, not a file"
    elif info.issparse():
        problem = "is stored with holes; pack the tar file again without --sparse"
    elif not info.isreg():
        return None
    elif info.offset_data + info.size > size:
        problem = "is cut off, as the tar file ends within it"
    return Member(path, name, info.offset_data, info.size, problem)


@contextmanager
def reading() -> Iterator[Read]:
    """Yield a function that returns the bytes of a file within a tar file. One tar file is open at a time.

    The function raises an InputError where the tar file cannot be read any more.
    """
    opened: dict[Path, BinaryIO] = {}

    def close() -> None:
        while opened:
            opened.popitem()[1].close()

    def read(member: Member) -> bytes:
        try:
            if member.tar not in opened:
                close()
                opened[member.tar] = member.tar.open("rb")
            opened[member.tar].seek(member.offset)
            content = opened[member.tar].read(member.size)
        except OSError as error:
            raise InputError(f"{member.tar}: cannot be read: {error.strerror or error}") from error
        if len(content) < member.size:
            raise InputError(f"{member.tar}: has changed while it was read; start again")
        return content

    try:
        yield read
    finally:
        close()
