"""The import of published checkpoints into a run's folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from pairsift.checkpoints.layouts import check_clip
from pairsift.checkpoints.published import CLIP, DATA_SIZES, Published, read_published
from pairsift.cores import limit_threads
from pairsift.errors import InputError
from pairsift.files import write_json, write_text
from pairsift.run_folder import LOG, METRICS, VOCABULARY, weights
from pairsift.runs.claim import claimed
from pairsift.runs.config import Config, from_tree
from pairsift.runs.fit import begin, facts_of
from pairsift.runs.prepare import read_pairs, text_name
from pairsift.runs.run import Run
from pairsift.runs.text_encoding import check_numbering, run_numbering
from pairsift.source_path import require_source
from pairsift.train.checkpoint import write_tensors

WORD_EMBEDDINGS = ("words.vectors.weight", "sgr.words.vectors.weight", "saf.words.vectors.weight")
PLAIN = "plain"  # the method, whose networks hold nothing beside the matcher


def import_checkpoint(
    files: Sequence[str | Path],
    data: str | Path,
    out: str | Path,
    options: Mapping[str, object] | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> Run:
    """Make a run from published checkpoints of SGRAF, SCAN, VSRN, VSE-infinity, IMRAM or NPC.

    Methods that train such a matcher share its layout. The run can be evaluated, audited and searched like any other
    run. It has the networks of all files, and their similarities are averaged. Networks of SGR and the same number
    of networks of SAF are combined into networks of `sgraf`. Nothing is trained or measured here: recall on the whole
    test split takes a while without a GPU.

    Args:
        files: The checkpoints, at least one.
        data: The folder of precomputed features that the checkpoints were trained on; for NPC's, images and captions.
        out: The run's folder.
        options: Options of `fit` by name: `vocabulary` if there is none beside the data, `noise_index`, `cache`; for
            NPC's, `clip` with `checkpoint`, the CLIP whose tokenizer and processor go with the weights.
        overwrite: Whether to replace a run in the folder.
        progress: Whether to show progress bars.

    Raises:
        InputError: A file, the data or an option cannot be used, or they do not fit each other.
    """
    published = [read_published(Path(file)) for file in files]
    matcher, sizes, networks = _joined(published)
    shapes = {name: size for name, size in sizes.items() if name not in DATA_SIZES}
    given = {name: value for name, value in (options or {}).items() if value is not None}
    settings: dict[str, Any] = {"source": str(data), "out": str(out), "matcher": matcher, "method": PLAIN}
    settings |= {matcher: given.get(matcher, {}) if matcher == CLIP else shapes}
    method_options = {"networks": len(networks), "epochs": {"warmup": 0, "train": 0}}
    config = from_tree({**given, **settings, PLAIN: method_options})
    folder, words = config.folder, None
    with claimed(config, overwrite=overwrite) as claim:
        if matcher == CLIP:
            _check_pixels(config, published)
        else:
            words = _check_features(config, sizes, published[0].spare_words, folder / VOCABULARY)
        limit_threads()
        config, prepared = begin(folder, config, progress)
        claim.settle()
        for k, state in enumerate(networks):
            known = {name: tensor[:words] if name in WORD_EMBEDDINGS else tensor for name, tensor in state.items()}
            write_tensors(weights(folder, k), {f"matcher.{name}": tensor for name, tensor in known.items()})
        facts = [_about(checkpoint) for checkpoint in published]
        write_text(folder / LOG, json.dumps({"event": "import", "files": facts}) + "\n")
        write_json(folder / METRICS, {"imported": facts, **facts_of(config, prepared)})
        return Run(folder, prepared, progress)


def _joined(published: Sequence[Published]) -> tuple[str, dict[str, Any], list[dict[str, Tensor]]]:
    """Return the name of the matcher, its options and sizes, and the state of each network.

    Raises:
        InputError: Matchers, options or sizes differ, or there are not as many networks of SGR as of SAF.
    """
    first, sizes = published[0], dict(published[0].options)
    for other in published[1:]:
        if other.kind != first.kind and {first.kind, other.kind} != {"sgr", "saf"}:
            raise InputError(f"{other.path}: is a {other.kind} where {first.path} is a {first.kind}")
        for name, size in other.options.items():
            if sizes.setdefault(name, size) != size:
                raise InputError(f"{other.path}: has {name} {size} where {first.path} has {sizes[name]}")
    networks = [state for file in published for state in file.networks]
    sgr = [state for file in published if file.kind == "sgr" for state in file.networks]
    saf = [state for file in published if file.kind == "saf" for state in file.networks]
    if not sgr or not saf:
        return first.kind, sizes, networks
    if len(sgr) != len(saf):
        raise InputError(f"{len(sgr)} networks of SGR and {len(saf)} of SAF cannot make SGRAF: give as many of each")
    pairs = [{"sgr": state, "saf": other} for state, other in zip(sgr, saf, strict=True)]
    states = [
        {f"{part}.{n}": value for part, part_state in pair.items() for n, value in part_state.items()} for pair in pairs
    ]
    return "sgraf", sizes, states


def _check_features(config: Config, sizes: Mapping[str, Any], spare_words: int, saved: Path) -> int:
    """Raise an error for data or a vocabulary that the networks do not fit, before captions are numbered.

    Returns:
        Number of words in the vocabulary, at most `spare_words` fewer than the networks know.

    Raises:
        InputError: The data or the vocabulary does not fit.
    """
    encode = config.encode
    require_source(config.source, "give the folder of precomputed features")
    check_numbering(encode, text_name(config))
    pairs = read_pairs(config).pairs
    if pairs.features is None:
        raise InputError(f"{config.source}: has no precomputed features, which the networks were trained on")
    shape = pairs.features.shape
    if len(shape) == 1 or shape != (sizes.get("regions", shape[0]), sizes["image_dim"]):
        row_shape, count = " x ".join(map(str, shape)), sizes.get("regions", "regions")
        raise InputError(f"{config.source}: a row is {row_shape}; the networks take {count} x {sizes['image_dim']}")
    file = encode.vocabulary or pairs.features.vocabulary
    if file is None:
        raise InputError(
            f"{config.source}: there is no vocabulary beside the data; give the published vocabulary with --vocabulary"
        )
    numbering = run_numbering(pairs, text_name(config, pairs), encode, saved)
    words = 0 if numbering is None else len(numbering)
    if not 0 <= sizes["vocabulary_size"] - words <= spare_words:
        raise InputError(f"{file}: gives ids below {words}; the networks know {sizes['vocabulary_size']} words")
    return words


def _check_pixels(config: Config, published: Sequence[Published]) -> None:
    """Raise an error for data or a CLIP that the weights do not fit.

    Raises:
        InputError: The data or the CLIP does not fit.
    """
    require_source(config.source, "give images and captions")
    check_numbering(config.encode, text_name(config))
    for file in published:
        for state in file.networks:
            try:
                check_clip(state, config.matcher_options)
            except InputError as error:
                raise InputError(f"{file.path}: {error}") from error


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
