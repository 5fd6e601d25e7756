"""Held-out evidence on a run's pairs, computed before training, and its files in the run's folder."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from pairsift.arrays import Ints, Reals, unit_rows
from pairsift.detect.contrast import Codes, Evidence, contrast
from pairsift.detect.crossfit import CrossFit, make_folds, near_duplicates, text_numbers
from pairsift.detect.heldout import Belief, JudgedPairs, Networks, believe
from pairsift.detect.linear import principal
from pairsift.detect.near import believe_near
from pairsift.detect.placeholders import join_equal_images
from pairsift.detect.swaps import COPIES, copy_of, memory_evidence
from pairsift.encode.features import Features, Items
from pairsift.errors import InputError, writing
from pairsift.files import write_parquet
from pairsift.loss.ranking import InfoNCE
from pairsift.match.base import Matcher
from pairsift.match.two_tower import TwoTower
from pairsift.methods.crossfit import Crossfit
from pairsift.methods.plain import TrainEpochs
from pairsift.pairs.pairs import UNUSED, Pairs
from pairsift.run_folder import TRUST
from pairsift.runs.config import Config
from pairsift.runs.features import evidence_vectors, joined_vectors, rows_of
from pairsift.runs.prepare import Prepared
from pairsift.steps import Prior
from pairsift.train.batches import Likeness
from pairsift.train.checkpoint import read_tensors, write_tensors
from pairsift.train.loop import Job, Trainer
from pairsift.train.options import TrainOptions

# Smallest number of training pairs for which networks give evidence; they were less accurate than linear evidence at
# 800 pairs, and more accurate at 30,000.
NETWORKS_FROM = 10_000
FOLDS = 3  # largest number of folds, with one network each; together they cost about as much as the run's networks
LR = TrainOptions().lr  # half of it where networks learn mismatched pairs too, which they then know less by heart
MARGIN = 0.05  # share of the pairs that a division may call mismatched beyond the upper end of the rate's interval


def of_training(prepared: Prepared) -> Prepared:
    """Return the training pairs alone: evidence that weighs them in training must not know any other pair.

    A dev or test pair would teach the networks by the weights of the training pairs, and then be retrieved better.
    """
    pairs = prepared.pairs
    return replace(prepared, pairs=without(pairs, np.setdiff1d(pairs.ids(), pairs.ids("train"))))


def without(pairs: Pairs, ids: Ints) -> Pairs:
    """Return the pairs with some of them unused."""
    split = pairs.split.astype("<U7")
    split[ids] = UNUSED
    return replace(pairs, split=split)


class Believer:
    """A judge of a run's pairs, by models that are not trained on them.

    Args:
        prepared: The run's pairs and features.
        folder: The run's folder, where the folds and their networks are saved.
        config: The run's options; of these, the seed, what is known of the mismatches, and the feature cache.
        progress: Whether to print progress.
        features: The features that evidence is computed from, if they are known (`evidence_features`).
    """

    def __init__(
        self,
        prepared: Prepared,
        folder: Path,
        config: Config,
        progress: bool,
        features: Features | None = None,
    ) -> None:
        self.pairs, self.folder, self.options, self.progress = prepared.pairs, folder, config.train, progress
        self.seed = config.train.seed
        self.ids = self.pairs.ids()
        self.vectors = evidence_vectors(prepared, self.ids, config.cache, progress, features)
        rows = self.pairs.images()
        image_rows = np.searchsorted(rows, self.pairs.image_of[self.ids]).astype(np.int64)
        images = rows_of(self.vectors.images, rows)
        self.group = near_duplicates(images)
        self.rows = rows
        captions = rows_of(self.vectors.captions, self.ids)
        self.judged = JudgedPairs(
            principal(images)[image_rows],
            principal(joined_vectors(captions, self.vectors.ngrams)),
            [self.pairs.captions[pair] for pair in self.ids],
            join_equal_images(self.pairs.image_of[self.ids], images, image_rows),
            self.group[image_rows],
            np.asarray(self.pairs.split[self.ids] == "train"),
            (unit_rows(images)[image_rows], unit_rows(captions)) if prepared.aligned else None,
        )
        self.near_by = captions if config.data.mismatches == "near" else None

    def judge(self) -> Belief:
        """Judge all pairs and save the folds; for many pairs, networks that are trained on folds give evidence too."""
        if int(self.judged.in_train.sum()) < NETWORKS_FROM:
            return self._believe(None, None)
        return self._believe(make_folds(*self.judged.units(FOLDS), self.seed), self._networks)

    def judge_again(self, write: bool = True) -> Belief:
        """Judge the pairs of a finished run again, changed and new pairs too, by its saved folds and networks.

        Args:
            write: Whether to write what each kind of evidence says into the run's folder.
        """
        if self._weights(0).exists():
            return self._believe(self._saved_folds(), self._saved_networks, write)
        return self._believe(None, None, write)

    def likeness(self) -> Likeness:
        """Return the groups of images and captions that are too similar to be each other's negatives."""
        first_of_group = np.unique(self.group, return_index=True)[1]
        images = np.arange(self.pairs.n_images)
        images[self.rows] = self.rows[first_of_group[self.group]]
        return Likeness(images, text_numbers(self.pairs.captions))

    def prior(self, belief: Belief) -> Prior:
        """Return the prior of the methods; where there are no verdicts, every pair counts as matching."""
        probability = np.ones(len(self.pairs), np.float32)
        if not belief.verdicts:
            return Prior(probability, 0.0, 1.0)
        probability[self.ids] = belief.probability
        return Prior(probability, belief.rate, min(1.0, belief.high + MARGIN))

    def _believe(self, fold: Ints | None, networks: Networks | None, write: bool = True) -> Belief:
        """Judge all pairs beside captions of any images, and beside near ones where these are expected."""
        if self.near_by is None:
            belief = believe(self.judged, self.seed, fold, networks)
        else:
            belief = believe_near(self.judged, self.near_by, self.seed, self._memory, fold, networks)
        if not write:
            return belief
        columns = {"pair": self.ids, "fold": belief.fold, "match_probability": belief.probability}
        write_parquet(self.folder / TRUST, pa.table({**columns, **belief.detectors}))
        return belief

    def _saved_folds(self) -> Ints:
        """Return each judged pair's fold: its saved fold, else that of its image or near-duplicates, else a new fold.

        Raises:
            InputError: The file with the folds is missing or damaged.
        """
        path = self.folder / TRUST
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise InputError(
                f"{path}: cannot be read ({error}); take it from a copy of the run, or fit again"
            ) from error
        saved = np.full(max(len(self.pairs), max(table["pair"].to_pylist(), default=-1) + 1), -1, np.int64)
        saved[table["pair"].to_numpy()] = table["fold"].to_numpy()
        fold, group = saved[self.ids], self.judged.units(FOLDS)[0]
        of_group = np.full(int(group.max(initial=-1)) + 1, -1, np.int64)
        of_group[group[fold >= 0]] = fold[fold >= 0]
        new_fold = make_folds(group, int(fold.max()) + 1, self.seed)
        return np.where(fold >= 0, fold, np.where(of_group[group] >= 0, of_group[group], new_fold))

    def _weights(self, number: int) -> Path:
        return self.folder / "model" / f"fold_{number}.safetensors"

    def _matcher(self) -> TwoTower:
        aligned = self.judged.aligned is not None
        return TwoTower(self.vectors.images.dim, self.vectors.captions.dim, aligned=aligned)

    def _networks(self, fit: CrossFit, trust: Reals) -> Codes:
        """Train the networks of the folds that are not there yet, and return their codes."""
        for number in range(fit.folds):
            self._network(number, fit.fold, trust[number])
        shutil.rmtree(self.folder / "folds", ignore_errors=True)
        return self._saved_networks(fit, trust)

    def _network(self, number: int, fold: Ints, trust: Reals) -> None:
        """Train the network of a fold on the training pairs of the other folds.

        `trust` holds the match probability of each pair by evidence without this fold, (n,).
        """
        if self._weights(number).exists():
            return
        if self.progress:
            print(f"held-out evidence: network {number + 1} of {fold.max() + 1}", file=sys.stderr, flush=True)
        rows = np.flatnonzero((fold != number) & self.judged.in_train).astype(np.int64)
        probability = np.ones(len(self.pairs), np.float32)
        probability[self.ids[rows]] = trust[rows]
        known = Prior(probability, float(1 - trust[rows].mean()), 1.0)
        pairs = without(self.pairs, self.ids[self.judged.in_train & (fold == number)])
        network = self._trained(pairs, self.folder / "folds" / str(number), known)
        write_tensors(self._weights(number), network.state_dict())

    def _trained(self, pairs: Pairs, folder: Path, prior: Prior, lr: float = LR) -> Matcher:
        """Train one network on the training pairs among these, whose checkpoints go to the folder."""
        with writing(folder):
            (folder / "model").mkdir(parents=True, exist_ok=True)
        job = Job(
            pairs,
            Features(self.vectors.images, self.vectors.captions),
            self._matcher,
            Crossfit(epochs=TrainEpochs(warmup=0, train=None), networks=1),
            InfoNCE(base=1.0),
            TrainOptions(lr=lr, seed=self.seed, device=self.options.device, precision=self.options.precision),
            folder,
            False,
            prior,
            self.likeness(),
        )
        trainer = Trainer(job)
        trainer.run(resume=True)
        return trainer.networks[0].matcher

    def _memory(self, fit: CrossFit, rows: Ints) -> Evidence:
        """Return the evidence of networks that learn the pairs in these rows, and learn swaps of captions like them."""
        of_copies, folder = np.zeros((COPIES, len(fit))), self.folder / "copies"
        for number in range(COPIES):
            if self.progress:
                print(f"evidence of learned pairs: network {number + 1} of {COPIES}", file=sys.stderr, flush=True)
            swapped = copy_of(fit, number)
            shutil.rmtree(folder, ignore_errors=True)
            believed = Prior(np.ones(len(self.pairs), np.float32), 0.0, 1.0)
            network = self._trained(self._as_train(self.ids[rows], swapped), folder, believed, LR / 2)
            codes = self._codes([network.cpu().eval()], self.ids[rows], swapped.image_of)
            of_copies[number] = contrast(swapped, codes, self.seed).pairs
        shutil.rmtree(folder, ignore_errors=True)
        return memory_evidence(fit, of_copies, self.seed)

    def _as_train(self, ids: Ints, swapped: CrossFit) -> Pairs:
        """Return these pairs as training pairs with the images of a copy, and no others."""
        split, image_of = np.full(len(self.pairs), UNUSED, "<U7"), self.pairs.image_of.copy()
        split[ids], image_of[ids] = "train", swapped.image_of
        return replace(self.pairs, split=split, image_of=image_of)

    def _saved_networks(self, fit: CrossFit, trust: Reals) -> Codes:
        """Return codes of pairs by the networks that were not trained on their folds."""
        matchers = []
        for number in range(fit.folds):
            matcher = self._matcher()
            matcher.load_state_dict(read_tensors(self._weights(number))[0])
            matchers.append(matcher.eval())
        return self._codes(matchers, self.ids, self.judged.image_of)

    def _codes(self, matchers: Sequence[Matcher], ids: Ints, image_of: Ints) -> Codes:
        """Return a function that encodes these pairs by the network of their fold; each has an image, (n,)."""

        def codes(fold: int, members: Ints) -> tuple[Tensor, Tensor]:
            images = rows_of(self.vectors.images, image_of[members])
            captions = rows_of(self.vectors.captions, ids[members])
            with torch.no_grad():
                image_vectors = matchers[fold].encode_images(Items(torch.from_numpy(images))).vectors
                caption_vectors = matchers[fold].encode_texts(Items(torch.from_numpy(captions))).vectors
            return image_vectors, caption_vectors

        return codes
