"""The check of many vectors in files, by one process or by several that share the run's folder."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pairsift.cores import limit_threads, peak_memory
from pairsift.encode.options import EMBEDDINGS
from pairsift.errors import InputError
from pairsift.files import in_turn, make_folder, remove_parts, write_json, write_text
from pairsift.marker import read_marker, require_own, write_marker
from pairsift.mismatches import Mismatches
from pairsift.pairs.pairs import Pairs, Skip
from pairsift.pairs.precomputed import Precomputed
from pairsift.pairs.readers.embeddings import is_embeddings
from pairsift.pairs.records import Columns
from pairsift.progress import begin_stage, write
from pairsift.report.report import write_report
from pairsift.run_folder import (
    CONFIG,
    METRICS,
    PAIRS_FILE,
    REPORT,
    SHARDS,
    SKIPPED,
    SOURCE,
    TRUST,
    finished,
    holds_run,
    weights,
)
from pairsift.runs.caveats import rate_of
from pairsift.runs.claim import require_same
from pairsift.runs.config import Config, read_config
from pairsift.runs.judging import MANY
from pairsift.runs.skipped import skipped_line, write_skipped
from pairsift.sharding.engines import Engine, write_parts
from pairsift.sharding.judging import JUDGE, Judging, Plan
from pairsift.sharding.parts import Share
from pairsift.sharding.tables import JudgedTables, mapped_table, write_source
from pairsift.sharding.vectors import VectorFiles
from pairsift.suggest.table import SUGGESTIONS_FILE
from pairsift.table import SUSPECTS_FILE
from pairsift.train.checkpoint import write_tensors


def has_judge(folder: Path) -> bool:
    """Return whether a run keeps what its judge has learned, as one does that was made shard by shard."""
    return (folder / SHARDS / JUDGE).exists()


def is_large(config: Config) -> bool:
    """Return whether a check is made shard by shard: of many vectors, with no option that needs them all at once."""
    source = Path(config.source)
    if not config.method.starts_linear or not is_embeddings(source) or _without(config):
        return False
    try:
        return len(files_of(config)) > MANY
    except InputError:
        return False  # the reader of vectors in memory says what is wrong


def _without(config: Config) -> str:
    """Return the option that a check by shards does not take; empty where there is none."""
    data = config.data
    named = {"noise": data.noise, "noise-index": data.noise_index, "captions-per-image": data.captions_per_image}
    named |= {
        "sample": data.sample,
        "dev": data.dev,
        "test": data.test,
        "verified": data.verified,
        "verified-column": data.verified_column,
    }
    named |= {"mismatches": data.mismatches == "near", "id-column": data.id_column}
    named |= {
        "reader": data.reader not in (None, "embeddings"),
        "image-encoder": config.encode.image_encoder,
        "text-encoder": config.encode.text_encoder not in (None, EMBEDDINGS),
    }
    return next((f"--{name}" for name, value in named.items() if value), "")


def files_of(config: Config) -> VectorFiles:
    """Return the files of the vectors that a run is about.

    Raises:
        InputError: They cannot be read.
    """
    columns = Columns(config.data.image_column, config.data.caption_column)
    return VectorFiles.open(Path(config.source), columns, config.starts_aligned)


def check_share(config: Config, share: Share, engine: Engine | None = None, shown: bool = True) -> bool:
    """Work on a share of the shards of a check, and end the check where all parts are written.

    The first process begins the run and learns; the others wait for it. A repeated command goes on where a killed one
    stopped.

    Args:
        config: The run's options.
        share: The shards of this process.
        engine: Function that writes the parts of shards; by default this process does, one after the other.
        shown: Whether to show progress.

    Returns:
        Whether the check is finished.

    Raises:
        InputError: The source or an option cannot be used, or the folder holds another run.
    """
    if option := _without(config):
        raise InputError(f"{option} cannot be used with --shard and --ray: leave it or them out")
    files = files_of(config)
    folder = config.folder
    require_own(folder, "run")
    make_folder(folder)
    if read_marker(folder) is None:  # before all else, so that the folder is ours wherever a process is killed
        write_marker(folder, "run")
    if finished(folder) and not has_judge(folder):
        require_same(folder, read_config(folder / CONFIG), config)
        return True  # made by one process, with all in memory
    make_folder(folder / SHARDS)
    judging = Judging(folder / SHARDS, files)
    with _alone(folder):
        if not holds_run(folder):
            write_text(folder / CONFIG, config.text())
        require_same(folder, read_config(folder / CONFIG), config)
        if finished(folder):
            judging.require_same()
            return True
        learn(config, folder, files)
    write_parts(judging, judging.parts.missing(share), engine, "judging", shown, at_once=True)
    missing = len(judging.parts.missing())
    if missing:
        if shown:
            write(f"share {share} is done; {missing:,} of {judging.parts.count:,} shards are left to the others")
        return False
    with _alone(folder):
        if not finished(folder):
            finish(config, judging, shown=shown)
    return True


def _alone(folder: Path) -> AbstractContextManager[None]:
    """Let one process at a time begin or end a check."""
    return in_turn(folder / SHARDS / ".lock", "another process is at this step: waiting for it")


def check_large(config: Config, shown: bool = True) -> None:
    """Check many vectors in a folder that this process alone writes, from the start or from where it stopped.

    Args:
        config: The run's options.
        shown: Whether to show progress.

    Raises:
        InputError: The source cannot be used.
    """
    folder, files = config.folder, files_of(config)
    make_folder(folder / SHARDS)
    write_text(folder / CONFIG, config.text())
    started = time.monotonic()
    learn(config, folder, files)
    judging, learned = Judging(folder / SHARDS, files), time.monotonic()
    write_parts(judging, judging.parts.missing(), None, "judging", shown, at_once=True)
    judged = time.monotonic()
    seconds = {"learn": round(learned - started, 1), "judge": round(judged - learned, 1)}
    finish(config, judging, seconds, shown)


def learn(config: Config, folder: Path, files: VectorFiles) -> None:
    """Let the judge learn, unless it has."""
    judging = Judging(folder / SHARDS, files)
    limit_threads(config.train.threads)
    if judging.begun:
        return
    begin_stage("judging", f"learning from {files.path}")
    judging.begin(config.train.seed, config.detect)


def finish(config: Config, judging: Judging, seconds: Mapping[str, float] | None = None, shown: bool = True) -> None:
    """Write the run by all parts.

    Args:
        config: The run's options.
        judging: The judging, of which all parts are written.
        seconds: How long the stages before took; None where it is not known.
        shown: Whether to tell how many pairs were skipped.
    """
    folder, started = config.folder, time.monotonic()
    pairs = pairs_of(config, judging.files, judging.plan)
    write_skipped(pairs, folder / SKIPPED)
    if shown and (line := skipped_line(pairs, folder / SKIPPED)):
        write(line)
    write_source(judging.files, judging.plan, folder / SOURCE)
    metrics = _write_judged(config, judging, pairs)
    metrics["seconds"] = {**(seconds or {}), "finish": round(time.monotonic() - started, 1)}
    with mapped_table(folder / PAIRS_FILE, folder / SHARDS) as table:
        write_report(folder / REPORT, pairs, table, {**metrics, "encoders": _encoders(config)}, [], config.tree())
    remove_parts(folder / SHARDS)  # of killed workers
    metrics["peak_memory_gb"] = round(peak_memory(), 2)
    write_json(folder / METRICS, metrics)  # last: with it, the run is finished


def _write_judged(config: Config, judging: Judging, pairs: Pairs) -> dict[str, Any]:
    """Write the tables and the linear model, and return the metrics."""
    folder, result = config.folder, judging.result()
    tables = JudgedTables(judging.files, judging.plan, result)
    (folder / "model").mkdir(exist_ok=True)
    matcher = {f"matcher.{name}": value for name, value in result.matcher.state_dict().items()}
    write_tensors(weights(folder, 0), matcher)
    tables.write_trust(folder / TRUST)
    tables.write_suggestions(folder / SUGGESTIONS_FILE)
    tables.write_suspects(folder / SUSPECTS_FILE)
    tables.write_pairs(folder / PAIRS_FILE)
    return _metrics(config, pairs, result)


def _encoders(config: Config) -> dict[str, str]:
    return {"image_encoder": "precomputed features", "text_encoder": EMBEDDINGS}


def pairs_of(config: Config, files: VectorFiles, plan: Plan) -> Pairs:
    """Return the pairs without what fills memory: names and captions stay in their files."""
    n = len(files)
    image_of = np.full(n, -1, np.int64)
    image_of[plan.ids] = plan.image_of
    split = np.broadcast_to(np.array("train", "<U7"), n).copy() if plan.broken else np.broadcast_to("train", n)
    if plan.broken:
        split[[int(row) for row in plan.broken]] = "skipped"
    skips = tuple(Skip(files.place_of(int(row)), why, int(row)) for row, why in plan.broken.items())
    features = Precomputed(tuple(part.images for part in files.parts), (files.widths[0],), plan.image_of)
    return Pairs(
        source=config.source,
        names=[],
        paths=[],
        captions=files.captions,  # type: ignore[arg-type]
        image_of=image_of,
        split=split,
        description=f"embeddings: {len(files):,} rows of {files.widths[0]} and of {files.widths[1]} numbers",
        skipped=skips,
        features=features,
    )


def _metrics(config: Config, pairs: Pairs, result: Mismatches) -> dict[str, Any]:
    """Return the content of `metrics.json`."""
    judgement = result.judgement
    skipped = len(pairs.skipped)
    counts = {"skipped": skipped} if skipped else {}
    packages = ("pairsift", "torch", "numpy", "scikit-learn")
    return {
        "best": {"epoch": -1, "dev_rsum": -1.0, "model": "untrained"},
        "pairs": {**counts, "train": len(result)},
        "data": {"source": pairs.source, "hash": "", "description": pairs.description, "skipped": skipped},
        "noise": None,
        "seed": config.train.seed,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "machine": {"processor": platform.machine(), "threads": torch.get_num_threads()},
        "verdicts_given": judgement.verdicts,
        "noise_rate": rate_of(judgement),
        "expected_auroc": {"any": judgement.auroc, "near": judgement.near_auroc},
        "counts_near": None,
        "warnings": result.warnings,
    }
