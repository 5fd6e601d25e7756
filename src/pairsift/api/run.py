"""A run's folder, opened: recall, issues, search."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch

from pairsift.api.config import Config
from pairsift.api.prepare import Prepared, matcher_factory, prepare, write_json
from pairsift.audit import detection, issue_table, kinds, worded, write_issues, write_report
from pairsift.audit.score import judge
from pairsift.audit.table import PAIRS_FILE
from pairsift.encode import Table
from pairsift.errors import InputError
from pairsift.match import Matcher
from pairsift.pairs import SPLITS, Pairs
from pairsift.pairs.pairs import Ints
from pairsift.retrieve.bank import Bank
from pairsift.retrieve.codes import KEPT_BYTES, Gallery, evaluate, find_images
from pairsift.train.checkpoint import read_tensors, under
from pairsift.train.loop import mixed, pick_device
from pairsift.train.options import TrainOptions

CONFIG, METRICS, LOG, REPORT = "config.yaml", "metrics.json", "log.jsonl", "report.html"


class Run:
    """A run whose training is over.

    Args:
        folder: Where it lies.
        prepared: Its pairs and features where they are at hand; they are read when first needed otherwise.
        progress: Whether slow steps show progress bars.

    Raises:
        InputError: The folder holds no finished run.
    """

    def __init__(self, folder: str | Path, prepared: Prepared | None = None, progress: bool = True) -> None:
        self.folder, self.progress = Path(folder), progress
        if not (self.folder / CONFIG).exists():
            raise InputError(f"{self.folder} holds no run: there is no {CONFIG}; make one with `pairsift fit`")
        if prepared is None and not self.finished(self.folder):
            raise InputError(f"{self.folder} holds an unfinished run: go on with `pairsift fit ... --resume`")
        self.config = Config.parse([f"--config={self.folder / CONFIG}"])
        if prepared is not None:
            self.prepared = prepared

    @staticmethod
    def finished(folder: Path) -> bool:
        """Whether a folder's run came to its end, or was imported."""
        metrics = folder / METRICS
        if (folder / PAIRS_FILE).exists() or not metrics.exists():
            return (folder / PAIRS_FILE).exists()
        return "imported" in json.loads(metrics.read_text(encoding="utf-8"))

    def weights(self, network: int) -> Path:
        """File of a network's weights."""
        return self.folder / "model" / f"network_{network}.safetensors"

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """What `metrics.json` holds."""
        return dict(json.loads((self.folder / METRICS).read_text(encoding="utf-8")))

    @cached_property
    def prepared(self) -> Prepared:
        """Pairs and features, from the source and the cache.

        Raises:
            InputError: The source is not what the run was made of.
        """
        return prepare(self.config, self.folder, self.metrics["data"]["hash"], self.progress)

    @property
    def pairs(self) -> Pairs:
        """The run's pairs."""
        return self.prepared.pairs

    @cached_property
    def matchers(self) -> list[Matcher]:
        """The trained matchers, in evaluation mode."""
        make, matchers, device = matcher_factory(self.config, self.prepared), [], self._device()
        for k in range(int(self.config.method().networks)):
            matcher = make()
            matcher.load_state_dict(under(read_tensors(self.weights(k))[0], "matcher."))
            matchers.append(matcher.to(device).eval())
        return matchers

    def _device(self) -> torch.device:
        return pick_device(self.config.group(TrainOptions).device)

    def _mixed(self) -> torch.autocast:
        return mixed(self._device(), self.config.group(TrainOptions))

    def evaluate(self, split: str = "test", folds: int = 1) -> dict[str, dict[str, float]]:
        """Recall in percent on a split, for `ensemble` and each network.

        Args:
            split: `train`, `dev` or `test`.
            folds: Rank within this many consecutive parts of the images and average (5 for COCO-1K).
        """
        if split not in SPLITS:
            raise InputError(f"there is no split {split!r}; choose from {', '.join(SPLITS)}")
        with self._mixed():
            return evaluate(self.matchers, self.prepared.features, self.pairs, split, folds)

    def issues(self) -> pa.Table:
        """All judged pairs, worst first: the columns of `pairs.parquet`.

        Raises:
            InputError: The run was imported, and its pairs have not been judged.
        """
        if not (self.folder / PAIRS_FILE).exists():
            raise InputError(f"{self.folder} holds an imported run: judge its pairs first, `pairsift audit`")
        return pyarrow.parquet.read_table(self.folder / PAIRS_FILE)

    def audit(self) -> pa.Table:
        """Judge every usable pair and write `pairs.parquet`, `issues.csv`, `metrics.json` and `report.html`."""
        pairs = self.pairs
        ids, rows = pairs.ids(), pairs.images()
        owner = np.searchsorted(rows, pairs.image_of[ids]).astype(np.int64)
        gallery = Gallery.of(self.matchers, self.prepared.features, rows, ids)
        train = np.asarray(pairs.split[ids] == "train")
        with self._mixed():
            verdicts = judge(gallery, owner, int(self.config["seed"]), train)
        suggested = np.where(verdicts.suggested >= 0, ids[verdicts.suggested], -1)
        words = worded(ids, verdicts.is_mismatch, self.folder)
        table = issue_table(pairs, ids, verdicts.score, verdicts.is_mismatch, words, suggested)
        metrics = {**self.metrics, "noise_rate": {"estimated": float(np.mean(1 - verdicts.score[train]))}}
        if pairs.noise is not None:
            metrics["noise_rate"]["true"] = pairs.noise.rate
            metrics["detection"] = detection(table)
        if found := kinds(table):
            metrics["verdicts"] = found
        write_issues(table, self.folder)
        write_json(self.folder / METRICS, metrics)
        self.metrics = metrics
        self.report(table)
        return table

    def report(self, table: pa.Table) -> Path:
        """Write `report.html`; returns its path."""
        log = (self.folder / LOG).read_text(encoding="utf-8").splitlines()
        path = self.folder / REPORT
        lines = [json.loads(line) for line in log]
        write_report(path, self.pairs, table, self.metrics, lines, dict(self.config.options))
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
        if not query.strip():
            raise InputError("the query is empty: give some words")
        items = Table.of(self.prepared.texts.encode([query]))
        one = np.zeros(1, np.int64)
        texts = [Bank.encoded(matcher, items, one, True, KEPT_BYTES) for matcher in self.matchers]
        rows, images = self._images
        found, scores = find_images(Gallery(self.matchers, images, texts), k)
        shown = self.pairs.paths if self.pairs.features is None else self.pairs.names
        return [(str(shown[rows[i]]), float(score)) for i, score in zip(found, scores, strict=True)]

    @cached_property
    def _images(self) -> tuple[Ints, list[Bank]]:
        rows = self.pairs.images(*SPLITS, "unused")
        images, keep = self.prepared.features.images, KEPT_BYTES // len(self.matchers)
        return rows, [Bank.encoded(matcher, images, rows, False, keep) for matcher in self.matchers]
