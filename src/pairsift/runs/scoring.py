"""Match probabilities of pairs that a run was not made of."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from pairsift.arrays import Ints
from pairsift.audit.spreadsheet import harmless_table
from pairsift.errors import InputError, similar, writing
from pairsift.files import replacing, write_parquet
from pairsift.match import Matcher
from pairsift.pairs import Pairs
from pairsift.pairs.pairs import ADDED, SKIPPED
from pairsift.runs.belief import Believer
from pairsift.runs.config import Config
from pairsift.runs.folder import TRUST
from pairsift.runs.judging import judged_tables
from pairsift.runs.prepare import encode_again

CHUNK = 20_000  # pairs that are judged at once
FORMATS = (".parquet", ".csv")


class Scorer:
    """A judge of new pairs by a finished run.

    A part of the new pairs is judged together with the run's pairs, as if these had been in the source and in no split:
    by models that were not trained on them. Their rate of mismatches may differ from that of the training pairs.

    Args:
        config: The run's options.
        folder: The run's folder.
        pairs: The run's pairs.
        matchers: The trained matchers.
        progress: Whether to show progress.

    Raises:
        InputError: The run was made from features instead of images.
    """

    def __init__(
        self, config: Config, folder: Path, pairs: Pairs, matchers: list[Matcher], progress: bool = True
    ) -> None:
        if pairs.features is not None:
            raise InputError(f"{folder} was made from features: new pairs cannot be encoded as they were")
        self.config, self.folder, self.pairs, self.matchers = config, folder, pairs, matchers
        self.progress = progress

    def score(self, new: Pairs) -> pa.Table:
        """Return the table of judged pairs for new pairs, in their order.

        It has the columns of `Run.pairs` but the groups of duplicates. `pair` is the position of the record in the new
        source; `suggested_from_pair` is a pair of the run, or null where the suggested caption is that of a new pair.

        Args:
            new: The new pairs. Pairs and images that cannot be used are not in the table.

        Raises:
            InputError: The new pairs are features instead of images.
        """
        if new.features is not None:
            raise InputError(f"{new.source}: holds features; a run scores images")
        first = len(self.pairs)
        prepared = encode_again(self.config, self.folder, joined(self.pairs, new), self.progress)
        seed = self.config.train.seed
        belief = Believer(prepared, self.folder, seed, self.config.cache, self.progress).judge_again(write=False)
        ids = prepared.pairs.ids()
        table, _ = judged_tables(prepared, self.matchers, belief, self.folder, seed, requested=ids >= first)
        table = table.filter(pa.compute.greater_equal(table["pair"], first))
        source = table["suggested_from_pair"]
        columns = {
            "pair": pa.compute.subtract(table["pair"], first),
            "suggested_from_pair": pa.compute.if_else(pa.compute.less(source, first), source, None),
        }
        for name, values in columns.items():
            table = table.set_column(table.column_names.index(name), name, values)
        return table.drop_columns(["image_duplicates", "caption_duplicates"]).sort_by("pair")


def joined(pairs: Pairs, new: Pairs) -> Pairs:
    """Return the pairs of a run followed by new pairs in the split `added`, without the run's planted truth."""
    usable = np.not_equal(new.split, SKIPPED)
    owner = np.where(new.image_of >= 0, new.image_of + pairs.n_images, -1)
    columns = {name: [*[""] * len(pairs), *values] for name, values in new.columns.items()}
    return replace(
        pairs,
        names=[*pairs.names, *new.names],
        paths=[*pairs.paths, *new.paths],
        captions=[*pairs.captions, *new.captions],
        image_of=np.concatenate([pairs.image_of, owner]),
        split=np.concatenate([pairs.split, np.where(usable, ADDED, SKIPPED)]),
        columns=columns,
        skipped=(),
        true_image_of=None,
        noise=None,
        seen_in_training=np.concatenate([pairs.trained, np.zeros(len(new), np.bool_)]),
        source_rows=None,
    )


def score_to(scorer: Scorer, new: Pairs, out: Path, chunk: int = CHUNK) -> int:
    """Score new pairs in parts, write the table, and return the number of its rows.

    Finished parts are kept beside the file until it is complete, so that a call that was killed can be repeated.

    Args:
        scorer: The judge.
        new: The new pairs.
        out: The table to write, `.parquet` or `.csv`, which must not exist.
        chunk: Number of pairs that are judged at once.

    Raises:
        InputError: The file exists already, or its format is unknown.
        WriteError: A file cannot be written.
    """
    require_new_table(out)
    parts = out.with_name(f".{out.name}.{_key(scorer, new, chunk)}.parts")
    with writing(parts):
        parts.mkdir(exist_ok=True)
    files = []
    for number, ids in enumerate(_chunks(new, chunk)):
        files.append(parts / f"{number:06d}.parquet")
        if not files[-1].exists():
            table = scorer.score(_part(new, ids))
            table = table.set_column(0, "pair", pa.array(ids[table["pair"].to_numpy()]))
            write_parquet(files[-1], table)
    rows = _join(files, out)
    shutil.rmtree(parts, ignore_errors=True)
    return rows


def require_new_table(out: Path) -> None:
    """Raise an error if a table cannot be written here.

    Raises:
        InputError: The file exists already, or its format is unknown.
    """
    suffix = out.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"{out}: scores are written as {' or '.join(FORMATS)}; {similar(suffix, FORMATS)}")
    if out.exists():
        raise InputError(f"{out} exists already: name another file, or move it away")


def _chunks(new: Pairs, chunk: int) -> Iterator[Ints]:
    """Yield the ids of parts of the usable pairs; all pairs of an image are in the same part."""
    order = np.argsort(new.image_of, kind="stable")
    order = order[(new.image_of[order] >= 0) & np.not_equal(new.split[order], SKIPPED)]
    image = new.image_of[order]
    start = 0
    while start < len(order):
        end = min(start + chunk, len(order))
        while end < len(order) and image[end] == image[end - 1]:
            end += 1
        yield np.sort(order[start:end])
        start = end


def _part(new: Pairs, ids: Ints) -> Pairs:
    """Return these pairs alone, with their images."""
    rows, owner = np.unique(new.image_of[ids], return_inverse=True)
    return replace(
        new,
        names=[new.names[row] for row in rows],
        paths=[new.paths[row] for row in rows],
        captions=[new.captions[pair] for pair in ids],
        image_of=owner.astype(np.int64),
        split=new.split[ids],
        columns={name: [values[pair] for pair in ids] for name, values in new.columns.items()},
    )


def _key(scorer: Scorer, new: Pairs, chunk: int) -> str:
    """Return 16 hex digits over what the scores depend on: the new pairs, their images, and the files of the run."""
    files = [*new.paths, *sorted((scorer.folder / "model").glob("*")), scorer.folder / TRUST]
    stamps = [(str(file), *_stamp(file)) for file in files]
    facts = [new.hash(), scorer.pairs.hash(), chunk, sorted(new.columns.items()), stamps]
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _stamp(file: Path) -> tuple[int, int]:
    """Return the size and the time of change of a file; zeros where there is none."""
    try:
        status = file.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _join(files: list[Path], out: Path) -> int:
    """Write the tables of all parts as one, and return the number of rows."""
    if not files:
        raise InputError(f"{out}: none of the new pairs can be used")
    tables = [pq.read_table(file) for file in files]
    table = pa.concat_tables(tables, promote_options="permissive").sort_by("pair")
    if out.suffix.lower() == ".csv":
        with writing(out), replacing(out) as part:
            pyarrow.csv.write_csv(harmless_table(table), part)
    else:
        write_parquet(out, table)
    return len(table)
