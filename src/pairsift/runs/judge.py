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

from pairsift.arrays import Ints, Reals, text_numbers, unit_rows
from pairsift.detect.evidence import Evidence, PairEncoder, contrast, memory_evidence
from pairsift.detect.folds import Folds, copy_of, join_equal_images, make_folds, near_duplicates
from pairsift.detect.judgement import JudgedPairs, Judgement, Networks, judge_pairs
from pairsift.detect.linear import principal
from pairsift.detect.near_mismatches import judge_near_mismatches
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

LR = TrainOptions().lr  # half of it where networks learn mismatched pairs too, which they then know less by heart
MARGIN = 0.05  # share of the pairs that a division may call mismatched beyond the upper end of the rate's interval


def of_training(prepared: Prepared) -> Prepared:
    """Return the training pairs alone: evidence that weighs them in training must not know any other pair.

    A dev or test pair would teach the networks by the weights of the training pairs, and then be retrieved better.
    """
    return replace(prepared, pairs=prepared.pairs.only("train"))


def without(pairs: Pairs, ids: Ints) -> Pairs:
    """Return the pairs with some of them unused."""
    split = pairs.split.astype("<U7")
    split[ids] = UNUSED
    return replace(pairs, split=split)


class Judge:
    """A judge of a run's pairs, by models that are not trained on them.

    Args:
        prepared: The run's pairs and features.
        folder: The run's folder, where the folds and their networks are saved.
        config: The run's options: the detector's, the seed, what is known of the mismatches, and the feature cache.
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
        self.pairs, self.folder, self.progress = prepared.pairs, folder, progress
        self.train, self.options, self.seed = config.train, config.detect, config.train.seed
        self.ids = self.pairs.ids()
        self.vectors = evidence_vectors(prepared, self.ids, config.cache, progress, features)
        rows = self.pairs.images()
        image_rows = np.searchsorted(rows, self.pairs.image_of[self.ids]).astype(np.int64)
        images = rows_of(self.vectors.images, rows)
        self.group = near_duplicates(images, self.options.folds)
        self.rows = rows
        captions = rows_of(self.vectors.captions, self.ids)
        self.judged = JudgedPairs(
            principal(images, self.options.linear)[image_rows],
            principal(joined_vectors(captions, self.vectors.ngrams), self.options.linear),
            [self.pairs.captions[pair] for pair in self.ids],
            join_equal_images(self.pairs.image_of[self.ids], images, image_rows, self.options.folds.min_common),
            self.group[image_rows],
            np.asarray(self.pairs.split[self.ids] == "train"),
            (unit_rows(images)[image_rows], unit_rows(captions)) if prepared.aligned else None,
        )
        self.near_by = captions if config.data.mismatches == "near" else None

    def judge(self) -> Judgement:
        """Judge all pairs and save the folds; for many pairs, networks that are trained on folds give evidence too."""
        if int(self.judged.in_train.sum()) < self.options.networks.min_pairs:
            return self._judgement(None, None)
        return self._judgement(make_folds(*self._units(), self.seed), self._networks)

    def judge_again(self, write: bool = True) -> Judgement:
        """Judge the pairs of a finished run again, changed and new pairs too, by its saved folds and networks.

        Args:
            write: Whether to write what each kind of evidence says into the run's folder.
        """
        if self._weights(0).exists():
            return self._judgement(self._saved_folds(), self._saved_networks, write)
        return self._judgement(None, None, write)

    def likeness(self) -> Likeness:
        """Return the groups of images and captions that are too similar to be each other's negatives."""
        first_of_group = np.unique(self.group, return_index=True)[1]
        images = np.arange(self.pairs.n_images)
        images[self.rows] = self.rows[first_of_group[self.group]]
        return Likeness(images, text_numbers(self.pairs.captions))

    def prior(self, judgement: Judgement) -> Prior:
        """Return the prior of the methods; where there are no verdicts, every pair counts as matching."""
        probability = np.ones(len(self.pairs), np.float32)
        if not judgement.verdicts:
            return Prior(probability, 0.0, 1.0)
        probability[self.ids] = judgement.probability
        return Prior(probability, judgement.rate, min(1.0, judgement.high + MARGIN))

    def _judgement(self, fold: Ints | None, networks: Networks | None, write: bool = True) -> Judgement:
        """Judge all pairs beside captions of any images, and beside near ones where these are expected."""
        if self.near_by is None:
            judgement = judge_pairs(self.judged, self.seed, fold, networks, self.options)
        else:
            judgement = judge_near_mismatches(
                self.judged, self.near_by, self.seed, self._memory, fold, networks, self.options
            )
        if not write:
            return judgement
        columns = {"pair": self.ids, "fold": judgement.fold, "match_probability": judgement.probability}
        write_parquet(self.folder / TRUST, pa.table({**columns, **judgement.detectors}))
        return judgement

    def _saved_folds(self) -> Ints:
        """Return each judged pair's fold: the saved one, else its image's or near-duplicates', else a new one.

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
        fold, group = saved[self.ids], self._units()[0]
        of_group = np.full(int(group.max(initial=-1)) + 1, -1, np.int64)
        of_group[group[fold >= 0]] = fold[fold >= 0]
        new_fold = make_folds(group, int(fold.max()) + 1, self.seed)
        return np.where(fold >= 0, fold, np.where(of_group[group] >= 0, of_group[group], new_fold))

    def _units(self) -> tuple[Ints, int]:
        """Return what the folds of networks keep together, (n,), and their number."""
        return self.judged.units(self.options.networks.max_folds, self.options.folds)

    def _weights(self, number: int) -> Path:
        return self.folder / "model" / f"fold_{number}.safetensors"

    def _matcher(self) -> TwoTower:
        aligned = self.judged.aligned is not None
        return TwoTower(self.vectors.images.dim, self.vectors.captions.dim, aligned=aligned)

    def _networks(self, folds: Folds, trust: Reals) -> PairEncoder:
        """Train the networks of the folds that are not there yet, and return their encoder."""
        for number in range(folds.count):
            self._network(number, folds.fold, trust[number])
        shutil.rmtree(self.folder / "folds", ignore_errors=True)
        return self._saved_networks(folds, trust)

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
            TrainOptions(lr=lr, seed=self.seed, device=self.train.device, precision=self.train.precision),
            folder,
            False,
            prior,
            self.likeness(),
        )
        trainer = Trainer(job)
        trainer.run(resume=True)
        return trainer.networks[0].matcher

    def _memory(self, folds: Folds, rows: Ints) -> Evidence:
        """Return the evidence of networks that learn the pairs in these rows, and learn swaps of captions like them."""
        copies, folder = self.options.near_mismatches.copies, self.folder / "copies"
        of_copies = np.zeros((copies, len(folds)))
        for number in range(copies):
            if self.progress:
                print(f"evidence of learned pairs: network {number + 1} of {copies}", file=sys.stderr, flush=True)
            swapped = copy_of(folds, number)
            shutil.rmtree(folder, ignore_errors=True)
            believed = Prior(np.ones(len(self.pairs), np.float32), 0.0, 1.0)
            network = self._trained(self._as_train(self.ids[rows], swapped), folder, believed, LR / 2)
            encode = self._encoder([network.cpu().eval()], self.ids[rows], swapped.image_of)
            of_copies[number] = contrast(swapped, encode, self.seed, self.options).pairs
        shutil.rmtree(folder, ignore_errors=True)
        return memory_evidence(folds, of_copies, self.seed)

    def _as_train(self, ids: Ints, swapped: Folds) -> Pairs:
        """Return these pairs as training pairs with the images of a copy, and no others."""
        split, image_of = np.full(len(self.pairs), UNUSED, "<U7"), self.pairs.image_of.copy()
        split[ids], image_of[ids] = "train", swapped.image_of
        return replace(self.pairs, split=split, image_of=image_of)

    def _saved_networks(self, folds: Folds, trust: Reals) -> PairEncoder:
        """Return the encoder of pairs by the networks that were not trained on their folds."""
        matchers = []
        for number in range(folds.count):
            matcher = self._matcher()
            matcher.load_state_dict(read_tensors(self._weights(number))[0])
            matchers.append(matcher.eval())
        return self._encoder(matchers, self.ids, self.judged.image_of)

    def _encoder(self, matchers: Sequence[Matcher], ids: Ints, image_of: Ints) -> PairEncoder:
        """Return a function that encodes these pairs by the network of their fold; each has an image, (n,)."""

        def encode(fold: int, members: Ints) -> tuple[Tensor, Tensor]:
            images = rows_of(self.vectors.images, image_of[members])
            captions = rows_of(self.vectors.captions, ids[members])
            with torch.no_grad():
                image_vectors = matchers[fold].encode_images(Items(torch.from_numpy(images))).vectors
                caption_vectors = matchers[fold].encode_texts(Items(torch.from_numpy(captions))).vectors
            return image_vectors, caption_vectors

        return encode
