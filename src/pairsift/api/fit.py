"""A whole run: read, encode, train, evaluate, audit."""

from __future__ import annotations

import platform
import resource
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pairsift.api.belief import Believer
from pairsift.api.choice import JOINED, ngrams_help
from pairsift.api.config import CHOICES, UNKEPT, Config, flattened
from pairsift.api.folder import (
    CHECKPOINT,
    CONFIG,
    FRONT,
    METRICS,
    NGRAMS,
    SKIPPED,
    SOURCE,
    VOCABULARY,
    finished,
    weights,
)
from pairsift.api.prepare import (
    Prepared,
    cache_of,
    check,
    matcher_factory,
    prepare,
    skipped_line,
    write_json,
    write_skipped,
    write_text,
)
from pairsift.api.run import Run
from pairsift.api.wording import typed
from pairsift.audit import write_division
from pairsift.cores import limit_threads
from pairsift.errors import InputError, WriteError, writing
from pairsift.pairs import write_kept
from pairsift.retrieve.codes import evaluate
from pairsift.train.checkpoint import write_tensors
from pairsift.train.loop import Job, Trainer, mixed
from pairsift.train.options import TrainOptions

MAY_DIFFER = ("out", *UNKEPT, "device", "threads", "checkpoint_minutes", "cache")


def fit(source: str | Path, options: Mapping[str, object] | None = None, progress: bool = True) -> Run:
    """Train on image-caption pairs, judge them, and leave a run's folder.

    Args:
        source: A CSV, TSV, JSON, JSON-lines or Parquet file, or a folder.
        options: Options by their names on the command line: `{"out": "runs/a", "method": "pc2", "noise": 0.4}`.
        progress: Whether to show progress bars.

    Raises:
        InputError: The source or an option cannot be used.
    """
    return fit_config(Config.resolve({"source": str(source), **(options or {})}), progress)


def fit_config(config: Config, progress: bool = True) -> Run:
    """`fit` for resolved options."""
    check(config)
    options = config.group(TrainOptions)
    folder = out_folder(config)
    claim(folder, config)
    limit_threads(options.threads)
    began = time.monotonic()
    config, prepared = begin(folder, config, progress)
    if progress and (line := skipped_line(prepared.pairs, folder / SKIPPED)):
        print(line, file=sys.stderr)
    encoded = time.monotonic()
    factory = matcher_factory(config, prepared)
    believer = Believer(prepared, folder, options.seed, cache_of(config), progress)
    belief = believer.train(options)
    judged = time.monotonic()
    known = believer.prior(belief), believer.likeness()
    parts = config.method(), config.ranking(), options, folder, progress
    job = Job(prepared.pairs, prepared.features, factory, *parts, *known)
    trainer = Trainer(job)
    trainer.run(resume=bool(config["resume"]))
    for k, network in enumerate(trainer.networks):
        write_tensors(weights(folder, k), network.state_dict())
    if (verdicts := job.method.verdicts()) is not None:
        write_division(job.method.setting.ids, verdicts, folder)
    matchers = [network.matcher for network in trainer.networks]
    with mixed(trainer.device, options):
        recall = {name: evaluate(matchers, prepared.features, prepared.pairs, name) for name in ("test", "dev")}
    facts = {"best": {"epoch": trainer.at.best_epoch, "dev_rsum": trainer.at.best_rsum}}
    seconds = {"encode": round(encoded - began, 1), "evidence": round(judged - encoded, 1)}
    seconds["train"] = round(trainer.at.seconds, 1)
    write_json(folder / METRICS, {**recall, **facts, **facts_of(config, prepared), "seconds": seconds})
    run = Run(folder, prepared, progress)
    run.audit(belief)
    write_json(folder / METRICS, {**run.metrics, "peak_memory_gb": round(_peak(), 2)})
    (folder / CHECKPOINT).unlink(missing_ok=True)
    (folder / "model" / "best.safetensors").unlink(missing_ok=True)
    return run


def out_folder(config: Config) -> Path:
    """The run's folder: `out`, or runs/<source>-<method>."""
    return Path(config["out"] or Path("runs") / f"{Path(config['source']).resolve().stem}-{config['method']}")


def claim(folder: Path, config: Config) -> None:
    """Make sure that the folder is free, or holds the unfinished run to go on with."""
    old = folder / CONFIG
    if config["resume"]:
        if not old.exists():
            raise InputError(f"{folder} holds no run to resume: leave --resume out")
        before, now = flattened(Config.parse([f"--config={old}"]).options), flattened(config.options)
        for name in dict.fromkeys(("source", *CHOICES, *before)):  # what decides about other options comes first
            chosen = name == "text_encoder" and now.get(name) is None and before.get(name) == JOINED
            if name not in MAY_DIFFER and now.get(name) != before.get(name) and not chosen:
                raise InputError(
                    f"{folder} was begun with {typed(name, before.get(name))}, not {typed(name, now.get(name))}: "
                    "resume with the same options"
                )
        if finished(folder):
            raise InputError(f"{folder} holds a finished run: there is nothing to resume")
    elif old.exists() and not config["overwrite"]:
        raise InputError(f"{folder} holds a run already: give --resume, --overwrite or another --out")
    elif old.exists():
        with writing(folder):
            shutil.rmtree(folder)
    elif folder.is_file() or (folder.is_dir() and any(file.name != f".{CONFIG}.part" for file in folder.iterdir())):
        raise InputError(f"{folder} holds other things: give another --out")


def begin(folder: Path, config: Config, progress: bool) -> tuple[Config, Prepared]:
    """Write the options, so that from now on `--resume` goes on, then read and encode, and write what was read.

    A source or an option that cannot be used leaves no folder behind. Where no text encoder is named, the captions
    decide whether n-grams go beside `wordllama`.

    Returns:
        The options with the text encoder, and what was read.

    Raises:
        InputError: It cannot be used.
        WriteError: A file cannot be written; the folder stays.
    """
    resumed = (folder / CONFIG).exists()
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / CONFIG, config.text())
    with writing(folder):
        (folder / "model").mkdir(exist_ok=True)
    try:
        prepared = prepare(config, folder, progress)
        if _open_texts(config, prepared) and ngrams_help(prepared, int(config["seed"])):
            config = config.having("text_encoder", JOINED)
            write_text(folder / CONFIG, config.text())
            if progress:
                print(f"text encoder: {JOINED}, which tells held-out pairs apart better", file=sys.stderr)
            prepared = prepare(config, folder, False)
    except WriteError:
        raise
    except InputError:
        if not resumed:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    write_kept(prepared.pairs, prepared.split, folder / SOURCE)
    write_skipped(prepared.pairs, folder / SKIPPED)
    if prepared.vocabulary is not None:
        write_text(folder / VOCABULARY, prepared.vocabulary.to_json())
    if prepared.ngrams is not None:
        with writing(folder / NGRAMS):
            prepared.ngrams.save(folder / NGRAMS)
    if prepared.front is not None:
        with writing(folder / FRONT):
            prepared.front.save(folder / FRONT)
    return config, prepared


def _open_texts(config: Config, prepared: Prepared) -> bool:
    """Whether the captions may decide about the text encoder."""
    vectors = prepared.features.images.values, prepared.features.texts.values
    return config["text_encoder"] is None and prepared.texts.name == "wordllama" and all(v.ndim == 2 for v in vectors)


def facts_of(config: Config, prepared: Prepared) -> dict[str, Any]:
    """What the numbers were made of and with."""
    pairs = prepared.pairs
    names, counts = np.unique(pairs.split, return_counts=True)
    packages = ["pairsift", "torch", "numpy", "scikit-learn", "pillow"]
    packages += ["transformers"] if prepared.front is not None else []
    return {
        "pairs": dict(zip(names.tolist(), counts.tolist(), strict=True)),
        "data": {"source": pairs.source, "hash": prepared.hash, "taken": pairs.taken, "skipped": len(pairs.skipped)},
        "noise": None if pairs.noise is None else asdict(pairs.noise),
        "seed": config["seed"],
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "machine": {"processor": platform.machine(), "threads": torch.get_num_threads()},
    }


def _peak() -> float:
    """Largest resident memory of this process so far, in GB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
