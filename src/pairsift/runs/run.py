"""A run's folder, opened: recall, pairs and suspects, search."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from numpy.typing import NDArray

from pairsift.arrays import Ints
from pairsift.audit import (
    detection,
    detector_scores,
    drop_same_text,
    kinds,
    pair_table,
    suspects,
    worded,
    write_report,
    write_tables,
)
from pairsift.audit.suggest import suggest
from pairsift.cores import limit_threads
from pairsift.errors import InputError, WriteError
from pairsift.files import write_json
from pairsift.match import Matcher
from pairsift.pairs import SPLITS
from pairsift.retrieve.codes import Gallery, evaluate
from pairsift.runs.belief import Believer
from pairsift.runs.caveats import rate_of, warnings_of
from pairsift.runs.config import read_config
from pairsift.runs.folder import CONFIG, LOG, METRICS, PAIRS_FILE, REPORT, SKIPPED, demand_finished, weights
from pairsift.runs.prepare import (
    Prepared,
    matcher_factory,
    matcher_sizes,
    reopen,
    text_name,
    write_skipped,
)
from pairsift.runs.search import Search, make_index
from pairsift.train.checkpoint import read_tensors, under
from pairsift.train.loop import mixed, pick_device
from pairsift.trust.heldout import Belief


def open_run(folder: str | Path, source: str | Path | None = None, progress: bool = True) -> Run:
    """Open a finished run: to evaluate it, to search in it, to read and renew its audit.

    Args:
        folder: The run's folder.
        source: Where the run's data lies now, if it has moved.
        progress: Whether slow steps show progress, and what has changed is said.

    Raises:
        InputError: The folder holds no finished run.
    """
    return Run(folder, source=source, progress=progress)


class Run:
    """A run whose training is over.

    Args:
        folder: Where it lies.
        prepared: Its pairs and features where they are at hand; they are read when first needed otherwise.
        progress: Whether slow steps show progress, and what has changed is said.
        source: Where the source lies now, if it has moved. It may also have been edited: pairs that are still there
            keep their ids and splits, and those that are new are judged too.

    Raises:
        InputError: The folder holds no finished run.
    """

    def __init__(
        self,
        folder: str | Path,
        prepared: Prepared | None = None,
        progress: bool = True,
        source: str | Path | None = None,
    ) -> None:
        self.folder, self.progress = Path(folder), progress
        if prepared is None:
            demand_finished(self.folder)
        self.config = read_config(self.folder / CONFIG)
        if source is not None:
            self.config = self.config.with_source(source)
        if prepared is not None:
            self.prepared = prepared

    def weights(self, network: int) -> Path:
        """File of a network's weights."""
        return weights(self.folder, network)

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """What `metrics.json` holds."""
        return dict(json.loads((self.folder / METRICS).read_text(encoding="utf-8")))

    @cached_property
    def prepared(self) -> Prepared:
        """Pairs and features, from the source and the cache.

        Raises:
            InputError: The source is gone, or is not what the run was made of.
        """
        limit_threads()
        return reopen(self.config, self.folder, self.metrics, self.progress)

    @cached_property
    def matchers(self) -> list[Matcher]:
        """The trained matchers, in evaluation mode."""
        make, matchers, device = matcher_factory(self.config, self.prepared), [], self._device()
        for k in range(self.config.method.networks):
            matcher = make()
            matcher.load_state_dict(under(read_tensors(weights(self.folder, k))[0], "matcher."))
            matchers.append(matcher.to(device).eval())
        return matchers

    def _device(self) -> torch.device:
        return pick_device(self.config.train.device)

    def _mixed(self) -> torch.autocast:
        return mixed(self._device(), self.config.train)

    def evaluate(self, split: str = "test", folds: int = 1) -> dict[str, dict[str, float]]:
        """Recall in percent on a split, for `ensemble` and each network.

        Args:
            split: `train`, `dev` or `test`.
            folds: Rank within this many consecutive parts of the images and average (5 for COCO-1K).
        """
        if split not in SPLITS:
            raise InputError(f"there is no split {split!r}; choose from {', '.join(SPLITS)}")
        pairs = self.prepared.pairs
        if not len(pairs.ids(split)):
            raise InputError(f"{pairs.source} has no usable pairs in {split} any more: choose another split")
        with self._mixed():
            return evaluate(self.matchers, self.prepared.features, pairs, split, folds)

    def pairs(self) -> pa.Table:
        """Return all judged pairs, worst first, with the columns of `pairs.parquet`.

        Raises:
            InputError: The run was imported, and its pairs have not been judged.
        """
        if not (self.folder / PAIRS_FILE).exists():
            raise InputError(f"{self.folder} holds an imported run: judge its pairs first, `pairsift audit`")
        return pyarrow.parquet.read_table(self.folder / PAIRS_FILE)

    def suspects(self) -> pa.Table:
        """Return the flagged pairs, worst first, as in `suspects.csv` but with all text as it is.

        Raises:
            InputError: The run was imported, and its pairs have not been judged.
        """
        return suspects(self.pairs())

    def audit(self, belief: Belief | None = None) -> pa.Table:
        """Judge every usable pair and write `pairs.parquet`, `suspects.csv`, `metrics.json` and `report.html`.

        Args:
            belief: What held-out evidence says of the pairs; by default it is computed again.
        """
        pairs = self.prepared.pairs
        ids = pairs.ids()
        if belief is None:
            cache = self.config.cache
            belief = Believer(self.prepared, self.folder, self.config.train.seed, cache, self.progress).again()
        given = belief.verdicts
        flagged = (belief.probability < 0.5) & given
        words = worded(ids, flagged, self.folder, given)
        suggested = self._suggested(belief, flagged)
        table = pair_table(pairs, ids, belief.probability, flagged, words, suggested)
        metrics = {**self.metrics, "verdicts_given": given, "noise_rate": rate_of(belief)}
        metrics["warnings"] = warnings_of(self.prepared, belief, metrics)
        if pairs.noise is not None:
            metrics["noise_rate"]["true"] = pairs.noise.rate
            metrics["detection"] = detection(table)
        metrics["detectors"] = detector_scores(table, belief.detectors, ids)
        if found := kinds(table):
            metrics["verdicts"] = found
        write_tables(table, self.folder)
        metrics.pop("changes", None)
        if self.prepared.changes is not None:
            metrics["changes"] = asdict(self.prepared.changes)
        write_skipped(pairs, self.folder / SKIPPED)
        write_json(self.folder / METRICS, metrics)
        self.metrics = metrics
        self._search = self._indexed()
        self._search.index.write(self.folder)
        self.report(table)
        return table

    def _suggested(self, belief: Belief, flagged: NDArray[np.bool_]) -> Ints:
        """For each flagged pair the id of the pair whose caption fits, -1 for none."""
        pairs = self.prepared.pairs
        ids, rows = pairs.ids(), pairs.images()
        owner = np.searchsorted(rows, pairs.image_of[ids]).astype(np.int64)
        gallery = Gallery.of(self.matchers, self.prepared.features, rows, ids)
        believed = belief.probability >= 0.5
        if (believed & ~pairs.trained[ids]).any():
            believed &= ~pairs.trained[ids]
        with self._mixed():
            found = suggest(gallery, owner, flagged, believed, self.config.train.seed)
        return drop_same_text(pairs, ids, np.where(found >= 0, ids[found], -1))

    def report(self, table: pa.Table) -> Path:
        """Write `report.html`; returns its path."""
        log = (self.folder / LOG).read_text(encoding="utf-8").splitlines()
        path = self.folder / REPORT
        lines = [json.loads(line) for line in log]
        write_report(path, self.prepared.pairs, table, self.metrics, lines, self.config.tree())
        return path

    def search(self, query: str, k: int = 10) -> list[tuple[str, float]]:
        """Images that a text describes, best first.

        Args:
            query: The text.
            k: How many images.

        Returns:
            Path and score of each image (its name where the source has features instead of images). The score is the
            matcher's similarity, averaged over the networks: the cosine of the global vectors, in [-1, 1], where the
            matcher factorises. Where it does not, the score is on the matcher's own scale, and the images are the best
            of the 200 whose global vectors come closest to the text's.
        """
        return self._search.find(query, k)

    @cached_property
    def _search(self) -> Search:
        """The run's images as its folder keeps them, or made anew from the source."""
        kept = Search.open(self.folder, self.config.source)
        if kept is not None:
            return kept
        made = self._indexed()
        with suppress(WriteError):  # a folder that is open for reading only can be searched too
            made.index.write(self.folder)
        return made

    def _indexed(self) -> Search:
        """Encode all images of the source."""
        prepared = self.prepared
        facts = {"sizes": matcher_sizes(self.config, prepared), "text_encoder": text_name(self.config, prepared.pairs)}
        index = make_index(self.matchers, prepared.pairs, prepared.features, facts)
        features = None if self.matchers[0].factorises else prepared.features.images
        return Search(prepared.texts, self.matchers, index, self.config.source, features)
