"""The tables of a run on vectors in files, written some rows at a time."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from pairsift.arrays import Array, Ints, first_numbers, hashes
from pairsift.detect import shards
from pairsift.errors import writing
from pairsift.files import replacing
from pairsift.mismatches import Mismatches
from pairsift.pairs.pairs import ADDED
from pairsift.pairs.readers.embeddings import IMAGE_PLACE
from pairsift.sharding.judging import Plan
from pairsift.sharding.vectors import VectorFiles
from pairsift.spreadsheet import harmless_table, keep_filled_in
from pairsift.suggest.table import SCHEMA
from pairsift.table import UNKNOWN, VAGUE

ROWS = 200_000  # rows that are in memory at once
SUGGESTED = 1_000  # suspects among more than 50,000 pairs that get a suggestion, the worst ones

Blocks = Iterator[pa.Table]


class JudgedTables:
    """The tables of judged pairs.

    Args:
        files: The source.
        plan: What was judged.
        result: The verdict.
        known: The files and the plan of the pairs whose captions are suggested; None for these pairs.
    """

    def __init__(
        self, files: VectorFiles, plan: Plan, result: Mismatches, known: tuple[VectorFiles, Plan] | None = None
    ) -> None:
        self._files, self._plan, self._result = files, plan, result
        self._known_files, self._known = (files, plan) if known is None else known
        limit = None if max(len(result), len(self._known.ids)) <= shards.LEARNED else SUGGESTED
        worst = result.suspects(limit)
        suggested = worst.filter(pc.is_valid(worst["suggested_from_pair"])).sort_by("pair")
        names = ("pair", "suggested_from_pair", "suggestion_probability")
        self._suggested, self._source, self._probability = (suggested[name].to_numpy() for name in names)

    def write_pairs(self, path: Path) -> None:
        """Write the table of `pairsift.table.pair_table`, worst first; copies and equal captions are not numbered."""
        result = self._result
        order = np.argsort(result.match_probability, kind="stable")
        write_blocks(path, map(self._pairs_in, _blocks(order)))

    def write_scores(self, path: Path) -> None:
        """Write the table of new pairs in their order, as CSV or Parquet by the name of the file."""
        tables = (
            self._pairs_in(rows).drop_columns(["image_duplicates", "caption_duplicates"])
            for rows in _all_blocks(len(self._result))
        )
        if path.suffix.lower() == ".csv":
            write_csv_blocks(path, tables)
        else:
            write_blocks(path, tables)

    def write_suspects(self, path: Path) -> None:
        """Write the flagged pairs as CSV, worst first; a table that a person wrote decisions into is kept."""
        result = self._result
        flagged = np.flatnonzero(result.is_mismatch)
        order = flagged[np.argsort(result.match_probability[flagged], kind="stable")]
        keep_filled_in(path)
        write_csv_blocks(path, map(self._pairs_in, _blocks(order)), marked=True)

    def write_suggestions(self, path: Path) -> None:
        """Write the suggested captions as `pairsift.suggest.table.suggestion_table` does."""
        ids, n = self._plan.ids, len(self._suggested)
        columns = ids[self._suggested], np.zeros(n, np.bool_), ids[self._source], self._probability.astype(np.float32)
        write_blocks(path, iter([pa.table([*columns, np.ones(n, np.bool_)], schema=SCHEMA)]))

    def write_trust(self, path: Path) -> None:
        """Write the fold of each pair, its match probability and what each kind of evidence says."""
        judgement, plan = self._result.judgement, self._plan

        def block(rows: Ints) -> pa.Table:
            columns: dict[str, Array] = {"pair": plan.ids[rows], "fold": judgement.fold[rows]}
            columns |= {"match_probability": judgement.probability[rows]}
            return pa.table(columns | {name: values[rows] for name, values in judgement.detectors.items()})

        write_blocks(path, map(block, _all_blocks(len(plan.ids))))

    def _pairs_in(self, rows: Ints) -> pa.Table:
        """Return the rows of `pairs.parquet` of some pairs."""
        plan, files, result = self._plan, self._files, self._result
        ids, place = plan.ids[rows], np.searchsorted(self._suggested, rows)
        has = np.isin(rows, self._suggested)
        captions, source, probability = (
            np.full(len(rows), None, object),
            np.zeros(len(rows), np.int64),
            np.zeros(len(rows)),
        )
        source[has] = self._known.ids[self._source[place[has]]]
        probability[has] = self._probability[place[has]]
        captions[has] = self._known_files.captions.at(source[has])
        flagged = result.is_mismatch[rows]
        doubtful = np.where(result.match_probability[rows] < 0.5, VAGUE, "clean")  # those that are not flagged
        given = np.where(flagged, "mismatched", doubtful)
        nothing = pa.nulls(len(rows), pa.int64())
        return pa.table(
            {
                "pair": pa.array(ids),
                "image": files.names(ids).cast(pa.string()),
                "given_caption": pa.array(files.captions.at(ids), pa.string()),
                "split": pa.repeat("train" if len(plan.learned) else ADDED, len(rows)),
                "match_probability": pa.array(result.match_probability[rows]),
                "is_mismatch": pa.array(flagged),
                "verdict": pa.array(given if result.judgement.verdicts else np.full(len(rows), UNKNOWN), pa.string()),
                "suggested_caption": pa.array(captions, pa.string()),
                "suggested_from_pair": pa.array(source, mask=~has),
                "suggestion_probability": pa.array(probability, mask=~has),
                "image_duplicates": nothing,
                "caption_duplicates": nothing,
            }
        )


def write_source(files: VectorFiles, plan: Plan, path: Path) -> None:
    """Write the record of the pairs as `pairsift.pairs.changes.write_stored_pairs` does.

    Args:
        files: The source.
        plan: What is judged of it.
        path: The file.
    """
    usable = np.zeros(len(files), np.bool_)
    usable[plan.ids] = True
    image_row = _named_images(files, plan)
    starts = np.cumsum([0, *files.sizes])
    owner = [os.fsencode(part.images.relative_to(files.path)) for part in files.parts]
    root, places = files.images_root, files.image_files()
    shape = "{} with {} for captions".format(*files.widths)
    facts = {"shape": shape, "hash": "", "noise": "", "images": root}

    def block(rows: Ints) -> pa.Table:
        of = np.searchsorted(starts, rows, side="right") - 1
        columns = {
            "pair": pa.array(rows),
            "image": files.names(rows).cast(pa.string()),
            "file": pa.array(owner, pa.binary()).take(pa.array(of)),
            **{f"image_{name}": column.array_at(rows).cast(IMAGE_PLACE[name]) for name, column in places.items()},
            "caption": pa.array(files.captions.at(rows), pa.string()),
            "split": pa.array(np.where(usable[rows], "train", "skipped")),
            "image_row": pa.array(image_row[rows]),
            "planted_row": pa.array(image_row[rows]),
            "trained": pa.array(usable[rows]),
            "mark": pa.repeat("", len(rows)),
        }
        return pa.table(columns).replace_schema_metadata(facts)

    write_blocks(path, map(block, _all_blocks(len(files))))


def _named_images(files: VectorFiles, plan: Plan) -> Ints:
    """Return the number of each row's image, where images with one vector and two names are two, (n,)."""
    number = np.arange(len(files))
    if not files.roles.image:
        return number
    number += int(plan.image_of.max(initial=-1)) + 1  # those that cannot be used have their own
    number[plan.ids] = plan.image_of
    for rows in _all_blocks(len(files)):
        number[rows] = hashes(zip(files.names(rows).to_pylist(), number[rows].tolist(), strict=True))
    return first_numbers(number)


@contextmanager
def mapped_table(path: Path, folder: Path) -> Iterator[pa.Table]:
    """Yield a Parquet file's table from a mapped copy, whose pages the system can take back.

    Args:
        path: The file.
        folder: The folder of the copy.

    Raises:
        WriteError: The copy cannot be written.
    """
    copy = folder / f"{path.stem}.arrow"
    try:
        with (
            writing(copy),
            replacing(copy) as part,
            pq.ParquetFile(path) as file,
            pa.ipc.new_file(part, file.schema_arrow) as writer,
        ):
            for batch in file.iter_batches(ROWS):
                writer.write_batch(batch)
        with pa.memory_map(str(copy)) as mapped:
            yield pa.ipc.open_file(mapped).read_all()
    finally:
        copy.unlink(missing_ok=True)


def _all_blocks(count: int) -> Iterator[Ints]:
    for start in range(0, max(1, count), ROWS):
        yield np.arange(start, min(start + ROWS, count))


def _blocks(rows: Ints) -> Iterator[Ints]:
    for start in range(0, max(1, len(rows)), ROWS):
        yield rows[start : start + ROWS]


def write_csv_blocks(
    path: Path, blocks: Blocks, marked: bool = False, form: Callable[[pa.Table], pa.Table] = harmless_table
) -> None:
    """Write tables one after the other as CSV.

    Args:
        path: The file.
        blocks: The tables.
        marked: Whether a byte order mark comes first.
        form: Function that makes a table one of texts and numbers; by default a harmless one for spreadsheets.

    Raises:
        WriteError: It cannot be written; what was there stays.
    """
    first = form(next(blocks))
    with writing(path), replacing(path) as part, part.open("wb") as stream:
        stream.write(codecs.BOM_UTF8 * marked)
        with pyarrow.csv.CSVWriter(stream, first.schema) as writer:
            writer.write_table(first)
            for table in blocks:
                writer.write_table(form(table))


def write_blocks(path: Path, blocks: Blocks) -> None:
    """Write tables one after the other as one.

    Raises:
        WriteError: It cannot be written; what was there stays.
    """
    first = next(blocks)
    with writing(path), replacing(path) as part, pq.ParquetWriter(part, first.schema) as writer:
        writer.write_table(first)
        for table in blocks:
            writer.write_table(table)
