"""The import of published checkpoints into a run's folder."""

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

PLAIN = "plain"  # the method, whose networks hold nothing beside the matcher


def import_checkpoint(
    files: Sequence[str | Path],
    data: str | Path,
    out: str | Path,
    options: Mapping[str, object] | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> Run:
    """Make a run from published checkpoints of the SGRAF family.

    The run can be evaluated, audited and searched like any other run. Its networks are those of all files, and their
    similarities are averaged. Networks of SGR and the same number of networks of SAF are combined into networks of
    `sgraf`. Nothing is trained or measured here: recall on the whole test split takes a while without a GPU.

    Args:
        files: The checkpoints, at least one.
        data: The folder of precomputed features that the checkpoints were trained on.
        out: The run's folder.
        options: Options of `fit` by name: `vocabulary` if there is none beside the data, `noise_index`, `cache`.
        overwrite: Whether to replace a run in the folder.
        progress: Whether to show progress bars.

    Raises:
        InputError: A file, the data or an option cannot be used, or they do not fit each other.
    """
    published = [read_published(Path(file)) for file in files]
    matcher, sizes, networks = _joined(published)
    shapes = {name: size for name, size in sizes.items() if name not in DATA_SIZES}
    settings = {"source": str(data), "out": str(out), "matcher": matcher, "method": PLAIN, matcher: shapes}
    method_options = {"networks": len(networks), "epochs": {"warmup": 0, "train": 0}}
    config = from_tree({**(options or {}), **settings, PLAIN: method_options})
    folder = Path(out)
    claim(folder, config, False, overwrite)
    _check(config, sizes, folder / VOCABULARY)
    limit_threads()
    config, prepared = begin(folder, config, progress)
    for k, state in enumerate(networks):
        tensors = {f"matcher.{name}": value for name, value in state.items()}
        write_tensors(weights(folder, k), tensors)
    facts = [_about(checkpoint) for checkpoint in published]
    write_text(folder / LOG, json.dumps({"event": "import", "files": facts}) + "\n")
    write_json(folder / METRICS, {"imported": facts, **facts_of(config, prepared)})
    return Run(folder, prepared, progress)


def _joined(published: Sequence[Published]) -> tuple[str, dict[str, int], list[dict[str, Tensor]]]:
    """Return the name of the matcher, its sizes and the state of each network.

    Raises:
        InputError: Sizes differ, or there are not as many networks of SGR as of SAF.
    """
    first, sizes = published[0], dict(published[0].options)
    for other in published[1:]:
        for name, size in other.options.items():
            if sizes.setdefault(name, size) != size:
                raise InputError(f"{other.path}: has {name} {size} where {first.path} has {sizes[name]}")
    kinds = {
        kind: [state for file in published if file.kind == kind for state in file.networks] for kind in ("sgr", "saf")
    }
    sgr, saf = kinds.values()
    if not sgr or not saf:
        return first.kind, sizes, sgr or saf
    if len(sgr) != len(saf):
        raise InputError(f"{len(sgr)} networks of SGR and {len(saf)} of SAF cannot make SGRAF: give as many of each")
    pairs = [{"sgr": state, "saf": other} for state, other in zip(sgr, saf, strict=True)]
    states = [
        {f"{part}.{n}": value for part, part_state in pair.items() for n, value in part_state.items()} for pair in pairs
    ]
    return "sgraf", sizes, states


def _check(config: Config, sizes: Mapping[str, int], saved: Path) -> None:
    """Raise an error for data or a vocabulary that the networks do not fit, before captions are numbered.

    Raises:
        InputError: The data or the vocabulary does not fit.
    """
    options, encode = config.data, config.encode
    if not Path(config.source).exists():
        raise InputError(f"there is nothing at {config.source}: give the folder of precomputed features")
    check_numbering(encode, text_name(config))
    columns: dict[str, Any] = {"image_column": options.image_column, "caption_column": options.caption_column}
    pairs = load(config.source, options.reader, options.split_seed, **columns)
    if pairs.features is None:
        raise InputError(f"{config.source}: has no precomputed features, which the networks were trained on")
    shape = sizes["regions"], sizes["image_dim"]
    if pairs.features.shape != shape:
        row_shape = " x ".join(map(str, pairs.features.shape))
        raise InputError(f"{config.source}: a row is {row_shape}; the networks take {shape[0]} x {shape[1]}")
    file = encode.vocabulary or pairs.features.vocabulary
    if file is None:
        raise InputError(
            f"{config.source}: there is no vocabulary beside the data; give the published vocabulary with --vocabulary"
        )
    numbering = run_numbering(pairs, text_name(config, pairs), encode, saved)
    if numbering is None or len(numbering) != sizes["vocabulary_size"]:
        size = 0 if numbering is None else len(numbering)
        raise InputError(f"{file}: gives ids below {size}; the networks know {sizes['vocabulary_size']} words")


def _about(published: Published) -> dict[str, object]:
    """Return facts about a checkpoint file, for the run's metrics."""
    with published.path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {
        "file": published.path.name,
        "sha256": digest,
        "matcher": published.kind,
        "epoch": published.epoch,
        "best_rsum": published.rsum,
    }
