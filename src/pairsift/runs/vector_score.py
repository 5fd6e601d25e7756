"""The scores of many new vectors in files, by a run that was made shard by shard."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

from pairsift.cores import limit_threads
from pairsift.errors import InputError
from pairsift.files import in_turn, make_folder
from pairsift.marker import run_id
from pairsift.pairs.changes import file_mark
from pairsift.pairs.records import Columns
from pairsift.run_folder import SHARDS
from pairsift.runs.config import Config
from pairsift.runs.scoring import record_rows, written_rows
from pairsift.runs.skipped import list_skipped
from pairsift.runs.vector_check import files_of, pairs_of
from pairsift.sharding.engines import Engine, write_parts
from pairsift.sharding.judging import JUDGE, Judging
from pairsift.sharding.parts import Share
from pairsift.sharding.tables import JudgedTables
from pairsift.sharding.vectors import VectorFiles


def score_vectors(
    run: Path,
    config: Config,
    source: Path,
    out: Path,
    columns: Columns,
    share: Share,
    engine: Engine | None = None,
    shown: bool = True,
) -> int | None:
    """Judge a share of new vectors by a run, and write the table where all shards are judged.

    A repeated call goes on where a killed one stopped.

    Args:
        run: The run's folder.
        config: The options of the run.
        source: The folder of the new vectors.
        out: The table to write.
        columns: Columns of the new tables.
        share: The shards of this process.
        engine: What works on the shards; by default this process.
        shown: Whether to show progress.

    Returns:
        The number of rows of the table; None where other shards are missing.

    Raises:
        InputError: The vectors cannot be read, or are not like the run's.
    """
    known_files = files_of(config)
    files = VectorFiles.open(source, columns, known_files.aligned)
    if files.widths != known_files.widths:
        raise InputError(
            "{}: the vectors have {} and {} values, and those of the run {} and {}: use the same encoders".format(
                source, *files.widths, *known_files.widths
            )
        )
    facts = f"{files.mark} {run_id(run)} {file_mark(run / SHARDS / JUDGE)}"
    key = hashlib.sha256(facts.encode()).hexdigest()[:16]
    if (rows := written_rows(out, key, share)) is not None:
        return rows
    folder = out.with_name(f".{out.name}.{key}.parts")
    make_folder(folder)
    known = Judging(run / SHARDS, known_files)
    judging = Judging(folder, files, known)
    lock = out.with_name(f".{out.name}.lock")
    with in_turn(lock):
        if not judging.begun:
            judging.begin(config.train.seed, config.detect)
    limit_threads(config.train.threads)
    write_parts(judging, judging.parts.missing(share), engine, "judging", shown, at_once=True)
    plan = judging.plan
    if judging.parts.missing() and not out.exists():
        return None
    with in_turn(lock):
        if not out.exists():  # the process that came first has written it, and removed the parts
            new = replace(config, source=str(source))
            list_skipped(pairs_of(new, files, plan), out.with_suffix(".skipped.csv"), shown)
            record_rows(out, key, share, len(plan.ids))
            JudgedTables(files, plan, judging.result(), (known_files, known.plan)).write_scores(out)
            shutil.rmtree(folder, ignore_errors=True)
    return len(plan.ids)
