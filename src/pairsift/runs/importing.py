"""From published checkpoints to a run's folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from pairsift.cores import limit_threads
from pairsift.errors import InputError
from pairsift.files import write_json, write_text
from pairsift.pairs import load
from pairsift.runs.config import Config, from_tree
from pairsift.runs.fit import begin, claim, facts_of
from pairsift.runs.folder import LOG, METRICS, VOCABULARY, weights
from pairsift.runs.prepare import text_name
from pairsift.runs.published import DATA_SIZES, Published, read_published
from pairsift.runs.run import Run
from pairsift.runs.vocabulary import check_numbering, run_numbering
from pairsift.train.checkpoint import write_tensors

PLAIN = "plain"  # which asks nothing of a network beside its matcher


def import_checkpoint(
    files: Sequence[str | Path],
    data: str | Path,
    out: str | Path,
    options: Mapping[str, object] | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> Run:
    """Make a run of published checkpoints of the SGRAF family, which evaluates, audits and searches as any other.

    The run's networks are those of all files, whose similarities are averaged; files of SGR and as many of SAF give
    networks of `sgraf`. Nothing is trained or measured here: recall on all of test takes a while without a GPU.

    Args:
        files: The checkpoints, at least one.
        data: The folder of precomputed features that goes with them.
        out: The run's folder.
        options: Options of `fit` by name: `vocabulary`, where none lies with the data; `noise_index`, `cache`.
        overwrite: Whether to replace a run in the folder.
        progress: Whether to show progress bars.

    Raises:
        InputError: A file, the data or an option cannot be used, or they do not go together.
    """
    published = [read_published(Path(file)) for file in files]
    matcher, sizes, networks = _joined(published)
    shapes = {name: size for name, size in sizes.items() if name not in DATA_SIZES}
    given = {"source": str(data), "out": str(out), "matcher": matcher, "method": PLAIN, matcher: shapes}
    none_run = {"networks": len(networks), "epochs": {"warmup": 0, "train": 0}}
    config = from_tree({**(options or {}), **given, PLAIN: none_run})
    folder = Path(out)
    claim(folder, config, False, overwrite)
    _check(config, sizes, folder / VOCABULARY)
    limit_threads()
    config, prepared = begin(folder, config, progress)
    for k, state in enumerate(networks):
        tensors = {f"matcher.{name}": value for name, value in state.items()}
        write_tensors(weights(folder, k), tensors)
    about = [_about(one) for one in published]
    write_text(folder / LOG, json.dumps({"event": "import", "files": about}) + "\n")
    write_json(folder / METRICS, {"imported": about, **facts_of(config, prepared)})
    return Run(folder, prepared, progress)


def _joined(published: Sequence[Published]) -> tuple[str, dict[str, int], list[dict[str, Tensor]]]:
    """Return the name of the matcher, its sizes and the state of each network.

    Raises:
        InputError: Sizes differ, or SGR and SAF have not as many networks.
    """
    first, sizes = published[0], dict(published[0].options)
    for other in published[1:]:
        for name, size in other.options.items():
            if sizes.setdefault(name, size) != size:
                raise InputError(f"{other.path}: has {name} {size} where {first.path} has {sizes[name]}")
    kinds = {kind: [one for file in published if file.kind == kind for one in file.networks] for kind in ("sgr", "saf")}
    sgr, saf = kinds.values()
    if not sgr or not saf:
        return first.kind, sizes, sgr or saf
    if len(sgr) != len(saf):
        raise InputError(f"{len(sgr)} networks of SGR and {len(saf)} of SAF make no SGRAF: give as many of each")
    pairs = [{"sgr": one, "saf": other} for one, other in zip(sgr, saf, strict=True)]
    states = [{f"{part}.{n}": value for part, own in pair.items() for n, value in own.items()} for pair in pairs]
    return "sgraf", sizes, states


def _check(config: Config, sizes: Mapping[str, int], saved: Path) -> None:
    """Refuse data and vocabularies that the networks were not made for, before captions are numbered.

    Raises:
        InputError: They were not.
    """
    options, encode = config.data, config.encode
    if not Path(config.source).exists():
        raise InputError(f"there is nothing at {config.source}: give the folder of precomputed features")
    check_numbering(encode, text_name(config))
    columns: dict[str, Any] = {"image_column": options.image_column, "caption_column": options.caption_column}
    pairs = load(config.source, options.reader, options.split_seed, **columns)
    if pairs.features is None:
        raise InputError(f"{config.source}: has no precomputed features, which the networks were trained on")
    wanted = sizes["regions"], sizes["image_dim"]
    if pairs.features.shape != wanted:
        found = " x ".join(map(str, pairs.features.shape))
        raise InputError(f"{config.source}: a row is {found}; the networks take {wanted[0]} x {wanted[1]}")
    file = encode.vocabulary or pairs.features.vocabulary
    if file is None:
        raise InputError(f"{config.source}: no vocabulary lies there; give the published one with --vocabulary")
    numbering = run_numbering(pairs, text_name(config, pairs), encode, saved)
    if numbering is None or len(numbering) != sizes["vocabulary_size"]:
        size = 0 if numbering is None else len(numbering)
        raise InputError(f"{file}: gives ids below {size}; the networks know {sizes['vocabulary_size']} words")


def _about(one: Published) -> dict[str, object]:
    """Return facts about a checkpoint file, for the run's metrics."""
    with one.path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"file": one.path.name, "sha256": digest, "matcher": one.kind, "epoch": one.epoch, "best_rsum": one.rsum}
