"""From a source to pairs and features, the same way for a new run and for one that is opened again."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pairsift.api.config import Config, DataOptions, EncodeOptions
from pairsift.encode import Features, Vocabulary, encode_pairs, image_encoder, text_encoder
from pairsift.encode.encoder import TextEncoder
from pairsift.errors import InputError
from pairsift.match import MATCHERS, Matcher
from pairsift.pairs import Pairs, inject, load, read_index
from pairsift.train.board import demand_board
from pairsift.train.loop import pick_device
from pairsift.train.options import TrainOptions

VOCABULARY = "vocabulary.json"


@dataclass(frozen=True)
class Prepared:
    """Pairs with their features.

    Attributes:
        pairs: Without what could not be used, with injected noise where asked for.
        features: Of all of them.
        texts: The text encoder, for queries.
        vocabulary: The known words, where the text encoder is `words`.
        hash: Of the pairs as they were read.
    """

    pairs: Pairs
    features: Features
    texts: TextEncoder
    vocabulary: Vocabulary | None
    hash: str


def check(config: Config) -> None:
    """Refuse what cannot go together, before any work.

    Raises:
        InputError: The combination is impossible.
    """
    data, encode = config.group(DataOptions), config.group(EncodeOptions)
    matcher, method = MATCHERS[config["matcher"]], config.method()
    if not Path(config["source"]).exists():
        raise InputError(f"there is nothing at {config['source']}: give a file or a folder of image-caption pairs")
    if method.needs_truth and not (data.noise or data.noise_index):
        raise InputError(f"{method.name} needs to know the truth: give --noise or --noise-index, or another method")
    if data.noise and data.noise_index:
        raise InputError("--noise and --noise-index exclude each other: give one of them")
    takes = "words, which it learns" if matcher.text_kind == "ids" else "wordllama, minilm or hf:<folder>"
    if (text_name(config) == "words") != (matcher.text_kind == "ids"):
        raise InputError(f"matcher {matcher.name} cannot read the text encoder {encode.text_encoder}; it takes {takes}")
    method.check(matcher)
    config.ranking()
    options = config.group(TrainOptions)
    pick_device(options.device)
    if options.tensorboard:
        demand_board()
    if not sum(phase.epochs for phase in method.phases()):
        raise InputError(f"{method.name} has no epochs: give at least one phase an epoch")


def text_name(config: Config) -> str:
    """Name of the text encoder: the one given, or the matcher's default."""
    default = "words" if MATCHERS[config["matcher"]].text_kind == "ids" else "wordllama"
    return config.group(EncodeOptions).text_encoder or default


def prepare(config: Config, folder: Path, expected: str | None = None, progress: bool = True) -> Prepared:
    """Read, encode, leave out what failed, and inject noise.

    Args:
        config: The run's options.
        folder: The run's folder; the vocabulary is taken from there where it is there.
        expected: Hash that the pairs must have, where the run was made before.
        progress: Whether to show progress bars.

    Raises:
        InputError: The source or an option cannot be used.
    """
    data, encode = config.group(DataOptions), config.group(EncodeOptions)
    matcher, name = MATCHERS[config["matcher"]], text_name(config)
    pairs = load(
        config["source"],
        data.reader,
        data.split_seed,
        image_column=data.image_column,
        caption_column=data.caption_column,
    )
    given = pairs.hash()
    if expected not in (None, given):
        raise InputError(f"{config['source']} has changed since {folder} was made: fit it again")
    _noisy(pairs, data)  # what is wrong with the noise is told before the encoders run
    vocabulary = _vocabulary(pairs, folder / VOCABULARY, encode.min_count) if name == "words" else None
    images = image_encoder(encode.image_encoder, regions=matcher.image_kind == "regions")
    texts = text_encoder(name, tokens=matcher.text_kind == "tokens", vocabulary=vocabulary)
    if progress:
        print(f"{pairs.taken}: {len(pairs)} pairs, {pairs.n_images} images", file=sys.stderr)
    cache = Path(encode.cache) if encode.cache else None
    features, failures = encode_pairs(pairs, images, texts, cache, progress=progress)
    pairs = pairs.skip_images(failures)
    for split, least in (("train", 4), ("dev", 1), ("test", 1)):
        if len(pairs.ids(split)) < least:
            raise InputError(
                f"{config['source']} has {len(pairs.ids(split))} usable {split} pairs, {least} are needed: "
                f"{pairs.taken}; {len(pairs.skipped)} records were skipped"
            )
    return Prepared(_noisy(pairs, data), features, texts, vocabulary, given)


def _noisy(pairs: Pairs, data: DataOptions) -> Pairs:
    if data.noise_index:
        return read_index(pairs, data.noise_index)
    return inject(pairs, data.noise, data.noise_seed, data.noise_granularity) if data.noise else pairs


def _vocabulary(pairs: Pairs, path: Path, min_count: int) -> Vocabulary:
    """The run's vocabulary, or one of the training and dev captions."""
    if path.exists():
        return Vocabulary.from_json(path.read_text(encoding="utf-8"))
    return Vocabulary.build([pairs.captions[one] for one in pairs.ids("train", "dev")], min_count)


def matcher_factory(config: Config, prepared: Prepared) -> Callable[[], Matcher]:
    """Makes a fresh matcher of the chosen kind for these features."""
    matcher, features = MATCHERS[config["matcher"]], prepared.features
    options = dict(config[config["matcher"]])
    options["image_dim"] = features.images.dim
    if matcher.text_kind == "ids":
        assert prepared.vocabulary is not None
        options["vocabulary_size"] = len(prepared.vocabulary)
    else:
        options["text_dim"] = features.texts.dim
    return partial(matcher, **options)


def write_skipped(pairs: Pairs, path: Path) -> None:
    """Write what was left out and why: columns where, reason, pair."""
    with path.open("w", newline="", encoding="utf-8", errors="replace") as stream:
        writer = csv.writer(stream)
        writer.writerow(("where", "reason", "pair"))
        writer.writerows((skip.where, skip.reason, skip.pair if skip.pair >= 0 else "") for skip in pairs.skipped)


def write_json(path: Path, content: object) -> None:
    """Write JSON so that a reader sees the old file or the new one."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    part.replace(path)
