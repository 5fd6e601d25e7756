"""Parts: the Parquet files that a map over shards writes, each by itself, whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairsift.errors import InputError
from pairsift.files import make_folder, write_parquet


@dataclass(frozen=True)
class Share:
    """The shards that one of several processes works on: every n-th one.

    Attributes:
        number: Number of the process, from 0.
        of: Number of processes.
    """

    number: int = 0
    of: int = 1

    @staticmethod
    def parse(text: str) -> Share:
        """Return a share that is written as `i/n`, such as `0/8`.

        Raises:
            InputError: It is not written so, or i is not below n.
        """
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if not found or int(found[1]) >= int(found[2]):
            raise InputError(f"--shard {text}: give i/n with i from 0 to n - 1, such as 0/8")
        return Share(int(found[1]), int(found[2]))

    def of_shards(self, count: int) -> range:
        """Return the numbers of the process's shards among so many."""
        return range(self.number, count, self.of)

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True)
class Parts:
    """The parts of a map, one for each shard.

    Attributes:
        folder: The folder that they lie in.
        name: What a part holds, with which its file's name begins.
        count: Number of shards.
    """

    folder: Path
    name: str
    count: int

    def path(self, number: int) -> Path:
        """Return the file of a part."""
        return self.folder / f"{self.name}-{number:05d}.parquet"

    def missing(self, share: Share = Share()) -> list[int]:  # frozen
        """Return the numbers of the parts of a share that are not written yet."""
        return [number for number in share.of_shards(self.count) if not self.path(number).exists()]

    def write(self, number: int, table: pa.Table) -> None:
        """Write a part; two processes that write the same one leave one of the two.

        Raises:
            WriteError: It cannot be written.
        """
        make_folder(self.folder)
        write_parquet(self.path(number), table, durable=True)

    def read(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a part.

        Raises:
            InputError: It is missing or damaged.
        """
        path = self.path(number)
        try:
            return pq.read_table(path, columns=None if columns is None else list(columns))
        except (OSError, pa.ArrowException) as error:
            line = " ".join(str(error).split())
            raise InputError(f"{path}: cannot be read ({line}): remove it, and the command makes it again") from None
