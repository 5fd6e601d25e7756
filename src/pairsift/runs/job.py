"""The training of a run, and the linear model that competes with its networks where there are few pairs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pairsift.match.base import Matcher
from pairsift.match.two_tower import TwoTower
from pairsift.runs.config import Config
from pairsift.runs.features import rows_of
from pairsift.runs.prepare import Prepared, matcher_factory
from pairsift.steps import Prior
from pairsift.train.batches import Likeness
from pairsift.train.loop import Job

LINEAR_BELOW = 10_000  # number of training pairs from which on networks are more accurate than linear models


def job_of(
    config: Config,
    prepared: Prepared,
    folder: Path,
    prior: Prior | None = None,
    likeness: Likeness | None = None,
    progress: bool = False,
) -> Job:
    """Return the training of a configuration on prepared pairs.

    Args:
        config: The options.
        prepared: The pairs and features.
        folder: Where checkpoints are written.
        prior: What held-out evidence says of the pairs; only methods with the option `evidence` get it.
        likeness: Groups of images and of captions that are too similar to be each other's negatives; likewise.
        progress: Whether to show progress on the console.
    """
    parts = config.method, config.loss, config.train, folder, progress
    factory, linear = matcher_factory(config, prepared), linear_start(config, prepared, prior)
    if config.method.starts_linear and linear is not None:
        factory, linear = _started(factory, linear), None
    evidence = (prior, likeness) if config.method.evidence else (None, None)
    return Job(prepared.pairs, prepared.features, factory, *parts, *evidence, linear)


def _started(make: Callable[[], Matcher], start: Callable[[Matcher], None]) -> Callable[[], Matcher]:
    """Return a function that makes matchers which have started."""

    def made() -> Matcher:
        matcher = make()
        start(matcher)
        return matcher

    return made


def linear_start(config: Config, prepared: Prepared, prior: Prior | None) -> Callable[[Matcher], None] | None:
    """Return a function that turns a new matcher into ridge canonical correlation of the training pairs.

    Below 10,000 training pairs, networks know pairs by heart before they are as accurate as this linear model. Pairs
    count by their match probability.

    Returns:
        The function; None for other matchers, for heads that start as the identity, for methods that do not let it
        compete, and where it would compete, for many pairs.
    """
    ids, method = prepared.pairs.ids("train"), config.method
    if not (method.starts_linear or (method.competes_with_linear and len(ids) < LINEAR_BELOW)):
        return None
    if config.matcher is not TwoTower or prepared.aligned:
        return None
    trust = np.ones(len(ids))
    if prior is not None and prior.finds_mismatches:
        trust = prior.probability[ids].astype(np.float64)
    tables = (prepared.features.images, prepared.pairs.image_of[ids]), (prepared.features.texts, ids)

    def start(matcher: Matcher) -> None:
        assert isinstance(matcher, TwoTower)
        images, captions = (rows_of(*table) for table in tables)
        matcher.start_linear(images, captions, trust, config.detect)

    return start
