"""The noise that a run plants in its pairs, by its options."""

from __future__ import annotations

import numpy as np

from pairsift.encode.registry import text_encoder
from pairsift.errors import InputError
from pairsift.noise.edits import plant_edit
from pairsift.noise.kinds import plant_near, plant_vague
from pairsift.noise.planted import plant_in_all_splits, plant_noise, read_index
from pairsift.pairs.options import DataOptions
from pairsift.pairs.pairs import Pairs


def check_noise_options(data: DataOptions) -> None:
    """Raise an error for options of noise that exclude each other.

    Raises:
        InputError: The combination is impossible.
    """
    if data.noise and data.noise_index:
        raise InputError("--noise and --noise-index exclude each other: give one of them")
    if data.noise_splits == "all" and data.noise_index:
        raise InputError("--noise-index is about the training captions alone: leave --noise-splits all out")
    if data.noise_kind == "random":
        return
    if data.noise_index:
        raise InputError(f"--noise-index says itself which captions move: leave --noise-kind {data.noise_kind} out")
    if data.noise_granularity == "image":
        raise InputError(
            f"--noise-kind {data.noise_kind} is planted caption by caption: leave --noise-granularity image out"
        )


def check_noise_of(pairs: Pairs, data: DataOptions) -> None:
    """Raise an error for noise that cannot be planted in these pairs, before the encoders run.

    Raises:
        InputError: The options or the index file do not fit the pairs.
    """
    features = pairs.features
    if not data.noise or data.noise_kind == "random":
        with_noise(pairs, data)
    elif features is not None and features.ids:
        raise InputError(
            f"{pairs.source}: its captions are token ids, and --noise-kind {data.noise_kind} needs words: leave it out"
        )


def with_noise(pairs: Pairs, data: DataOptions) -> Pairs:
    """Return pairs with the planted noise of these options.

    Near and vague captions are told by the vectors of `wordllama`, so that runs with different text encoders have the
    same noise.

    Args:
        pairs: Pairs without planted noise.
        data: The options.

    Raises:
        InputError: The noise cannot be planted.
    """
    if data.noise_index:
        return read_index(pairs, data.noise_index)
    if not data.noise:
        return pairs
    if data.noise_splits == "all":
        return plant_in_all_splits(pairs, lambda part: _with_training_noise(part, data))
    return _with_training_noise(pairs, data)


def _with_training_noise(pairs: Pairs, data: DataOptions) -> Pairs:
    """Return pairs with planted noise among the training captions."""
    if data.noise_kind == "random":
        return plant_noise(pairs, data.noise, data.noise_seed, data.noise_granularity)
    if data.noise_kind == "edit":
        return plant_edit(pairs, data.noise, data.noise_seed)
    plant = {"near": plant_near, "vague": plant_vague}[data.noise_kind]
    words = text_encoder("wordllama")
    return plant(pairs, data.noise, data.noise_seed, lambda captions: np.asarray(words.encode(captions)))
