"""Held-out evidence on a run's pairs: of the training pairs before training, of all pairs after it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from pairsift.arrays import Ints, text_numbers
from pairsift.detect.folds import make_folds
from pairsift.detect.judged_pairs import JudgedPairs, PairVectors
from pairsift.detect.judgement import Judgement, Networks, judge_pairs
from pairsift.detect.near_mismatches import judge_near_mismatches
from pairsift.encode.features import Features
from pairsift.files import read_parquet, write_parquet
from pairsift.match.two_tower import LINEAR, TwoTower
from pairsift.progress import progress
from pairsift.run_folder import TRUST
from pairsift.runs.config import Config
from pairsift.runs.features import evidence_vectors, rows_of
from pairsift.runs.fold_networks import FoldNetworks
from pairsift.runs.judgements import judgement_file, keep_judgement, read_judgement
from pairsift.runs.prepare import Prepared
from pairsift.steps import Prior
from pairsift.train.batches import Likeness

MARGIN = 0.05  # share of the pairs that a division may call mismatched beyond the upper end of the rate's interval


def of_training(prepared: Prepared) -> Prepared:
    """Return only the training pairs, for evidence that weights them in training.

    A dev or test pair would teach the networks by the weights of the training pairs, and then be retrieved better.
    """
    return replace(prepared, pairs=prepared.pairs.only("train"))


class Judge:
    """A judge of a run's pairs, by models that are not trained on them.

    Args:
        prepared: The run's pairs and features.
        folder: The run's folder, where the folds and their networks are saved.
        config: The run's options: the detector's, the seed, what is known of the mismatches, and the feature cache.
        shown: Whether to show progress.
        features: The features that evidence is computed from, if they are known (`evidence_features`).
    """

    def __init__(
        self,
        prepared: Prepared,
        folder: Path,
        config: Config,
        shown: bool,
        features: Features | None = None,
    ) -> None:
        self.pairs, self.folder, self.shown = prepared.pairs, folder, shown
        self.cache = config.cache
        self.options, self.seed = config.detect, config.train.seed
        self.ids = self.pairs.ids()
        self.vectors = evidence_vectors(prepared, self.ids, config.cache, shown, features)
        rows = self.pairs.images()
        image_rows = np.searchsorted(rows, self.pairs.image_of[self.ids]).astype(np.int64)
        captions = rows_of(self.vectors.captions, self.ids)
        vectors = PairVectors(
            rows_of(self.vectors.images, rows),
            captions,
            image_rows,
            text_numbers([self.pairs.captions[pair] for pair in self.ids]),
            np.asarray(self.pairs.split[self.ids] == "train"),
            self.vectors.ngrams,
            prepared.aligned,
        )
        judged = JudgedPairs.make(vectors, self.options)
        self.judged = replace(judged, image_of=rows[judged.image_of])
        self.rows, self.image_rows = rows, image_rows
        self.near_by = captions if config.data.mismatches == "near" else None
        self.networks = FoldNetworks(
            folder,
            self.pairs,
            self.judged,
            self.vectors,
            train=config.train,
            likeness=self.likeness,
            progress=shown,
        )

    @property
    def trains_networks(self) -> bool:
        """A bool: whether there are so many training pairs that networks, trained on folds, give evidence too."""
        return int(self.judged.in_train.sum()) >= self.options.networks.min_pairs

    def judge(self) -> Judgement:
        """Judge all pairs and save the folds. For many pairs, networks trained on folds give evidence too."""
        networks = (make_folds(*self._units(), self.seed), self.networks.trained) if self.trains_networks else ()
        judgement = self._judgement(*networks)
        write_trust(self.folder, self.ids, judgement)
        return judgement

    def judge_again(self, keep: bool = True) -> Judgement:
        """Judge the pairs of a finished run again, changed and new pairs too, by its saved folds and networks.

        Args:
            keep: Whether to keep the judgement in the cache.
        """
        if self.networks.exist:
            return self._judgement(self._saved_folds(), self.networks.saved)
        return self._judgement(keep=keep)

    def linear_matcher(self, judgement: Judgement) -> TwoTower:
        """Return the linear model of the pairs as far as they match, or the cosine where encoders share a space."""
        images, captions = self.vectors.images, self.vectors.captions
        aligned = self.judged.aligned is not None
        matcher = TwoTower(images.dim, captions.dim, LINEAR, aligned)
        if not aligned:
            pairs = rows_of(images, self.pairs.image_of[self.ids]), rows_of(captions, self.ids)
            matcher.start_linear(*pairs, judgement.probability, self.options)
        return matcher.eval()

    def likeness(self) -> Likeness:
        """Return the groups of images and captions that are too similar to be each other's negatives."""
        group = np.zeros(len(self.rows), np.int64)
        group[self.image_rows] = self.judged.group_of
        first_of_group = np.unique(group, return_index=True)[1]
        images = np.arange(self.pairs.n_images)
        images[self.rows] = self.rows[first_of_group[group]]
        return Likeness(images, text_numbers(self.pairs.captions))

    def prior(self, judgement: Judgement) -> Prior:
        """Return the prior of the methods. Without verdicts, every pair counts as matching."""
        probability = np.ones(len(self.pairs), np.float32)
        if not judgement.verdicts:
            return Prior(probability, 0.0, 1.0)
        probability[self.ids] = judgement.probability
        return Prior(probability, judgement.rate, min(1.0, judgement.high + MARGIN))

    def _judgement(self, fold: Ints | None = None, networks: Networks | None = None, keep: bool = True) -> Judgement:
        """Judge all pairs beside captions of any images, and beside near captions if they are expected."""
        bar = [partial(progress, title="judging", unit="models")] if self.shown else []
        if self.near_by is not None:
            memory = partial(self.networks.memory, options=self.options)
            parts = self.judged, self.near_by, self.seed, memory, fold, networks, self.options
            return judge_near_mismatches(*parts, *bar)
        if networks is not None:
            return judge_pairs(self.judged, self.seed, fold, networks, self.options, *bar)
        file = judgement_file(self.judged, self.seed, self.options, self.cache)
        kept = read_judgement(file, self.options)
        if kept is None:
            kept = judge_pairs(self.judged, self.seed, None, None, self.options, *bar)
            if keep:
                keep_judgement(file, kept)
        return kept

    def _saved_folds(self) -> Ints:
        """Return each judged pair's fold: the saved one, else its image's or near-duplicates', else a new one.

        Raises:
            InputError: The file with the folds is missing or damaged.
        """
        table = read_parquet(self.folder / TRUST)
        saved = np.full(max(len(self.pairs), max(table["pair"].to_pylist(), default=-1) + 1), -1, np.int64)
        saved[table["pair"].to_numpy()] = table["fold"].to_numpy()
        fold, group = saved[self.ids], self._units()[0]
        of_group = np.full(int(group.max(initial=-1)) + 1, -1, np.int64)
        of_group[group[fold >= 0]] = fold[fold >= 0]
        new_fold = make_folds(group, int(fold.max()) + 1, self.seed)
        return np.where(fold >= 0, fold, np.where(of_group[group] >= 0, of_group[group], new_fold))

    def _units(self) -> tuple[Ints, int]:
        """Return the unit of each pair that the folds of networks keep together, (n,), and the number of folds."""
        return self.judged.units(self.options.networks.max_folds, self.options.folds)


def write_trust(folder: Path, ids: Ints, judgement: Judgement) -> None:
    """Write the fold of each judged pair and what each kind of evidence says, by id, (n,), into a run's folder."""
    columns = {"pair": ids, "fold": judgement.fold, "match_probability": judgement.probability}
    write_parquet(folder / TRUST, pa.table({**columns, **judgement.detectors}))
