"""Sources of vectors in files: rows are read when they are needed, and captions stay in Parquet."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pairsift.arrays import Array, Ints, first_numbers, hashes
from pairsift.detect.folds import fingerprints
from pairsift.encode.source_features import SourceFeatures, open_source_features
from pairsift.errors import InputError
from pairsift.pairs.changes import file_mark
from pairsift.pairs.precomputed import FeatureFiles, open_rows
from pairsift.pairs.readers.embeddings import (
    IMAGE_PLACE,
    PROBLEM,
    Part,
    encoding_facts,
    images_root,
    is_embeddings,
    numbered_parts,
    single_part,
)
from pairsift.pairs.readers.parquet import opened
from pairsift.pairs.readers.rows import Roles, pick_columns
from pairsift.pairs.readers.tables import PARQUET
from pairsift.pairs.records import Columns
from pairsift.vector_pairs import Texts, VectorPairs

SCANNED = 16_384  # vectors that are looked at together


class ParquetTexts(Texts):
    """A column of text in Parquet files, one after the other.

    The row group that was read last is kept.

    Args:
        files: The files.
        column: Name of the column.
    """

    def __init__(self, files: Sequence[Path], column: str) -> None:
        self._files, self._column = files, column
        starts, self._groups = [0], []
        for number, path in enumerate(files):
            with opened(path) as file:
                for group in range(file.num_row_groups):
                    starts.append(starts[-1] + file.metadata.row_group(group).num_rows)
                    self._groups.append((number, group))
        self._starts = np.array(starts)
        self._kept: tuple[int, pa.Array] | None = None

    def __len__(self) -> int:
        return int(self._starts[-1])

    def array_at(self, rows: Ints) -> pa.Array:
        """Return the texts in these rows as an Arrow array; what is no text is null.

        Raises:
            InputError: A file cannot be read.
        """
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(owner, kind="stable")
        parts, places = [pa.array([], pa.large_string())], []
        for group in np.unique(owner).tolist():
            here = order[owner[order] == group]
            parts.append(self._group(group).take(pa.array(rows[here] - self._starts[group])))
            places.append(here)
        joined = pa.concat_arrays(parts)
        back = np.empty(len(rows), np.int64)
        back[np.concatenate([np.zeros(0, np.int64), *places])] = np.arange(len(rows))
        return joined.take(pa.array(back))

    def at(self, rows: Ints) -> list[str]:
        """Return the texts in these rows; what is no text is empty."""
        texts: list[str] = pc.fill_null(self.array_at(rows), "").to_pylist()
        return texts

    def __getitem__(self, row: int) -> str:
        return self.at(np.array([row]))[0]

    def _group(self, number: int) -> pa.Array:
        """Return the texts of a row group."""
        kept = self._kept
        if kept is None or kept[0] != number:
            file, group = self._groups[number]
            with opened(self._files[file]) as parquet:
                column = parquet.read_row_group(group, columns=[self._column]).column(0)
            kept = self._kept = number, cells_as_text(column)
        return kept[1]


def cells_as_text(column: pa.ChunkedArray) -> pa.Array:
    """Return cells as text: numbers are written out, bytes that are no UTF-8 become U+FFFD, the rest is null."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_dictionary(column.type):
        column = column.cast(kind)
    if pa.types.is_nested(kind):
        return pa.nulls(len(column), pa.large_string())
    array = column.cast(pa.large_string(), safe=False).combine_chunks()
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        cells = array.cast(pa.large_binary()).to_pylist()
        array = pa.array([None if cell is None else cell.decode("utf-8", "replace") for cell in cells], array.type)
    return array


def _digest(facts: object) -> str:
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


@dataclass(frozen=True)
class VectorFiles:
    """The files of a source of vectors, as the reader `embeddings` takes them, with Parquet tables.

    Attributes:
        path: The folder.
        parts: Its files, three by three.
        roles: The columns of the tables.
        aligned: Whether images and captions share a space.
    """

    path: Path
    parts: Sequence[Part]
    roles: Roles
    aligned: bool

    @staticmethod
    def open(path: Path, columns: Columns, aligned: bool = False) -> VectorFiles:
        """Open the files, of which only headers are read.

        Raises:
            InputError: Files are missing, cannot be read or do not fit each other, or a table is not of Parquet.
        """
        if not is_embeddings(path):
            raise InputError(
                f"{path}: holds no vectors of images and captions: make them with `pairsift encode {path} --out FOLDER`"
            )
        single = any((path / name).is_file() for name in ("image.npy", "text.npy"))
        parts = [single_part(path)] if single else numbered_parts(path)
        shapes = [[open_rows(file, (2,)).shape for file in (part.images, part.texts)] for part in parts]
        for part, (images, texts) in zip(parts, shapes, strict=True):
            if part.table.suffix.lower() not in PARQUET:
                raise InputError(f"{part.table}: shards are read from Parquet: write the table of captions as Parquet")
            with opened(part.table) as file:
                rows = file.metadata.num_rows
            for name, count in ((part.texts, texts[0]), (part.table, rows)):
                if count != images[0]:
                    raise InputError(
                        f"{name}: has {count:,} rows and {part.images.name} has {images[0]:,}; row i of both must "
                        "belong to pair i"
                    )
            for name, width, first in (
                (part.images, images[1], shapes[0][0][1]),
                (part.texts, texts[1], shapes[0][1][1]),
            ):
                if width != first:
                    raise InputError(f"{name}: a row has {width} values where the first part has {first}")
        names = pq.read_schema(parts[0].table).names
        roles = pick_columns(parts[0].table, names, Columns(columns.image, columns.caption, needs_image=False))
        for part in parts[1:]:
            if lacking := {roles.caption, *filter(None, [roles.image])} - set(pq.read_schema(part.table).names):
                raise InputError(f"{part.table}: has no column {min(lacking)!r}, which {parts[0].table.name} has")
        return VectorFiles(path, parts, roles, aligned)

    def __len__(self) -> int:
        return sum(self.sizes)

    @cached_property
    def sizes(self) -> list[int]:
        """The number of rows of each part."""
        return [len(open_rows(part.images, (2,))) for part in self.parts]

    def place_of(self, row: int) -> str:
        """Return the table and the row in it, counted from 1, of a pair."""
        starts = np.cumsum([0, *self.sizes])
        part = int(np.searchsorted(starts, row, side="right")) - 1
        return f"{self.parts[part].table.name} row {row - starts[part] + 1}"

    @cached_property
    def images_root(self) -> str:
        """The folder or the URLs of the source, where the vectors are those of images; else empty."""
        return images_root(self.path)

    def image_files(self) -> dict[str, ParquetTexts]:
        """Return the columns that say where images lie, by name; none where the vectors are not those of images."""
        if not self.images_root:
            return {}
        tables = [part.table for part in self.parts]
        return {name: ParquetTexts(tables, name) for name in IMAGE_PLACE}

    @property
    def widths(self) -> tuple[int, int]:
        """The lengths of the vectors of an image and of a caption."""
        images, texts = (open_rows(file, (2,)).shape[1] for file in (self.parts[0].images, self.parts[0].texts))
        return int(images), int(texts)

    @cached_property
    def mark(self) -> str:
        """A text by which the files are recognised.

        Its first part, up to a dash, is about their names and contents and about the columns that are read, the second
        about their times.
        """
        files = [file for part in self.parts for file in (part.images, part.texts, part.table)]
        contents = ([(file.name, file_mark(file)) for file in files], *self.roles, self.aligned)
        return "-".join(_digest(facts) for facts in (contents, [file.stat().st_mtime_ns for file in files]))

    @cached_property
    def captions(self) -> ParquetTexts:
        """The captions."""
        return ParquetTexts([part.table for part in self.parts], self.roles.caption)

    def names(self, rows: Ints) -> pa.Array:
        """Return the names of the images of some pairs; without an image column, the number of the row."""
        if not self.roles.image:
            return pa.array([f"row {row}" for row in rows.tolist()], pa.large_string())
        return self._names.array_at(rows)

    @cached_property
    def _names(self) -> ParquetTexts:
        return ParquetTexts([part.table for part in self.parts], self.roles.image)

    def side(self, kind: str, rows: Ints) -> SourceFeatures:
        """Return the vectors of `images` or of `texts` of some pairs, which are read when they are gathered."""
        files = tuple(getattr(part, kind) for part in self.parts)
        return open_source_features(FeatureFiles(files, open_rows(files[0], (2,)).shape[1:], rows), "vector")

    def pairs(self, rows: Ints, image_of: Ints) -> VectorPairs:
        """Return the pairs in these rows, whose images have these numbers."""
        everywhere = np.ones(len(rows), np.bool_)
        texts = self.captions if len(rows) == len(self.captions) else RowsOf(self.captions, rows)
        images, captions = self.side("images", rows), self.side("texts", rows)
        return VectorPairs(images, captions, image_of, texts, everywhere, ~everywhere, self.aligned)

    def scan(self) -> tuple[Array, dict[int, str]]:
        """Look at all vectors and captions once.

        Returns:
            A fingerprint of each image's vector, (n,), and why pairs cannot be used, by row in ascending order.

        Raises:
            InputError: A file cannot be read.
        """
        everything = np.arange(len(self))
        images, texts = self.side("images", everything), self.side("texts", everything)
        prints, broken = np.zeros(len(everything), np.uint64), dict[int, str]()
        for start in range(0, len(everything), SCANNED):
            rows = everything[start : start + SCANNED]
            values, reasons = images.checked(rows)
            prints[rows] = fingerprints(values)
            broken |= texts.checked(rows)[1] | reasons
            empty = pc.equal(pc.utf8_trim_whitespace(pc.fill_null(self.captions.array_at(rows), "")), "")
            broken |= dict.fromkeys(rows[np.asarray(empty)].tolist(), "the caption is empty")
            broken |= self._problems(rows)
        broken |= self._repeats(np.delete(everything, [*broken]), prints)
        return prints, dict(sorted(broken.items()))

    def _repeats(self, usable: Ints, prints: Array) -> dict[int, str]:
        """Return why pairs are repeated ones, by row: the vector and the name of an image, and a caption, come again.

        Args:
            usable: The rows that can be used, ascending.
            prints: A fingerprint of each image's vector, (n,).
        """
        if not self.roles.image:
            return {}
        number = first_numbers(prints[usable])
        rows = usable[np.bincount(number)[number] > 1]  # of the others the vector alone says that they are new
        keys = np.zeros(len(rows), np.int64)
        for start in range(0, len(rows), SCANNED):
            some = rows[start : start + SCANNED]
            items = zip(prints[some].tolist(), self.names(some).to_pylist(), self.captions.at(some), strict=True)
            keys[start : start + SCANNED] = hashes(items)
        _, first, of = np.unique(keys, return_index=True, return_inverse=True)
        again = np.flatnonzero(first[of] != np.arange(len(rows)))
        return {int(rows[k]): f"repeats {self.place_of(rows[first[of[k]]])}" for k in again.tolist()}

    def _problems(self, rows: Ints) -> dict[int, str]:
        """Return why records could not be encoded, by row, where the tables say so."""
        if self._problem is None:
            return {}
        found = zip(rows.tolist(), self._problem.at(rows), strict=True)
        return {row: problem for row, problem in found if problem}

    @cached_property
    def _problem(self) -> ParquetTexts | None:
        tables = [part.table for part in self.parts]
        has = bool(encoding_facts(self.path)) and all(PROBLEM in pq.read_schema(table).names for table in tables)
        return ParquetTexts(tables, PROBLEM) if has else None


class RowsOf(Texts):
    """Some rows of a column of text.

    Args:
        texts: The column.
        rows: The rows, (n,).
    """

    def __init__(self, texts: ParquetTexts, rows: Ints) -> None:
        self._texts, self._rows = texts, rows

    def __len__(self) -> int:
        return len(self._rows)

    def at(self, rows: Ints) -> list[str]:
        """Return the texts in these rows."""
        return self._texts.at(self._rows[rows])
