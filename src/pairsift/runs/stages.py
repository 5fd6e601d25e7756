"""The stages of a run, and about how long each takes, for the time that is left."""

from __future__ import annotations

import numpy as np

from pairsift.encode.registry import IMAGE_ENCODER
from pairsift.pairs.pairs import Pairs
from pairsift.progress import Stage
from pairsift.runs.config import Config

# Rough seconds on two cores. The clock corrects them by the pace of the machine, and `benchmarks/stages.py` compares
# what it says with what is true.
IMAGE, CAPTION = 0.016, 0.0003
PAIRS = (100, 300, 1_000, 2_000, 8_000)
CHOICE = (1, 1.5, 2, 2, 8)  # of the text encoder, with n-grams or without
VECTORS = (0.5, 1, 1.5, 1.5, 8)  # that evidence is computed from
MODEL = (0.025, 0.055, 0.11, 0.17, 0.5)  # for a fold
SUGGESTIONS = (2.5, 3, 3, 3.5, 8)  # with the linear model, the table and the report


def stages_of(config: Config, pairs: Pairs) -> list[Stage]:
    """Return the stages of a run, the first of which has read its pairs.

    Args:
        config: The run's options.
        pairs: The pairs of the source.
    """
    trains, n, n_train = not config.method.starts_linear, len(pairs.ids()), len(pairs.ids("train"))
    networks, limits = trains and n_train >= config.detect.networks.min_pairs, config.detect.folds
    own_features = config.matcher.image_kind != "pixels"  # else the features of evidence are encoded while judging

    def judging(name: str, number: int) -> Stage:
        known = own_features and config.data.mismatches != "near" and not networks
        divisions, folds = limits.divisions(number)
        models = divisions * folds * (limits.inner_folds + 1)
        seconds = between(VECTORS, number) + models * between(MODEL, number)
        return Stage(name, seconds if known else None, goes_on=not known)

    stages = [Stage("reading")]
    if pairs.features is None:
        known = own_features and config.encode.image_encoder in (None, IMAGE_ENCODER)
        stages.append(Stage("encoding images", IMAGE * pairs.n_images if known else None))
    choice = between(CHOICE, min(n, PAIRS[-1])) if config.encode.text_encoder is None else 0
    stages += [Stage("encoding captions", CAPTION * n + choice), judging("judging", n)]
    end = between(SUGGESTIONS, n)
    if not trains:
        return [*stages, Stage("suggestions and report", end)]
    again = [] if networks else [judging("judging the training pairs alone", n_train)]
    return [
        *stages,
        Stage("suggestions", end),
        *again,
        Stage("training", may_end=True),
        Stage("recall and report", end),
    ]


def between(measured: tuple[float, ...], pairs: int) -> float:
    """Return the seconds of a number of pairs between those of `PAIRS`, and in proportion above the last one."""
    seconds = float(np.exp(np.interp(np.log(max(1, pairs)), np.log(PAIRS), np.log(measured))))
    return seconds * max(1.0, pairs / PAIRS[-1])
