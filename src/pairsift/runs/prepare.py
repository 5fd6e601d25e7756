"""The pairs and features of a source, read and encoded in the same way for a new run and for an opened run."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairsift.encode.cache import encode_captions, encode_images
from pairsift.encode.clip_preprocessor import ClipPreprocessor
from pairsift.encode.encoder import TextEncoder, cut_line
from pairsift.encode.features import Features, Table
from pairsift.encode.languages import unknown_language
from pairsift.encode.ngrams import NgramEncoder
from pairsift.encode.options import EMBEDDINGS
from pairsift.encode.registry import (
    ID_ENCODERS,
    IMAGE_ENCODER,
    TEXT_ENCODER,
    TOKEN_ENCODER,
    check_names,
    image_encoder,
    text_encoder,
)
from pairsift.encode.source_features import SourceFeatures, broken_vectors, caption_vectors, open_source_features
from pairsift.encode.thumbnails import of_one_colour
from pairsift.encode.vocabularies import Numbering
from pairsift.errors import InputError
from pairsift.match import MATCHERS
from pairsift.match.base import Matcher
from pairsift.match.two_tower import check_one_space
from pairsift.noise.options import check_noise_of, check_noise_options, with_noise
from pairsift.pairs.changes import Changes, StoredPairs, content_marks, merge, since_begun, with_row_ids
from pairsift.pairs.pairs import Noise, Pairs
from pairsift.pairs.readers import load
from pairsift.pairs.splits import check_sizes, keep_captions, keep_images
from pairsift.pairs.verified import check_verified_options, read_verified
from pairsift.progress import begin_stage, first_stage, set_stages
from pairsift.run_folder import FRONT, NGRAMS, VOCABULARY
from pairsift.runs.config import Config
from pairsift.runs.source_changes import known_pairs
from pairsift.runs.stages import stages_of
from pairsift.runs.text_encoding import check_numbering, run_ngrams, run_numbering
from pairsift.runs.thumbnails import read_thumbnails
from pairsift.source_path import require_source
from pairsift.train.loop import pick_device
from pairsift.train.record import require_board

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """The pairs of a run with their features.

    Attributes:
        pairs: The pairs; images that cannot be read are skipped, and noise is planted where requested.
        features: Features of all pairs.
        texts: The text encoder, for queries.
        vocabulary: The numbering of the captions' tokens, where a matcher learns the vectors of tokens.
        hash: Hash of the pairs as they were read.
        split: Split of each pair as it was read, before images failed, (n_pairs,).
        front: The preprocessing to pixels and token ids, for a matcher that reads raw images and text.
        changes: Differences between the source and the pairs that the run was made from; None where there are none.
        ngrams: The n-gram encoder that was fitted to the captions; None where the text encoder needs none.
        aligned: Whether the features of images and of captions share a space.
    """

    pairs: Pairs
    features: Features
    texts: TextEncoder
    vocabulary: Numbering | None
    hash: str
    split: NDArray[np.str_]
    front: ClipPreprocessor | None = None
    changes: Changes | None = None
    ngrams: NgramEncoder | None = None
    aligned: bool = False


def require_possible(config: Config) -> None:
    """Raise an error for options that exclude each other, before any work.

    Raises:
        InputError: The combination is impossible.
    """
    data, matcher, method = config.data, config.matcher, config.method
    require_source(config.source)
    config.require_storable()
    if method.needs_truth and not (data.noise or data.noise_index):
        raise InputError(f"{method.name} needs to know the truth: give --noise or --noise-index, or another method")
    check_noise_options(data)
    check_verified_options(data)
    if method.needs_verified and not (data.verified or data.verified_column):
        raise InputError(
            f"{method.name} learns from pairs that are known to match: give --verified or --verified-column, or "
            "another method"
        )
    _check_encoders(config)
    matcher.check(config.matcher_options)
    if config.encode.aligned and not config.starts_aligned:
        raise InputError(
            f"matcher {matcher.name} cannot start from a common space: leave --aligned out, or use two_tower"
        )
    starts_trained = matcher.starts_trained or config.starts_aligned or method.starts_linear
    method.check(matcher, starts_trained)
    pick_device(config.train.device)
    if config.train.tensorboard:
        require_board()
    if not sum(phase.epochs for phase in method.phases()) and not starts_trained:
        raise InputError(f"{method.name} has no epochs and {matcher.name} starts untrained: set at least one epoch")


def _check_encoders(config: Config) -> None:
    """Raise an error for encoders that the matcher cannot read."""
    encode, matcher = config.encode, config.matcher
    if matcher.image_kind == "pixels":
        for name in ("image_encoder", "text_encoder"):
            if getattr(encode, name) is not None:
                raise InputError(
                    f"matcher {matcher.name} reads raw images and text: leave --{name.replace('_', '-')} out"
                )
    frozen = "muse, minilm, wordllama, ngrams, hf:<folder>, or several joined by +"
    takes = "words, bpe or ids, which it learns" if matcher.text_kind == "ids" else frozen
    if (text_name(config) in ID_ENCODERS) != (matcher.text_kind == "ids"):
        raise InputError(f"matcher {matcher.name} cannot read the text encoder {encode.text_encoder}; it takes {takes}")
    check_names(encode.image_encoder, encode.text_encoder)
    check_numbering(encode, text_name(config))


def text_name(config: Config, pairs: Pairs | None = None) -> str:
    """Return the name of the text encoder.

    The options name it, else the matcher and the pairs have a default.

    A matcher that reads raw text takes the place of a text encoder. The pairs count only after they are read. Runs
    without a name are those of token matchers, and older ones: `with_default_encoder` gives one to a new run.

    Raises:
        InputError: The captions are token ids, and the matcher or the text encoder of the options cannot read them; or
            the options want vectors from the source, which has none.
    """
    matcher, requested = config.matcher, config.encode.text_encoder
    features = None if pairs is None else pairs.features
    has_vectors = features is not None and features.captions is not None
    if pairs is not None and requested == EMBEDDINGS and not has_vectors:
        raise InputError(f"{pairs.source}: has no vectors of captions: leave --text-encoder {EMBEDDINGS} out")
    if pairs is None or features is None or not features.ids:
        frozen = EMBEDDINGS if has_vectors and matcher.text_kind == "vector" else TOKEN_ENCODER
        return requested or {"ids": "words", "text": matcher.name}.get(matcher.text_kind, frozen)
    if matcher.text_kind != "ids":
        learn = ", ".join(name for name, other in MATCHERS.items() if other.text_kind == "ids")
        raise InputError(
            f"{pairs.source}: its captions are token ids, which matcher {matcher.name} cannot read; choose from {learn}"
        )
    if requested not in (None, "ids"):
        raise InputError(
            f"{pairs.source}: its captions are token ids, which {requested} cannot read; leave --text-encoder out"
        )
    return "ids"


def with_default_encoder(config: Config, pairs: Pairs) -> Config:
    """Return the config with the default text encoder, if it names none and the matcher reads vectors of captions."""
    unnamed = config.encode.text_encoder is None and config.matcher.text_kind == "vector"
    return config.with_text_encoder(TEXT_ENCODER) if unnamed and text_name(config, pairs) == TOKEN_ENCODER else config


@dataclass(frozen=True)
class SourcePairs:
    """The pairs of a run as its source has them now, without features.

    Attributes:
        pairs: The pairs, with the ids of the run.
        hash: Hash of the source.
        changes: Differences between the source and the pairs that the run was made from; None where there are none.
    """

    pairs: Pairs
    hash: str
    changes: Changes | None = None


def prepare(
    config: Config, folder: Path, progress: bool = True, begun: StoredPairs | None = None, only_unchanged: bool = False
) -> Prepared:
    """Read and encode the pairs of a new run, skip those that failed, and plant noise.

    Args:
        config: The run's options.
        folder: The run's folder; the vocabulary and the fitted n-grams are loaded from there if they exist.
        progress: Whether to show progress.
        begun: The pairs that the run was begun with, where it goes on.
        only_unchanged: Whether it goes on without the pairs that have changed since. They are skipped, and the result
            says in `changes` what has changed.

    Raises:
        InputError: The source or an option cannot be used, or the source has changed since the run was begun.
    """
    with first_stage(f"reading {config.source}"):
        read = read_pairs(config) if begun is None else read_begun(config, folder, begun, only_unchanged)
    set_stages(stages_of(config, read.pairs))
    verified = read_verified(read.pairs, config.data)
    if read.changes is None:
        check_sizes(read.pairs, config.data.sizes)
        check_noise_of(read.pairs, config.data)
    prepared = encode(config if begun else with_default_encoder(config, read.pairs), folder, read, progress=progress)
    require_usable(prepared.pairs)
    if read.changes is None:
        prepared = _planted(config, prepared, progress)
    return replace(prepared, pairs=replace(prepared.pairs, verified=verified))


def reopen(config: Config, folder: Path, facts: Mapping[str, Any], progress: bool = True) -> Prepared:
    """Read and encode the pairs of a finished run, mostly from the cache.

    Args:
        config: The run's options, with the present path of the source.
        folder: The run's folder.
        facts: The run's metrics.
        progress: Whether to show progress and the changes of the source.

    Raises:
        InputError: The source is gone or is another source, or the folder lacks the record of the run's pairs.
    """
    read = read_finished(config, folder, facts)
    changes = read.changes
    if changes is not None and progress:
        print(f"{config.source} has changed since {folder} was made: {changes}", file=sys.stderr)
    prepared = encode(config, folder, read, finished=True, progress=progress)
    if changes is not None and changes.captions and caption_vectors(read.pairs, prepared.texts) is not None:
        raise InputError(
            f"{config.source} has changed since {folder} was made ({changes}), and this run cannot encode captions: "
            "write the vectors of the changed ones into the source and fit again"
        )
    return prepared


def read_pairs(config: Config) -> SourcePairs:
    """Read the pairs of a run's source, without noise."""
    data = config.data
    places: dict[str, Any] = {"image_folder": data.image_folder, "cache": config.encode.cache}
    options: dict[str, Any] = {"quotes": data.quotes, "text_file": data.text_file, "keep_empty": data.keep_empty}
    shares = data.dev or 0.1, data.test or 0.1
    pairs = load(config.source, data.reader, data.split_seed, shares, **data.columns, **places, **options)
    pairs = keep_images(with_row_ids(pairs, data.id_column), data.sizes, data.split_seed)
    if data.captions_per_image is not None:
        pairs = keep_captions(pairs, data.captions_per_image, data.split_seed)
    return SourcePairs(pairs, pairs.hash())


def read_begun(config: Config, folder: Path, begun: StoredPairs, only_unchanged: bool) -> SourcePairs:
    """Read the pairs of an unfinished run, and require that they are unchanged.

    Args:
        config: The run's options.
        folder: The run's folder.
        begun: The pairs that the run was begun with.
        only_unchanged: Whether the run goes on without the pairs that have changed since.

    Raises:
        InputError: The source is another one, or has changed and `only_unchanged` is not set.
    """
    read = read_pairs(config)
    if read.hash == begun.hash and content_marks(read.pairs) == begun.marks:
        return read
    try:
        pairs, changes = since_begun(begun, read.pairs)
    except InputError:
        raise InputError(
            f"{config.source} is not what {folder} was begun with: put that back, or fit again to another --out"
        ) from None
    if changes and not only_unchanged:
        raise InputError(
            f"{config.source} has changed since {folder} was begun ({changes}): put it back, fit again to another "
            f"--out, or go on with the {len(pairs.ids()):,} pairs that are as they were by --resume-unchanged"
        )
    return SourcePairs(pairs, begun.hash, changes)


def read_finished(config: Config, folder: Path, facts: Mapping[str, Any]) -> SourcePairs:
    """Read the pairs of a finished run, with its planted noise.

    Args:
        config: The run's options, with the present path of the source.
        folder: The run's folder.
        facts: The run's metrics.

    Raises:
        InputError: The source is gone or is another source, or the folder lacks the record of the run's pairs.
    """
    require_source(config.source, "give its new place with --source", folder)
    read = read_pairs(config)
    noise = None if facts["noise"] is None else Noise(**facts["noise"])
    pairs, changes = merge(replace(known_pairs(folder), noise=noise), read.pairs)
    same = facts["data"]["hash"] in ("", read.hash) and not changes  # none of a run that was made shard by shard
    return SourcePairs(pairs, read.hash, None if same else changes)


def require_usable(pairs: Pairs) -> None:
    """Raise an error if a split has too few pairs to train, to choose or to test by.

    Raises:
        InputError: There are fewer than four training pairs, or no pair for dev or test.
    """
    for split, minimum in (("train", 4), ("dev", 1), ("test", 1)):
        if len(pairs.ids(split)) < minimum:
            first = f", the first is {pairs.skipped[0].where}: {pairs.skipped[0].reason}" if pairs.skipped else ""
            raise InputError(
                f"{pairs.source} has {len(pairs.ids(split))} usable {split} pairs, but {minimum} are needed: "
                f"{pairs.description}; {len(pairs.skipped)} records were skipped{first}"
            )


def encode(config: Config, folder: Path, read: SourcePairs, *, finished: bool = False, progress: bool) -> Prepared:
    """Encode the pairs of a run, and skip pairs without usable features.

    Args:
        config: The run's options.
        folder: The run's folder, where what was fitted to the captions lies.
        read: The pairs; what the cache has is not encoded again.
        finished: Whether the run is finished, so that all that it fitted must be in the folder.
        progress: Whether to show progress.
    """
    pairs = read.pairs
    name = text_name(config, pairs)
    vocabulary = run_numbering(pairs, name, config.encode, folder / VOCABULARY)
    tokens = config.matcher.text_kind == "tokens"
    front = _front(config, folder, finished)
    ngrams = run_ngrams(pairs, name, folder / NGRAMS, finished)
    texts = front or text_encoder(name, tokens=tokens, vocabulary=vocabulary, ngrams=ngrams)
    language = None if finished else unknown_language(pairs.captions, texts)
    if language is not None:
        log.warning("%s: %s", config.source, language.message)
    cuts = None if finished else cut_line(pairs.captions, texts)
    if cuts is not None:
        log.warning("%s: %s", config.source, cuts)
    features, failures = _features(config, pairs, texts, progress)
    if config.starts_aligned:
        check_one_space(features.images.dim, features.texts.dim)
    if pairs.features is None and not config.data.keep_empty:
        failures = _empty_pictures(pairs, config.cache, progress) | failures
    usable = pairs.skip_images(failures)
    images = features.images.values
    if isinstance(images, SourceFeatures) and pairs.features is not None and len(pairs.features.shape) == 1:
        usable = usable.skip_pairs(broken_vectors(usable, images, caption_vectors(pairs, texts)))
    return Prepared(
        usable,
        features,
        texts,
        vocabulary,
        read.hash,
        pairs.split,
        front,
        read.changes,
        ngrams,
        config.starts_aligned,
    )


def encoder_names(config: Config, prepared: Prepared) -> dict[str, str]:
    """Return the names of the encoders: `image_encoder` and `text_encoder`."""
    images = config.encode.image_encoder or IMAGE_ENCODER
    if prepared.pairs.features is not None:
        images = "precomputed features"
    elif config.matcher.image_kind == "pixels":
        images = config.matcher.name
    return {"image_encoder": images, "text_encoder": prepared.texts.name}


def _front(config: Config, folder: Path, finished: bool) -> ClipPreprocessor | None:
    """Return the preprocessing of a matcher of pixels and text, from its checkpoint or a finished run; else None."""
    if config.matcher.image_kind != "pixels":
        return None
    if finished:
        return ClipPreprocessor(str(folder / FRONT), pretrained=False)
    return ClipPreprocessor(str(getattr(config.matcher_options, "checkpoint", "")))


def _features(config: Config, pairs: Pairs, texts: TextEncoder, progress: bool) -> tuple[Features, dict[int, str]]:
    """Encode images and captions, or only captions if images are decoded later or have features already."""
    encode, kind = config.encode, config.matcher.image_kind
    if pairs.features is not None and encode.image_encoder is not None:
        raise InputError(
            f"{pairs.source} has features and no images for {encode.image_encoder}: leave --image-encoder out"
        )
    if pairs.features is not None and kind == "pixels":
        raise InputError(f"{pairs.source} has features and no images for matcher {config.matcher.name}: choose another")
    images = None
    if pairs.features is None and kind != "pixels":
        images = image_encoder(encode.image_encoder or IMAGE_ENCODER, regions=kind == "regions")
    if progress:
        sizes = f"{len(pairs)} pair{'s' * (len(pairs) != 1)}, {pairs.n_images} image{'s' * (pairs.n_images != 1)}"
        print(f"{pairs.description}: {sizes}", file=sys.stderr)
    cache, failures = config.cache, dict[int, str]()
    begin_stage("encoding images")
    if isinstance(texts, ClipPreprocessor):
        return texts.features(pairs, cache, progress)
    if images is not None:
        table, failures = encode_images(pairs, images, cache, bar="images" if progress else None)
    else:
        assert pairs.features is not None and kind != "pixels"
        table = Table(open_source_features(pairs.features, kind))
    begin_stage("encoding captions")
    if texts.name == EMBEDDINGS and (captions := caption_vectors(pairs, texts)) is not None:
        return Features(table, Table(captions)), failures
    return Features(table, encode_captions(pairs, texts, cache, progress)), failures


def _empty_pictures(pairs: Pairs, cache: Path | None, progress: bool) -> dict[int, str]:
    """Return why pictures show nothing, by image row."""
    rows = pairs.images()
    thumbnails, is_read = read_thumbnails(pairs, rows, cache, "thumbnails" if progress else None)
    flat = of_one_colour(thumbnails[is_read])
    return dict.fromkeys(rows[is_read][flat].tolist(), "the picture has one colour")


def _planted(config: Config, prepared: Prepared, progress: bool) -> Prepared:
    """Plant noise, and encode the captions again if some were replaced."""
    pairs = with_noise(prepared.pairs, config.data)
    if pairs.source_captions is None:
        return replace(prepared, pairs=pairs)
    if caption_vectors(pairs, prepared.texts) is not None:
        raise InputError(
            f"{config.source}: has vectors of its captions, which are wrong for those that --noise-kind "
            f"{config.data.noise_kind} gives: leave it out, or give --text-encoder {TEXT_ENCODER}"
        )
    features, _ = _features(config, pairs, prepared.texts, progress)
    return replace(prepared, pairs=pairs, features=features)


def matcher_factory(config: Config, prepared: Prepared) -> Callable[[], Matcher]:
    """Return a function that makes a new matcher of the run's class for these features."""
    matcher, options, sizes = config.matcher, config.matcher_options, matcher_sizes(config, prepared)
    if prepared.front is not None:
        options = options.replaced(checkpoint=prepared.front.place)
        return partial(matcher.make, options, pretrained=prepared.front.pretrained)
    return partial(matcher.make, options, **sizes)


def matcher_sizes(config: Config, prepared: Prepared) -> dict[str, int | None]:
    """Return the sizes of the features for the matcher's constructor. Empty if it reads raw images and text."""
    matcher, features = config.matcher, prepared.features
    if prepared.front is not None:
        return {}
    sizes: dict[str, int | None] = {"image_dim": features.images.dim}
    if config.starts_aligned:
        sizes["aligned"] = True
    if "regions" in inspect.signature(matcher).parameters:
        counts = set(features.images.lengths.tolist())
        sizes["regions"] = counts.pop() if len(counts) == 1 else None
    if matcher.text_kind == "ids":
        assert prepared.vocabulary is not None
        sizes["vocabulary_size"] = len(prepared.vocabulary)
    else:
        sizes["text_dim"] = features.texts.dim
    return sizes


def index_facts(config: Config, prepared: Prepared) -> dict[str, Any]:
    """Return facts about the encoders and the matcher for a search; see `Index.facts`."""
    return {
        "sizes": matcher_sizes(config, prepared),
        "text_encoder": text_name(config, prepared.pairs),
        "image_encoder": config.encode.image_encoder or IMAGE_ENCODER,
    }
