"""The rows of a source as they are in it, so that they can be written again with fewer pairs and other captions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from pairsift.arrays import Bools
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.readers import choose, read_listing, table_within
from pairsift.pairs.readers.cells import Reading
from pairsift.pairs.readers.choice import read_columns
from pairsift.pairs.readers.dialects import Dialect
from pairsift.pairs.readers.parquet import BUFFER, IMAGE_ROWS, TEXT_ROWS, are_images, cells_of, is_binary
from pairsift.pairs.readers.rows import NO_COLUMN, Roles, Row, free_split_column, unique
from pairsift.pairs.readers.shards import Sample, read_samples
from pairsift.pairs.readers.tables import PARQUET, files_of, read_rows
from pairsift.pairs.records import Columns, Listing
from pairsift.pairs.splits import SPLIT_WORDS, splits_of_images
from pairsift.pairs.text import as_text
from pairsift.source_path import root_of

Cells = dict[str, object]
LINE = re.compile(r" line (\d+)$")  # in the place of a row


class KeptRow(NamedTuple):
    """A row to write.

    Attributes:
        row: Its position among the rows of the source.
        record: Its first record.
        cells: Its cells by column, as they are written.
        changes: Those of its cells that are not as the source has them.
    """

    row: int
    record: int
    cells: Cells
    changes: Cells


@dataclass(frozen=True)
class Origin:
    """The rows of a source.

    Attributes:
        names: Names of the columns, in the order of the source.
        reading: What the cells of the image and the caption column hold. Each caption and each image of a row is a
            record.
        rows: Function that yields the cells of each row by column, with the types that the source has.
        splits: Split of each record, where the source names it outside its row or a run has drawn it; else None.
        images: Name of each record's image, for images that lie in the source itself; None where these are kept.
        samples: Samples of a source of tar files, with their records; None for other sources.
        files: The files that hold the rows, or the objects of a COCO or Karpathy file; none for other sources.
        reader: Name of the reader of the source; empty for pairs with planted noise.
        starts: First line of each row in its file, from 1; empty where the rows are not lines of text.
        dialect: How a file of separated text marks its fields; None for other sources.
    """

    names: list[str]
    reading: Reading
    rows: Callable[[], Iterator[Cells]]
    splits: list[str] | None = None
    images: list[str] | None = None
    samples: Sequence[Sample] | None = None
    files: Sequence[Path] = ()
    reader: str = ""
    starts: Sequence[int] = ()
    dialect: Dialect | None = None

    @property
    def file(self) -> Path | None:
        """The file that holds the rows; None where none or several do."""
        return self.files[0] if len(self.files) == 1 else None

    @property
    def caption(self) -> str:
        """The name of the caption column."""
        return self.reading.roles.caption

    @property
    def image(self) -> str:
        """The name of the image column."""
        return self.reading.roles.image

    @property
    def split_column(self) -> str | None:
        """The column of the splits. A new name if only the records have splits; None if nothing has."""
        return self.reading.roles.split or (None if self.splits is None else free_split_column(self.names))

    @property
    def all_names(self) -> list[str]:
        """The names of the columns, with a column of splits where only the records have splits."""
        return self.names if self.split_column in (None, *self.names) else [*self.names, str(self.split_column)]

    @property
    def weight_column(self) -> str:
        """A name for a column of weights, which the source does not have."""
        return unique([*self.all_names, "weight"])[-1]

    def kept_rows(
        self, keep: Bools, captions: Mapping[int, str], extra: Mapping[str, list[object]], lists: bool = False
    ) -> Iterator[KeptRow]:
        """Yield the rows with records to keep, in the source's order.

        Every caption and every image of a row is a record. Every other cell stays as it is, and so does a word for the
        split that means the split of the record.

        Args:
            keep: Whether to keep each record, (n,).
            captions: New captions by record.
            extra: New columns, by their names, with a value for each record.
            lists: Whether the captions of a list stay one row, and new columns are lists there; so do those that a
                text lists, where there are no new columns. Otherwise each caption has a row of its own, as text.
        """
        first = 0
        for number, cells in enumerate(self.rows()):
            yield from self.kept_of(number, first, cells, keep, captions, extra, lists)
            first += self.n_records(cells)

    def n_records(self, cells: Cells) -> int:
        """Return the number of records of a row."""
        return len(self.reading.items(cells))

    def kept_of(
        self,
        row: int,
        first: int,
        cells: Cells,
        keep: Bools,
        captions: Mapping[int, str],
        extra: Mapping[str, list[object]],
        lists: bool,
    ) -> Iterator[KeptRow]:
        """Yield the rows to write for one row of the source, whose first record is `first`; see `kept_rows`."""
        roles, items = self.reading.roles, self.reading.items(cells)
        kept = [record for record in range(first, first + len(items)) if keep[record]]
        several_images = isinstance(cells.get(roles.image), list) or len(self.reading.images_of(cells)) > 1
        is_list = lists and isinstance(cells.get(roles.caption), list)
        together = is_list and not several_images and not roles.further
        fits_row = not extra or together or len(items) == 1  # whether new columns have one cell for all that is kept
        if lists and fits_row and kept and (changes := self._as_one_row(cells, first, kept, captions)) is not None:
            columns = {name: [values[record] for record in kept] for name, values in extra.items()}
            changes |= columns if is_list else {name: values[0] for name, values in columns.items()}
            yield KeptRow(row, kept[0], {**cells, **changes}, changes)
            return
        for records in filter(None, [kept] if together else [[record] for record in kept]):
            alone: Cells = {**dict.fromkeys(roles.further)}
            if several_images:
                image = items[records[0] - first].image
                alone[roles.image] = [image] if lists and isinstance(cells.get(roles.image), list) else image
            new = {roles.caption: [captions.get(record, items[record - first].caption) for record in records]}
            new |= {name: [values[record] for record in records] for name, values in extra.items()}
            written = alone | self.changed_cells({**cells, **alone}, records[0])
            written |= new if is_list else {name: values[0] for name, values in new.items()}
            changes = {name: cell for name, cell in written.items() if name not in cells or cell != cells[name]}
            yield KeptRow(row, records[0], {**cells, **written}, changes)

    def _as_one_row(self, cells: Cells, first: int, kept: Sequence[int], captions: Mapping[int, str]) -> Cells | None:
        """Return the changed cells of a row; None where it cannot stay one row in its notation."""
        roles, reading = self.reading.roles, self.reading
        items = reading.items(cells)
        changes = self.changed_cells(cells, kept[0])
        if any(self.changed_cells(cells, record) != changes for record in kept[1:]):
            return None
        left = [(record, items[record - first]) for record in kept]
        wanted = [(item.image, as_text(captions.get(record, item.caption))) for record, item in left]
        if wanted == [(item.image, as_text(item.caption)) for item in items]:
            return changes
        images, n_captions = reading.images_of(cells), len(reading.captions_of(cells))
        if roles.image in changes or (roles.further and len(images) > 1):
            return None
        paired, offsets = reading.paired_in(cells), [record - first for record in kept]
        chosen = dict.fromkeys(offset if paired else offset // n_captions for offset in offsets)
        places = offsets if paired else [offset % n_captions for offset in offsets]
        texts = {place: text for place, (_, text) in zip(places, wanted, strict=True)}
        new: Cells = {roles.image: reading.with_images([images[place] for place in chosen], cells.get(roles.image))}
        new |= reading.with_captions(texts, cells)
        found = [(item.image, as_text(item.caption)) for item in reading.items({**cells, **new})]
        changed = {name: cell for name, cell in new.items() if cell != cells.get(name)}
        return changes | changed if found == wanted else None

    def changed_cells(self, cells: Cells, record: int) -> Cells:
        """Return the cells of a record that are not as its row has them."""
        found: Cells = {}
        column = self.split_column
        if self.splits is not None and column is not None:
            word, split = as_text(cells.get(column)).strip().lower(), self.splits[record]
            if column not in self.names or SPLIT_WORDS.get(word) != SPLIT_WORDS.get(split.lower()):
                found[column] = split
        if self.images is not None and not isinstance(cells.get(self.image), str | int):
            found[self.image] = self.images[record]
        return found


def read_origin(path: Path, reader: str | None, columns: Columns) -> Origin:
    """Read the rows of a source again.

    Of a table, these are the rows of the table. Of any other layout, there is a row for each record, with the columns
    `image` and `caption`, `split` where the source has splits, and the source's other fields.

    Args:
        path: The source.
        reader: Name of the reader; None for the one that fits.
        columns: Options of the source.

    Raises:
        InputError: The source cannot be read.
    """
    path = table_within(path) if reader is None else path
    name = choose(path) if reader is None else reader
    if name == "table":
        return replace(_table(path, columns), reader=name)
    if name == "shards":
        samples, listing = read_samples(path, columns)  # it leaves splits out where none are asked for
        return replace(_listing(listing), samples=samples, reader=name)
    listing = read_listing(path, name, columns)
    if name == "flickr8k":
        origin = _table(path / "captions.csv", columns, path / "images")
        splits = [record.split for record in listing.records] if (path / "splits").is_dir() else None
        return replace(origin, splits=splits, reader=name)
    return replace(_listing(listing), files=(path,) if name in ("coco", "karpathy") else (), reader=name)


def origin_of_pairs(pairs: Pairs) -> Origin:
    """Return pairs as rows with the columns `image`, `caption`, `split` and the source's further columns.

    This is for pairs with planted noise: the rows of the source do not have it.
    """
    names = ["image", "caption", "split"]
    columns = {name: values for name, values in pairs.columns.items() if name not in names}
    split_of = splits_of_images(pairs)

    def rows() -> Iterator[Cells]:
        for pair, (caption, row) in enumerate(zip(pairs.captions, pairs.image_of.tolist(), strict=True)):
            roles = {"image": pairs.image_name(pair), "caption": caption, "split": split_of[row]}
            yield {**roles, **{name: values[pair] for name, values in columns.items()}}

    return Origin([*names, *columns], Reading(Roles("image", "caption", "split")), rows)


def _table(path: Path, columns: Columns, base: Path | None = None) -> Origin:
    files = files_of(path)
    table = read_rows(path, columns)
    reading, _ = read_columns(path, table, columns, columns.folder or base or root_of(path))
    if all(file.suffix.lower() in PARQUET for file in files):
        names = list(dict.fromkeys(name for file in files for name in unique(pq.read_schema(file).names)))
        origin = Origin(names, reading, lambda: _parquet_rows(files, reading.roles), files=files)
    else:
        origin = Origin(table.names, reading, lambda: (row.cells for row in table.rows), files=files)
        if origin.file is not None:
            origin = replace(origin, starts=_starts(table.rows), dialect=table.dialect)
    if origin.split_column is not None or columns.split == NO_COLUMN or not any(row.split for row in table.rows):
        return origin
    return replace(origin, splits=[row.split for row in table.rows for _ in reading.items(row.cells)])


def _starts(rows: list[Row]) -> list[int]:
    """Return the first line of each row in its file, from 1; nothing where the rows are not lines."""
    found = [LINE.search(row.where) for row in rows]
    lines = [int(match[1]) for match in found if match]
    return lines if len(lines) == len(rows) else []


def _parquet_rows(files: Sequence[Path], roles: Roles) -> Iterator[Cells]:
    """Yield the cells of each row of Parquet files: captions as text, and other bytes as they are."""
    captions = {roles.caption, *roles.further}
    for path in files:
        with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            schema = file.schema_arrow
            names = unique(schema.names)
            has_images = any(are_images(kind) or is_binary(kind) for kind in schema.types)
            for batch in file.iter_batches(IMAGE_ROWS if has_images else TEXT_ROWS):
                columns = [
                    column.to_pylist() if name not in captions and is_binary(column.type) else cells_of(column)
                    for name, column in zip(names, batch.columns, strict=True)
                ]
                yield from (dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True))


def _listing(listing: Listing) -> Origin:
    names = ["image", "caption", *(["split"] if listing.split else [])]
    extra = list(dict.fromkeys(name for record in listing.records for name in record.extra if name not in names))

    def rows() -> Iterator[Cells]:
        for record in listing.records:
            roles = dict(zip(names, (record.image, record.caption, record.split), strict=False))
            yield {**roles, **{name: record.extra.get(name, "") for name in extra}}

    return Origin([*names, *extra], Reading(Roles("image", "caption", "split" if listing.split else None)), rows)
