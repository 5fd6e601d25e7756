"""The encoding of a source shard by shard, into a folder of vectors that `check`, `fit` and other tools read."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pairsift.arrays import Array
from pairsift.encode.cache import encode_captions, encode_images
from pairsift.encode.encoder import ImageEncoder, TextEncoder
from pairsift.encode.registry import image_encoder, text_encoder
from pairsift.errors import InputError, SourceError, UnreachableError, WriteError, writing
from pairsift.files import make_folder, replacing, write_parquet
from pairsift.pairs.image_files import within
from pairsift.pairs.pairs import SKIPPED, Pairs
from pairsift.pairs.readers.embeddings import IMAGE_PLACE, PROBLEM
from pairsift.pairs.readers.tars import Member
from pairsift.pairs.records import Columns
from pairsift.pairs.text import printable
from pairsift.sharding.parts import Share
from pairsift.sharding.source_shards import Source, SourceShard
from pairsift.source_path import root_of
from pairsift.table import storable

IMAGES, TEXTS, TABLES = "img_emb", "text_emb", "metadata"  # the folders of a layout that other tools share
OWN = ("image", "caption", PROBLEM, *IMAGE_PLACE)
UNREAD = b"unread"  # in the metadata of the table of a shard whose file could not be read, or not to its end


@dataclass(frozen=True)
class EncodingOptions:
    """What is encoded, and how.

    Attributes:
        source: The source, as a text where it is at another place.
        columns: Options of the user.
        reader: Name of the reader; None for the one that fits.
        images: Name of the image encoder.
        texts: Name of the text encoder.
    """

    source: Path | str
    columns: Columns
    reader: str | None
    images: str
    texts: str


class Problems(NamedTuple):
    """What could not be encoded.

    Attributes:
        rows: Number of rows in all.
        records: How many records cannot be used.
        shards: How many shards could not be read, or not to their end.
        first: The first reason.
    """

    rows: int
    records: int
    shards: int
    first: str


class Encoding:
    """The encoding of a source into a folder that several processes may share.

    A part is three files: the vectors of the images, those of the captions, both in half precision, and a table of the
    records, which is written last. A record that cannot be used keeps its row, with zeros and its `problem`.

    Args:
        folder: The folder.
        options: What is encoded, and how.
    """

    def __init__(self, folder: Path, options: EncodingOptions) -> None:
        self.folder, self.options = folder, options

    def __reduce__(self) -> tuple[Any, ...]:
        return Encoding, (self.folder, self.options)  # a worker reads the source and loads the encoders itself

    @cached_property
    def source(self) -> Source:
        """The source."""
        return Source(self.options.source, self.options.columns, self.options.reader)

    @cached_property
    def encoders(self) -> tuple[ImageEncoder, TextEncoder]:
        """The encoders."""
        return image_encoder(self.options.images, regions=False), text_encoder(self.options.texts, tokens=False)

    @cached_property
    def mark(self) -> str:
        """A text by which source, options and encoders are recognised."""
        shards = [(_absolute_name(shard.file), shard.start, shard.end) for shard in self.source.shards]
        keys = [encoder.key() for encoder in self.encoders]
        facts = [shards, self.source.marks(), self.source.reader, self.options.columns, *keys]
        return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def table(self, number: int) -> Path:
        """Return the file of the records of a part."""
        return self._file(TABLES, number, ".parquet")

    def missing(self, share: Share = Share()) -> list[int]:  # noqa: B008  # frozen
        """Return the numbers of the parts of a share that are not written yet."""
        return [number for number in share.of_shards(len(self.source.shards)) if not self.table(number).exists()]

    def unreadable(self, share: Share) -> list[int]:
        """Return the numbers of the parts of files at other places that could not be read, and may be whole now."""
        shards = self.source.shards
        away = (number for number in share.of_shards(len(shards)) if isinstance(shards[number].file, str))
        written = filter(lambda number: self.table(number).exists(), away)
        return [number for number in written if UNREAD in (pq.read_schema(self.table(number)).metadata or {})]

    def problems(self) -> Problems:
        """Count what could not be encoded, where all parts are written."""
        rows, records, shards, first = 0, 0, 0, ""
        for number, shard in enumerate(self.source.shards):
            table = pq.read_table(self.table(number), columns=[PROBLEM])
            found = [reason for reason in table[PROBLEM].to_pylist() if reason]
            unread = UNREAD in (table.schema.metadata or {})  # a row says so
            rows, records, shards = rows + len(table), records + len(found) - unread, shards + unread
            if found and not first:
                first = found[0] if shard.file is None or str(shard.file) in found[0] else f"{shard.file}: {found[0]}"
        return Problems(rows, records, shards, first)

    def _file(self, kind: str, number: int, suffix: str) -> Path:
        return self.folder / kind / f"{kind}_{number:05d}{suffix}"

    def __call__(self, number: int) -> None:
        """Write the part of a shard.

        Raises:
            WriteError: It cannot be written.
        """
        images, texts, table = self._encoded(self.source.shards[number])
        for kind, values in ((IMAGES, images), (TEXTS, texts)):
            path = self._file(kind, number, ".npy")
            make_folder(path.parent)
            with writing(path), replacing(path, durable=True) as part, part.open("wb") as stream:
                np.save(stream, values.astype(np.float16))
        path = self.table(number)
        make_folder(path.parent)
        write_parquet(path, table, durable=True)

    def _encoded(self, shard: SourceShard) -> tuple[Array, Array, pa.Table]:
        """Return the vectors of a shard's images and captions, and its records."""
        encoders = self.encoders
        with tempfile.TemporaryDirectory(prefix="pairsift-") as name:
            cache = Path(name)
            try:
                pairs, places = self.source.read(shard, cache)
            except (SourceError, UnreachableError, WriteError):
                raise
            except InputError as error:
                place = str(shard.file or self.options.source)
                reason = str(error) if place in str(error) else f"{place}: {error}"
                row = dict(zip(OWN, ("", "", storable(reason), ""), strict=False))
                nothing = (np.zeros((1, encoder.dim), np.float32) for encoder in encoders)
                numbers = dict.fromkeys(("file_offset", "file_size"), pa.nulls(1, pa.int64()))
                record = pa.table({**{key: [value] for key, value in row.items()}, **numbers})
                return (*nothing, record.replace_schema_metadata({UNREAD: b""}))
            table, failures = encode_images(pairs, encoders[0], cache)
            pairs = pairs.skip_images(failures)
            used = np.flatnonzero(pairs.split != SKIPPED)
            sides = [np.zeros((len(pairs), encoder.dim), np.float32) for encoder in encoders]
            sides[0][used] = table.values[pairs.image_of[used]]
            sides[1][used] = encode_captions(pairs, encoders[1], cache, False).values[used]
            return sides[0], sides[1], self._records(pairs, shard.file, places, cache)

    def _records(self, pairs: Pairs, tar: Path | str | None, places: list[Member | None], cache: Path) -> pa.Table:
        """Return the records of a shard.

        These are image, caption, what is wrong, the file of the image, and the source's other columns. Of an image in a
        tar file, they have the place of its bytes too.
        """
        problems = [""] * len(pairs)
        of_image: dict[str, str] = {}
        for skip in pairs.skipped:
            if skip.pair >= 0:
                problems[skip.pair] = skip.reason
            else:
                of_image[skip.where] = skip.reason
        names = [pairs.image_name(pair) for pair in range(len(pairs))]
        skipped = pairs.split == SKIPPED
        base, files = root_of(self.options.source), list[str]()
        shard = tar if isinstance(tar, str) else "" if tar is None else within(tar, base)
        for pair, row in enumerate(pairs.image_of.tolist()):
            place = places[pair] if places else None
            inside = row < 0 or cache in pairs.paths[row].parents
            files.append(shard if place else "" if inside else within(pairs.paths[row], base))
            if skipped[pair] and not problems[pair] and row >= 0:
                problems[pair] = of_image.get(pairs.names[row], "cannot be used")
        columns = dict(zip(OWN, (names, pairs.captions, problems, files), strict=False))
        columns |= {_free_name(name): cells for name, cells in pairs.columns.items()}
        table = pa.table({name: pa.array(map(storable, cells), pa.string()) for name, cells in columns.items()})
        for name in ("offset", "size"):
            found = [None if place is None else getattr(place, name) for place in places or [None] * len(pairs)]
            table = table.append_column(f"file_{name}", pa.array(found, pa.int64()))
        unread = bool(places) and printable(Path(pairs.source).name) in (skip.where for skip in pairs.skipped)
        return table.replace_schema_metadata({UNREAD: b""} if unread else None)


def _absolute_name(file: Path | str | None) -> str:
    """Return a file's name with its folders, however it was given."""
    return os.path.abspath(file) if isinstance(file, Path) else str(file)


def _free_name(name: str) -> str:
    """Return a name for a column of the source that no column of the records has."""
    while name in OWN:
        name = f"{name}_given"
    return name
