"""A whole run: read, encode, train, evaluate, audit."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from pairsift.cores import limit_threads, rank_and_count
from pairsift.detect import Judgement
from pairsift.detect.options import DetectOptions
from pairsift.encode.options import EncodeOptions
from pairsift.encode.registry import TEXT_ENCODER
from pairsift.errors import InputError, writing
from pairsift.files import make_folder, write_text
from pairsift.loss.ranking import AnyRankingLoss
from pairsift.match import MATCHER
from pairsift.match.base import Matcher
from pairsift.match.two_tower import LINEAR
from pairsift.methods.base import Method, Sorting
from pairsift.options import Options
from pairsift.pairs.changes import read_stored_pairs, write_stored_pairs
from pairsift.pairs.options import DataOptions
from pairsift.pairs.pairs import Pairs
from pairsift.processes import Processes, joined
from pairsift.progress import begin_stage, run_clock, write
from pairsift.run_folder import (
    CONFIG,
    FRONT,
    METHOD_STATE,
    NGRAMS,
    SKIPPED,
    SOURCE,
    VOCABULARY,
    weights,
)
from pairsift.runs.claim import Claim, claimed
from pairsift.runs.config import Config, check_folder, configure, read_config
from pairsift.runs.features import ngrams_help
from pairsift.runs.job import job_of
from pairsift.runs.judge import Judge, of_training
from pairsift.runs.prepare import Prepared, prepare, require_possible
from pairsift.runs.recall import pictures, recall_metrics
from pairsift.runs.run import Run
from pairsift.runs.skipped import skipped_line, unused_line, write_skipped
from pairsift.runs.text_encoding import WITH_NGRAMS
from pairsift.runs.vector_check import check_large, is_large
from pairsift.steps import Prior
from pairsift.table import write_division
from pairsift.train.apart import Apart, trainer_of
from pairsift.train.batches import Likeness
from pairsift.train.checkpoint import write_tensors
from pairsift.train.loop import Trainer
from pairsift.train.options import TrainOptions
from pairsift.train.precision import autocast_context
from pairsift.train.record import write_state

Resume = bool | Literal["unchanged"]


def fit(  # noqa: PLR0913
    source: str | Path | Sequence[str | Path],
    *,
    method: str | Method | type[Method] | None = None,
    matcher: str | type[Matcher] | Options = MATCHER,
    loss: str | AnyRankingLoss | None = None,
    data: DataOptions | None = None,
    encode: EncodeOptions | None = None,
    train: TrainOptions | None = None,
    out: str | Path | None = None,
    preset: str | None = None,
    epochs: int | None = None,
    detect: DetectOptions | None = None,
    resume: Resume = False,
    overwrite: bool = False,
    progress: bool = True,
) -> Run:
    """Train on image-caption pairs, judge them, and write a run's folder.

    Method, matcher and loss are names or objects: `method="pc2"`, or `method=PC2(weights=PC2Weights(entropy=1))`.
    Values that are set on an object are kept; the other values follow the method's preset for the matcher.

    Args:
        source: A CSV, TSV, JSON, JSON-lines or Parquet file, or a folder; or several tables or tar files, as a pattern
            such as `data/*.parquet` or as a list.
        method: A method's name, class or object, which decides how doubtful pairs are trained on; by default
            `sift` for `two_tower`, else `crossfit`.
        matcher: A matcher's name, class or options.
        loss: The ranking loss; by default the matcher's own or the preset's.
        data: Options of the source and of planted noise.
        encode: Options of the frozen encoders.
        train: Options of the training loop.
        out: The run's folder; by default runs/<source>-<method>.
        preset: Name of the preset; by default the preset that suits the matcher.
        epochs: Total number of epochs. The method's phases are scaled to it, and each that it needs keeps at least one.
        detect: Options of the detector, which finds the mismatched pairs; by default as they are shipped.
        resume: Whether to continue an unfinished run in the folder; `"unchanged"` to continue it with the pairs that
            are as they were, where the source has changed since.
        overwrite: Whether to replace a run in the folder. One that holds decisions is set aside under another name.
        progress: Whether to show progress bars.

    Returns:
        The finished run.

    Raises:
        InputError: The source or an option cannot be used.
    """
    parts: dict[str, Any] = {"method": method, "matcher": matcher, "loss": loss, "data": data, "encode": encode}
    config = configure(source, train=train, out=out, preset=preset, epochs=epochs, detect=detect, **parts)
    return fit_config(config, resume, overwrite, progress)


def check(  # noqa: PLR0913
    source: str | Path | Sequence[str | Path],
    *,
    data: DataOptions | None = None,
    encode: EncodeOptions | None = None,
    train: TrainOptions | None = None,
    out: str | Path | None = None,
    detect: DetectOptions | None = None,
    resume: Resume = False,
    overwrite: bool = False,
    progress: bool = True,
) -> Run:
    """Judge image-caption pairs without training, and write a run's folder.

    The folder can be opened, reviewed, exported, searched and audited like the folder of a trained run. Its matcher is
    a linear model of the training pairs, or the cosine where encoders share a space.

    Args:
        source: A CSV, TSV, JSON, JSON-lines or Parquet file, or a folder; or several tables or tar files, as a pattern
            such as `data/*.parquet` or as a list.
        data: Options of the source and of planted noise.
        encode: Options of the frozen encoders.
        train: The seed, the device and the number of threads; nothing is trained.
        out: The run's folder; by default runs/<source>-check.
        detect: Options of the detector; by default as they are shipped.
        resume: Whether to continue an unfinished check in the folder, as in `fit`.
        overwrite: Whether to replace a run in the folder. One that holds decisions is set aside under another name.
        progress: Whether to show progress bars.

    Returns:
        The finished run.

    Raises:
        InputError: The source or an option cannot be used.
    """
    folder = check_folder(source) if out is None else out
    options: dict[str, Any] = {"data": data, "encode": encode, "train": train, "out": folder, "detect": detect}
    return fit_config(configure(source, method="linear", matcher=LINEAR, **options), resume, overwrite, progress)


def fit_config(config: Config, resume: Resume = False, overwrite: bool = False, progress: bool = True) -> Run:
    """Run `fit` with resolved options, in one process or in all that torchrun has started."""
    if rank_and_count()[1] > 1 and is_large(config):
        raise InputError(f"{config.source}: torchrun is for training: check so many vectors with --shard or --ray")
    with joined(config.train.device) as processes:
        require_possible(config)
        if not processes.first:
            return _follow(config, processes, resume)
        with claimed(config, bool(resume), overwrite) as claim, run_clock(progress):
            return _fit(config, claim, processes, resume, progress)


def _follow(config: Config, processes: Processes, resume: Resume) -> Run:
    """Train with the first process, by the pairs and features that it has prepared, and write nothing."""
    limit_threads(config.train.threads)
    encoder, *training = processes.hear_first()
    config = config if encoder is None else config.with_text_encoder(encoder)
    begun = read_stored_pairs(config.folder / SOURCE)
    prepared = prepare(config, config.folder, False, begun, resume == "unchanged")
    processes.may_resume()
    trainer_of(replace(job_of(config, prepared, config.folder, *training), processes=processes)).run(resume=True)
    return Run(config.folder, prepared, False)


def _fit(config: Config, claim: Claim, processes: Processes, resume: Resume, progress: bool) -> Run:
    """Run `fit` in a folder that is claimed."""
    options, folder = config.train, config.folder
    if is_large(config):
        claim.settle()
        check_large(config, progress)
        return Run(folder, progress=progress)
    limit_threads(options.threads)
    start = time.monotonic()
    config, prepared = begin(folder, config, progress, resume)
    claim.settle()
    if progress and (line := skipped_line(prepared.pairs, folder / SKIPPED)):
        write(line)
    whole = config.data.captions_per_image is None and not config.data.sizes
    if progress and whole and (line := unused_line(prepared.pairs)):
        write(line)
    after_encoding = time.monotonic()
    run = Run(folder, prepared, progress)
    judgement, training = _judged(config, run)
    after_evidence = time.monotonic()
    begin_stage("training")
    picture = pictures(prepared, config.cache, "dev", "test")
    processes.may_resume()
    processes.from_first(lambda: (config.encode.text_encoder, *training))
    job = replace(job_of(config, prepared, folder, *training, progress), picture=picture, processes=processes)
    trainer = trainer_of(replace(job, require_held=claim.require_held))
    trainer.run(resume=True)
    begin_stage("recall and report")
    _write_trained(trainer, folder)
    recall = {}
    if config.has_recall:
        with autocast_context(trainer.device, options):
            recall = recall_metrics([network.matcher for network in trainer.networks], prepared, picture)
    best = {"epoch": trainer.position.best_epoch, "dev_rsum": trainer.position.best_rsum}
    model = "untrained" if config.method.starts_linear else "linear" if trainer.keeps_linear else "networks"
    facts: dict[str, Any] = {"best": {**best, "model": model}}
    seconds = {"encode": round(after_encoding - start, 1), "evidence": round(after_evidence - after_encoding, 1)}
    seconds["train"] = round(trainer.position.seconds, 1)
    facts["bfloat16_products"] = trainer.fast_products
    run = Run(folder, prepared, progress)
    run.metrics = {**recall, **facts, **facts_of(config, prepared), "seconds": seconds}
    run.write_judgement(claim.require_held, judgement)
    trainer.remove_checkpoints()
    return run


def _judged(config: Config, run: Run) -> tuple[Judgement, tuple[Prior, Likeness]]:
    """Judge all pairs, and say what training may know of its own.

    Where training follows, its pairs are judged once more without the others, and the verdict is written before it.
    """
    folder, progress, training = run.folder, run.progress, of_training(run.prepared)
    begin_stage("judging", f"judging {len(run.prepared.pairs.ids()):,} pairs")
    judge = Judge(run.prepared, folder, config, progress)
    if config.method.starts_linear:  # nothing is trained, so that no network could learn other pairs by their weights
        judgement = judge.judge_again()
        begin_stage("suggestions and report")
        return judgement, (judge.prior(judgement), judge.likeness())
    of_train, known = None, None
    if judge.trains_networks:  # the judge of all pairs takes the networks of the training pairs
        of_train = Judge(training, folder, config, progress)
        known = of_train.judge()
    judgement = judge.judge_again()
    begin_stage("suggestions")
    run.write_verdict(judgement, judge.linear_matcher(judgement), judge.vectors)
    begin_stage("judging the training pairs alone")
    of_train = of_train or Judge(training, folder, config, progress)
    return judgement, (of_train.prior(known or of_train.judge()), of_train.likeness())


def _write_trained(trainer: Trainer | Apart, folder: Path) -> None:
    """Write the networks, and the method's values and verdicts for each training pair."""
    for k, network in enumerate(trainer.networks):
        write_tensors(weights(folder, k), network.state_dict())
    method = trainer.method
    if values := method.values_of_pairs():
        write_state(folder / METHOD_STATE, method.setting.ids, values, trainer.matched)
    if isinstance(method, Sorting) and (verdicts := method.verdicts()) is not None:
        write_division(method.setting.ids, verdicts, folder)


def begin(folder: Path, config: Config, progress: bool, resume: Resume = False) -> tuple[Config, Prepared]:
    """Write the options, read and encode the pairs, and write them into the run's folder.

    From the moment that the options are written, `--resume` can continue the run. Where no text encoder is named, the
    captions decide whether n-grams are added to `wordllama`.

    Args:
        folder: The run's folder.
        config: The run's options.
        progress: Whether to show progress.
        resume: Whether a run in the folder goes on: see `fit`.

    Returns:
        The options with the text encoder, and the pairs with their features.

    Raises:
        InputError: The source or an option cannot be used, or the source has changed since the run was begun.
        WriteError: A file cannot be written.
    """
    begun = read_stored_pairs(folder / SOURCE) if resume else None
    if begun is not None:
        chosen = read_config(folder / CONFIG).encode.text_encoder
        config = config if chosen is None else config.with_text_encoder(chosen)
    make_folder(folder)
    write_text(folder / CONFIG, config.text())
    with writing(folder):
        (folder / "model").mkdir(exist_ok=True)
    prepared = prepare(config, folder, progress, begun, resume == "unchanged")
    if begun is not None:
        if prepared.changes:
            _leave_out(folder, prepared.pairs)
        return config, prepared
    if config.encode.text_encoder is None and prepared.texts.name == TEXT_ENCODER:
        config = config.with_text_encoder(TEXT_ENCODER)
        if prepared.features.images.values.ndim == 2 and ngrams_help(prepared, config.train.seed, config.detect):
            config = config.with_text_encoder(WITH_NGRAMS)
            prepared = prepare(config, folder, False)
        write_text(folder / CONFIG, config.text())
        if progress:
            reason = ", which separates held-out pairs better from random pairs" if prepared.ngrams else ""
            write(f"text encoder: {config.encode.text_encoder}{reason}")
    write_skipped(prepared.pairs, folder / SKIPPED)
    if prepared.vocabulary is not None:
        write_text(folder / VOCABULARY, prepared.vocabulary.to_json())
    if prepared.ngrams is not None:
        with writing(folder / NGRAMS):
            prepared.ngrams.save(folder / NGRAMS)
    if prepared.front is not None:
        with writing(folder / FRONT):
            prepared.front.save(folder / FRONT)
    write_stored_pairs(prepared.pairs, prepared.split, folder / SOURCE)  # last: what is there by then is not made again
    return config, prepared


def _leave_out(folder: Path, pairs: Pairs) -> None:
    """List the pairs that an unfinished run continues without, and remove its networks of folds.

    Without these pairs the folds are others, so that such a network may have learned pairs of its new fold.
    """
    for file in (folder / "model").glob("fold_*.safetensors"):
        file.unlink()
    shutil.rmtree(folder / "folds", ignore_errors=True)  # trainings of such networks that are not finished
    write_skipped(pairs, folder / SKIPPED)


def facts_of(config: Config, prepared: Prepared) -> dict[str, Any]:
    """Return facts about the data, the seed, the versions and the machine."""
    pairs = prepared.pairs
    names, counts = np.unique(pairs.split, return_counts=True)
    packages = ["pairsift", "torch", "numpy", "scikit-learn", "pillow"]
    packages += ["transformers"] if prepared.front is not None else []
    return {
        "pairs": dict(zip(names.tolist(), counts.tolist(), strict=True)),
        "data": {
            "source": pairs.source,
            "hash": prepared.hash,
            "description": pairs.description,
            "skipped": len(pairs.skipped),
        },
        "noise": None if pairs.noise is None else asdict(pairs.noise),
        "seed": config.train.seed,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "machine": {"processor": platform.machine(), "threads": torch.get_num_threads()},
    }
