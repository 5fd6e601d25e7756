"""The shards of a source of images and captions: its tar files, parts of its Parquet files, or parts of its list."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pairsift.arrays import Ints
from pairsift.errors import InputError, SourceError, UnreachableError, WriteError
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.readers import choose, read_listing, require_one, table_within
from pairsift.pairs.readers.cells import Reading, spread
from pairsift.pairs.readers.choice import SAMPLE, read_columns
from pairsift.pairs.readers.parquet import opened
from pairsift.pairs.readers.shards import ENDINGS, read_samples, tar_files
from pairsift.pairs.readers.tables import PARQUET, files_of, read_rows, read_table
from pairsift.pairs.readers.tars import Member
from pairsift.pairs.records import Columns, assemble
from pairsift.remote import fetch, remote_files
from pairsift.source_path import require_source, root_of

PAIRS = 10_000  # of a shard, where the source has no shards of its own
GROUPS = 10  # row groups whose rows show what the columns hold


@dataclass(frozen=True)
class SourceShard:
    """A part of a source.

    Attributes:
        file: A tar file or a Parquet file, or its URL; None for a part of the list of all pairs.
        start: First row in the Parquet file, or in the list.
        end: The row after the last one; 0 for a whole file.
    """

    file: Path | str | None
    start: int = 0
    end: int = 0


def _size_and_time(file: Path) -> str:
    """Return the size and the time of a file as text; an empty string where there is none."""
    try:
        status = file.stat()
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"


class Source:
    """A source of images and captions, cut into shards.

    Tar files are shards, and so are every 10,000 rows of Parquet files. At another place, each of these files is one.
    Any other source is listed as a whole, and every 10,000 pairs are a shard.

    Args:
        path: The source, as a text where it is at another place.
        columns: Options of the user.
        reader: Name of the reader; None for the one that fits.

    Attributes:
        reader: Name of the reader.
        shards: The shards, in order.
        note: What is read of the columns of Parquet files; empty for other sources.

    Raises:
        InputError: There is nothing at the path, or it cannot be read.
    """

    def __init__(self, path: Path | str, columns: Columns, reader: str | None = None) -> None:
        self._columns, self.note = columns, ""
        self._whole: Pairs | None = None
        self._reading: Reading | None = None
        if isinstance(path, str):
            self.reader = reader or "table"  # of the Parquet files
            self.shards = [SourceShard(url) for url in remote_files(path, (*ENDINGS, *PARQUET))]
            return
        require_source(path)
        path = table_within(path) if reader is None else path
        self.reader = choose(path) if reader is None else reader
        self._folder = columns.folder or root_of(path)
        require_one(self.reader, path)
        files = _parquet_files(path) if self.reader == "table" else []
        if self.reader == "shards":
            self.shards = [SourceShard(tar) for tar in tar_files(path)[0]]
        elif files:
            self.shards = [shard for file in files for shard in _of_parquet(file)]
        else:
            self._whole = self._read(path, columns)
            if self._whole.features is not None:
                raise InputError(f"{path}: holds vectors already: check them with `pairsift check {path}`")
            self.shards = _of_rows(None, len(self._whole))
        if not self.shards:
            raise InputError(f"{path}: has no rows")
        if files:
            self._reading, self.note = self._reading_of(files, self._folder)

    def marks(self) -> list[str]:
        """Return texts that change with the source: of its files, or of its list and the images; none of URLs."""
        if self._whole is not None:
            return [self._whole.hash(), *map(_size_and_time, self._whole.paths)]
        files = dict.fromkeys(shard.file for shard in self.shards if isinstance(shard.file, Path))
        return list(map(_size_and_time, files))

    def read(self, shard: SourceShard, cache: Path) -> tuple[Pairs, list[Member | None]]:
        """Return the pairs of a shard, and the place of each pair's image where it lies in a tar file.

        Images that lie within a file are written into the cache folder.

        Raises:
            InputError: It cannot be read.
            SourceError: It is at another place, and the columns of its files cannot be used.
            UnreachableError: It is at another place, which cannot be reached.
        """
        columns = replace(self._columns, cache=cache)
        if isinstance(shard.file, str):
            self._reading = self._reading or self._reading_of_first_url(cache)
            with _local_copy(shard.file, cache) as file, _place_in_errors(file, shard.file):
                return self._read_file(file, columns)
        if shard.file is None:
            assert self._whole is not None, "the source is a list"
            return part_of(self._whole, np.arange(shard.start, shard.end)), []
        if shard.end:
            with _rows_of(shard.file, shard.start, shard.end, cache) as file, _place_in_errors(file, shard.file):
                return self._read(file, replace(columns, folder=self._folder)), []
        return self._read_file(shard.file, columns)

    def _read_file(self, file: Path, columns: Columns) -> tuple[Pairs, list[Member | None]]:
        """Return the pairs of a whole file, and the places of images in it."""
        if file.suffix.lower() in PARQUET:
            return self._read(file, columns), []
        samples, listing = read_samples(file, columns)
        places = [sample.image for sample in samples for _ in sample.records]
        return assemble(str(file), "shards", listing, None, least=0), places

    def _read(self, path: Path, columns: Columns) -> Pairs:
        if self._reading is None:
            listing = read_listing(path, self.reader, columns)
        else:
            listing = read_table(path, columns, reading=self._reading)
        return assemble(str(path), self.reader, listing, None, least=0)

    def _reading_of_first_url(self, cache: Path) -> Reading | None:
        """Return what the columns of the first Parquet file hold that can be read; None if there is none."""
        for url in (shard.file for shard in self.shards if isinstance(shard.file, str)):
            if not urlsplit(url).path.lower().endswith(PARQUET):
                continue
            with ExitStack() as stack:
                try:
                    file = stack.enter_context(_local_copy(url, cache))
                    stack.enter_context(opened(file))
                except (UnreachableError, WriteError):
                    raise
                except InputError:  # its shard says so
                    continue
                with _place_in_errors(file, url):
                    try:
                        return self._reading_of([file], self._columns.folder or file.parent)[0]
                    except InputError as error:
                        raise SourceError(str(error)) from error
        return None

    def _reading_of(self, files: Sequence[Path], folder: Path) -> tuple[Reading, str]:
        """Return what the columns of Parquet files hold, by some rows of all files, and a note on it.

        Raises:
            InputError: There is no image or caption column.
        """
        with tempfile.TemporaryDirectory(prefix="pairsift-") as name:
            sample = _sample_of(files, Path(name))
            columns = replace(self._columns, folder=folder, cache=Path(name))
            with _place_in_errors(sample, files[0]):
                reading, note = read_columns(sample, read_rows(sample, columns), columns, folder)
        image, caption, _, further = reading.roles
        captions = ", ".join(map(repr, (caption, *further)))
        return reading, "; ".join(filter(None, (f"image column {image!r}, caption column {captions}", note)))


def _parquet_files(path: Path) -> list[Path]:
    """Return the Parquet files of a source; none where it has other tables."""
    files = files_of(path)
    return files if all(file.suffix.lower() in PARQUET for file in files) else []


def _sample_of(files: Sequence[Path], folder: Path) -> Path:
    """Write rows of some row groups of Parquet files, spread evenly, as a file of the first one's name.

    Files with other columns than the first one's are left out.
    """
    schema = pq.read_schema(files[0])
    groups = [(file, number) for file in files for number in _groups_of(file, schema)]
    chosen, sample = [groups[place] for place in spread(len(groups), GROUPS)], folder / files[0].name
    with pq.ParquetWriter(sample, schema) as writer:
        for path, number in chosen:
            with opened(path) as file:
                table = file.read_row_group(number)  # one at a time, since images may lie in it
            rows = spread(len(table), SAMPLE // len(chosen))
            writer.write_table(pa.concat_tables([table.slice(row, 1) for row in rows]))
    return sample


def _groups_of(path: Path, schema: pa.Schema) -> list[int]:
    """Return the row groups of a Parquet file that have rows; none where it has another schema."""
    with opened(path) as file:
        sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        return [number for number, size in enumerate(sizes) if size and file.schema_arrow.equals(schema)]


@contextmanager
def _local_copy(url: str, folder: Path) -> Iterator[Path]:
    """Yield a copy of a file at another place, with its name, in a folder of its own."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        file = Path(name, PurePosixPath(urlsplit(url).path).name)
        fetch(url, file)
        yield file


@contextmanager
def _place_in_errors(file: Path, place: Path | str) -> Iterator[None]:
    """Name in errors the place that a file was copied from."""
    try:
        yield
    except InputError as error:
        error.args = (str(error).replace(str(file), str(place)), *error.args[1:])
        raise


def _of_parquet(file: Path) -> list[SourceShard]:
    with opened(file) as parquet:
        return _of_rows(file, parquet.metadata.num_rows)


def _of_rows(file: Path | None, rows: int) -> list[SourceShard]:
    """Return shards of equal size, at most 10,000 rows each."""
    edges = np.linspace(0, rows, -(-rows // PAIRS) + 1).round().astype(int).tolist()
    return [SourceShard(file, start, end) for start, end in pairwise(edges)]


@contextmanager
def _rows_of(file: Path, start: int, end: int, folder: Path) -> Iterator[Path]:
    """Yield a Parquet file of the same name that has these rows alone."""
    with tempfile.TemporaryDirectory(dir=folder) as name, opened(file) as parquet:
        place, first, batches = Path(name, file.name), 0, []
        for group in range(parquet.num_row_groups):
            rows = parquet.metadata.row_group(group).num_rows
            if first < end and start < first + rows:
                table = parquet.read_row_group(group)
                batches.append(table.slice(max(0, start - first), end - max(start, first)))
            first += rows
        pq.write_table(pa.concat_tables(batches), place)
        del batches
        yield place


def part_of(pairs: Pairs, ids: Ints) -> Pairs:
    """Return some pairs alone, with their images.

    Args:
        pairs: The pairs.
        ids: The ids of these, ascending, (n,).
    """
    rows, owner = np.unique(pairs.image_of[ids], return_inverse=True)
    has_none = bool(len(rows)) and rows[0] < 0
    rows, owner = (rows[1:], owner - 1) if has_none else (rows, owner)
    place = {pair: number for number, pair in enumerate(ids.tolist())}

    def cells(values: Sequence[str]) -> list[str]:
        return [values[pair] for pair in ids.tolist()]

    return replace(
        pairs,
        names=[pairs.names[row] for row in rows],
        paths=[pairs.paths[row] for row in rows],
        captions=cells(pairs.captions),
        image_of=owner.reshape(-1).astype(np.int64),
        split=pairs.split[ids],
        columns={name: cells(values) for name, values in pairs.columns.items()},
        skipped=tuple(replace(skip, pair=place[skip.pair]) for skip in pairs.skipped if skip.pair in place),
        own_names=None if pairs.own_names is None else cells(pairs.own_names),
    )
