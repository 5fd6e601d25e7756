"""Match probabilities of new pairs by a finished run."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from glob import escape
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from pairsift.arrays import Ints
from pairsift.encode.features import Features
from pairsift.encode.options import EMBEDDINGS
from pairsift.errors import InputError, similar, writing
from pairsift.files import in_turn, write_parquet
from pairsift.match.base import Matcher
from pairsift.pairs.changes import content_marks, file_mark
from pairsift.pairs.pairs import ADDED, SKIPPED, Pairs
from pairsift.run_folder import TRUST
from pairsift.runs.config import Config
from pairsift.runs.features import evidence_features
from pairsift.runs.judge import Judge
from pairsift.runs.judging import judged_tables
from pairsift.runs.prepare import Prepared, SourcePairs, encode
from pairsift.sharding.parts import Share
from pairsift.sharding.source_shards import part_of
from pairsift.table import UNKNOWN, suspects, write_csv

CHUNK = 20_000  # pairs that are judged at once
FORMATS = (".parquet", ".csv")
ALL = Share()


class Scorer:
    """A judge of new pairs by a finished run.

    A part of the new pairs is judged together with the run's pairs, as if these had been in the source and in no split:
    by models that were not trained on them. Their rate of mismatches may differ from the rate of the training pairs.

    Args:
        config: The run's options.
        folder: The run's folder.
        prepared: The run's pairs and features.
        matchers: The trained matchers.
        new: The new pairs: images, or features as those that the run was made of.
        progress: Whether to show progress.

    Raises:
        InputError: The new pairs are of another kind than the run's.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        prepared: Prepared,
        matchers: list[Matcher],
        new: Pairs,
        progress: bool = True,
    ) -> None:
        _require_alike(prepared, new, config)
        self.config, self.folder, self.run, self.matchers = config, folder, prepared, matchers
        self.new, self.progress = new, progress

    @cached_property
    def encoded(self) -> Prepared:
        """The new pairs with their features, which are one entry of the feature cache."""
        new = SourcePairs(self.new, self.new.hash())
        return encode(self.config, self.folder, new, finished=True, progress=self.progress)

    @cached_property
    def _evidence(self) -> tuple[Features, Features]:
        """The features of the run's pairs and of the new pairs that evidence is computed from."""
        cache = self.config.cache
        first, second = (evidence_features(side, cache, self.progress) for side in (self.run, self.encoded))
        return first, second

    def score(self, ids: Ints) -> pa.Table:
        """Return the table of judged pairs for some of the new pairs, by id.

        It has the columns of `Run.pairs` but the groups of duplicates. `pair` is the position of the record in the new
        source; `suggested_from_pair` is a pair of the run, or null where the suggested caption belongs to a new pair.

        Args:
            ids: Ids of the new pairs, ascending, (n,). Pairs and images that cannot be used are not in the table.
        """
        first, seed = len(self.run.pairs), self.config.train.seed
        images = np.unique(self.encoded.pairs.image_of[ids])
        prepared = replace(
            self.run,
            pairs=joined_pairs(self.run.pairs, part_of(self.encoded.pairs, ids)),
            features=_joined_features(self.run.features, self.encoded.features, images, ids),
        )
        evidence = _joined_features(*self._evidence, images, ids)
        judge = Judge(prepared, self.folder, self.config, self.progress, evidence)
        judgement = judge.judge_again(keep=False)
        if judgement.verdicts and judgement.counts_near is False and self.progress:
            print(
                f"captions that read like the right ones cannot be told among {len(ids):,} of the new pairs: "
                "their probabilities are about captions of any other images",
                file=sys.stderr,
            )
        requested = prepared.pairs.ids() >= first
        table, _ = judged_tables(prepared, self.matchers, judgement, self.folder, seed, requested=requested)
        table = table.filter(pa.compute.greater_equal(table["pair"], first)).sort_by("pair")
        source = table["suggested_from_pair"]
        pair, new = ids[table["pair"].to_numpy() - first], self.encoded.pairs
        columns = {
            "pair": pa.array(pair),
            "image": pa.array([new.image_name(row) for row in pair.tolist()]),
            "suggested_from_pair": pa.compute.if_else(pa.compute.less(source, first), source, None),
        }
        for name, values in columns.items():
            table = table.set_column(table.column_names.index(name), name, values)
        return table.drop_columns(["image_duplicates", "caption_duplicates"])


def _joined_features(run: Features, new: Features, images: Ints, ids: Ints) -> Features:
    """Return the features of a run, followed by the features of some images and captions of the new pairs."""
    return Features(run.images.joined(new.images, images), run.texts.joined(new.texts, ids))


def _require_alike(prepared: Prepared, new: Pairs, config: Config) -> None:
    """Raise an error for new pairs of another kind than the run's pairs, or with vectors of other lengths.

    Vectors of captions count only where the run does not encode captions itself.

    Raises:
        InputError: The new pairs cannot be scored by the run.
    """
    own_texts = prepared.texts.kind == "vector" and config.encode.text_encoder not in (None, EMBEDDINGS)
    held, needed = (_contents(pairs, captions=not own_texts) for pairs in (new, prepared.pairs))
    if held != needed:
        raise InputError(
            f"{new.source}: holds {held}, and the run was made of {needed}: give new pairs of the same kind, and "
            "vectors by the same encoders"
        )


def _contents(pairs: Pairs, captions: bool) -> str:
    """Describe the images of a source, and its captions where these count."""
    features = pairs.features
    if features is None:
        return "images"
    words = f"rows of {' x '.join(map(str, features.shape))} for images"
    if not captions:
        return words
    if features.captions is not None:
        return f"{words} and of {features.captions.shape[0]} for captions"
    return f"{words} and captions as {'token ids' if features.ids else 'text'}"


def joined_pairs(pairs: Pairs, new: Pairs) -> Pairs:
    """Return the pairs of a run followed by new pairs in the split `added`, without the run's planted truth.

    A new pair whose image is the file of a judged pair of the run has that image, so that its captions there are
    siblings. Where the images are features, `features` tells the places of the run's images alone.
    """
    usable = np.not_equal(new.split, SKIPPED)
    rows = np.arange(new.n_images) + pairs.n_images
    if pairs.features is None:
        known = {os.path.abspath(pairs.paths[row]): row for row in pairs.images().tolist()}
        rows = np.array(
            [known.get(os.path.abspath(path), row) for path, row in zip(new.paths, rows.tolist(), strict=True)]
        )
    owner = np.where(new.image_of >= 0, rows[new.image_of], -1)
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
        source_captions=None,
        own_names=None,
    )


def score_to(scorer: Scorer, out: Path, share: Share = ALL) -> int | None:
    """Score the new pairs in parts, write the table, and return the number of its rows.

    Finished parts are kept beside the file until it is complete, so that a call that was killed can be repeated. Only
    one call at a time may write a file, see `only_writer`, but for calls with different shares.

    Args:
        scorer: The judge of the new pairs.
        out: The table to write, `.parquet` or `.csv`, which must not exist.
        share: The parts that this call writes; None is returned where parts of others are missing.

    Raises:
        InputError: The file exists already, or its format is unknown.
        WriteError: A file cannot be written.
    """
    key = _key(scorer, CHUNK)
    if (rows := written_rows(out, key, share)) is not None:
        return rows
    parts = out.with_name(f".{out.name}.{key}.parts")
    with writing(parts):
        parts.mkdir(exist_ok=True)
    files = []
    for number, ids in enumerate(_chunks(scorer.new, CHUNK)):
        files.append(parts / f"{number:06d}.parquet")
        if number % share.of == share.number and not files[-1].exists():
            write_parquet(files[-1], scorer.score(ids))
    with in_turn(out.with_name(f".{out.name}.join.lock")):
        if out.exists():  # another share has written it, and removed the parts
            return sum(map(len, _chunks(scorer.new, CHUNK)))
        if not all(file.exists() for file in files):
            return None
        record_rows(out, key, share, sum(map(len, _chunks(scorer.new, CHUNK))))
        table = _join(files, out)
    if scorer.progress:
        print(_flag_line(table), file=sys.stderr)
    for folder in out.parent.glob(f".{escape(out.name)}.{'[0-9a-f]' * 16}.parts"):  # of calls on other pairs too
        shutil.rmtree(folder, ignore_errors=True)
    return len(table)


def require_new_table(out: Path, shared: bool = False) -> None:
    """Raise an error if a table cannot be written here.

    Args:
        out: The table.
        shared: Whether other processes write it too, so that it may be there already.

    Raises:
        InputError: The file exists already, or its format is unknown.
    """
    suffix = out.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"{out}: scores are written as {' or '.join(FORMATS)}; {similar(suffix, FORMATS)}")
    if out.exists() and not shared:
        raise InputError(f"{out} exists already: name another file, or move it away")


def written_rows(out: Path, key: str, share: Share) -> int | None:
    """Return the number of rows of a table that other shares have written; None where it is not written yet.

    Args:
        out: The table.
        key: A text over what it holds.
        share: The share of this call.

    Raises:
        InputError: There is another table already.
    """
    record = _record(out, key)
    if share.of > 1 and out.exists() and record.exists():
        return int(record.read_text(encoding="utf-8"))
    require_new_table(out)
    return None


def record_rows(out: Path, key: str, share: Share, rows: int) -> None:
    """Record which table all shares write, just before it is written, so that a late share finds it done."""
    for record in out.parent.glob(f".{escape(out.name)}.*.done"):
        record.unlink(missing_ok=True)
    if share.of > 1:
        _record(out, key).write_text(f"{rows}", encoding="utf-8")


def _record(out: Path, key: str) -> Path:
    return out.with_name(f".{out.name}.{key}.done")


def _chunks(new: Pairs, chunk: int) -> Iterator[Ints]:
    """Yield the ids of about equally large parts of the usable pairs. All pairs of an image are in the same part."""
    order = np.argsort(new.image_of, kind="stable")
    order = order[(new.image_of[order] >= 0) & np.not_equal(new.split[order], SKIPPED)]
    image = new.image_of[order]
    count = -(-len(order) // chunk)
    start = 0
    for number in range(1, count + 1):
        end = max(len(order) * number // count, start)
        while end < len(order) and image[end] == image[end - 1]:
            end += 1
        if end > start:
            yield np.sort(order[start:end])
        start = end


def _key(scorer: Scorer, chunk: int) -> str:
    """Return 16 hex digits over what the scores depend on: the new pairs with their files, and the run."""
    new, run = scorer.new, scorer.run.pairs
    files = [*sorted((scorer.folder / "model").glob("*")), scorer.folder / TRUST]
    marks = [*content_marks(new), *map(file_mark, files)]
    facts = [new.hash(), run.hash(), chunk, sorted(new.columns.items()), marks]
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _flag_line(table: pa.Table) -> str:
    """Describe in one line how many new pairs are flagged, and how many have no verdict."""
    unknown = table["verdict"].to_pylist().count(UNKNOWN)
    flagged = f"{len(suspects(table)):,} of {len(table):,} new pairs are flagged as mismatched"
    if not unknown:
        return flagged
    return f"{flagged}; {unknown:,} without a verdict: the evidence is too little or too weak, and they are only ranked"


def _join(files: list[Path], out: Path) -> pa.Table:
    """Write the tables of all parts as one, and return it."""
    if not files:
        raise InputError(f"{out}: none of the new pairs can be used")
    tables = [pq.read_table(file) for file in files]
    table = pa.concat_tables(tables, promote_options="permissive").sort_by("pair")
    if out.suffix.lower() == ".csv":
        write_csv(out, table)
    else:
        write_parquet(out, table)
    return table
