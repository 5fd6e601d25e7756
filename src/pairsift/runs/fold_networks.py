"""The networks that give evidence on pairs that they were not trained on, in the folder of a run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pairsift.arrays import Ints, Reals
from pairsift.detect.evidence import Evidence, PairEncoder, contrast, memory_evidence
from pairsift.detect.folds import Folds, copy_of
from pairsift.detect.judged_pairs import JudgedPairs
from pairsift.detect.options import DetectOptions
from pairsift.encode.features import Features, Items
from pairsift.files import make_folder
from pairsift.loss.ranking import InfoNCE
from pairsift.match.base import Matcher
from pairsift.match.two_tower import TwoTower
from pairsift.methods.crossfit import Crossfit
from pairsift.methods.plain import TrainEpochs
from pairsift.pairs.pairs import UNUSED, Pairs
from pairsift.runs.features import EvidenceVectors, rows_of
from pairsift.steps import Prior
from pairsift.train.batches import Likeness
from pairsift.train.checkpoint import read_tensors, write_tensors
from pairsift.train.loop import Job, Trainer
from pairsift.train.options import TrainOptions

LR = TrainOptions().lr  # half of it where networks learn mismatched pairs too, which they then know less by heart


class FoldNetworks:
    """Networks that are each trained without one fold of a run's pairs, and their weights in the run's folder.

    Args:
        folder: The run's folder.
        pairs: The run's pairs.
        judged: The pairs that are judged.
        vectors: The vectors that the networks compare.
        train: Seed, device and precision of their training.
        likeness: A function that returns the groups of images and captions that are no negatives of each other.
        progress: Whether to print progress.
    """

    def __init__(
        self,
        folder: Path,
        pairs: Pairs,
        judged: JudgedPairs,
        vectors: EvidenceVectors,
        *,
        train: TrainOptions,
        likeness: Callable[[], Likeness],
        progress: bool,
    ) -> None:
        self.folder, self.pairs, self.judged, self.vectors = folder, pairs, judged, vectors
        self.train, self.likeness, self.progress = train, likeness, progress
        self.ids = pairs.ids()

    @property
    def exist(self) -> bool:
        """A bool: whether the folder holds networks."""
        return self._weights(0).exists()

    def _weights(self, number: int) -> Path:
        return self.folder / "model" / f"fold_{number}.safetensors"

    def _matcher(self) -> TwoTower:
        aligned = self.judged.aligned is not None
        return TwoTower(self.vectors.images.dim, self.vectors.captions.dim, aligned=aligned)

    def trained(self, folds: Folds, trust: Reals) -> PairEncoder:
        """Train the networks that the folder lacks, and return the encoder of all.

        Args:
            folds: The folds of the judged pairs.
            trust: Match probability of each pair by evidence that did not see the fold, (folds, n).
        """
        for number in range(folds.count):
            self._network(number, folds.fold, trust[number])
        shutil.rmtree(self.folder / "folds", ignore_errors=True)
        return self.saved(folds, trust)

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
        split = self.pairs.split.astype("<U7")
        split[self.ids[self.judged.in_train & (fold == number)]] = UNUSED
        network = self._trained(replace(self.pairs, split=split), self.folder / "folds" / str(number), known)
        write_tensors(self._weights(number), network.state_dict())

    def _trained(self, pairs: Pairs, folder: Path, prior: Prior, lr: float = LR) -> Matcher:
        """Train one network on the training pairs among these, whose checkpoints go to the folder."""
        make_folder(folder / "model")
        job = Job(
            pairs,
            Features(self.vectors.images, self.vectors.captions),
            self._matcher,
            Crossfit(epochs=TrainEpochs(warmup=0, train=None), networks=1),
            InfoNCE(base=1.0),
            TrainOptions(lr=lr, seed=self.train.seed, device=self.train.device, precision=self.train.precision),
            folder,
            False,
            prior,
            self.likeness(),
        )
        trainer = Trainer(job)
        trainer.run(resume=True)
        return trainer.networks[0].matcher

    def memory(self, folds: Folds, rows: Ints, options: DetectOptions) -> Evidence:
        """Return the evidence of networks that are trained on pairs and on swaps of their captions.

        Args:
            folds: The folds of the judged pairs in these rows.
            rows: The rows, (m,).
            options: The options of the detector.
        """
        copies, folder = options.near_mismatches.copies, self.folder / "copies"
        of_copies = np.zeros((copies, len(folds)))
        for number in range(copies):
            if self.progress:
                print(f"evidence of learned pairs: network {number + 1} of {copies}", file=sys.stderr, flush=True)
            swapped = copy_of(folds, number)
            shutil.rmtree(folder, ignore_errors=True)
            believed = Prior(np.ones(len(self.pairs), np.float32), 0.0, 1.0)
            network = self._trained(self._as_train(self.ids[rows], swapped), folder, believed, LR / 2)
            encode = self._encoder([network.cpu().eval()], self.ids[rows], swapped.image_of)
            of_copies[number] = contrast(swapped, encode, self.train.seed, options).pairs
        shutil.rmtree(folder, ignore_errors=True)
        return memory_evidence(folds, of_copies, self.train.seed)

    def _as_train(self, ids: Ints, swapped: Folds) -> Pairs:
        """Return only these pairs, as training pairs with the images of a copy."""
        split, image_of = np.full(len(self.pairs), UNUSED, "<U7"), self.pairs.image_of.copy()
        split[ids], image_of[ids] = "train", swapped.image_of
        return replace(self.pairs, split=split, image_of=image_of)

    def saved(self, folds: Folds, trust: Reals) -> PairEncoder:
        """Return the encoder of pairs by the networks in the folder that were not trained on their folds."""
        matchers = []
        for number in range(folds.count):
            matcher = self._matcher()
            matcher.load_state_dict(read_tensors(self._weights(number))[0])
            matchers.append(matcher.eval())
        return self._encoder(matchers, self.ids, self.judged.image_of)

    def _encoder(self, matchers: Sequence[Matcher], ids: Ints, image_of: Ints) -> PairEncoder:
        """Return a function that encodes these pairs, each with its image, (n,), by the network of their fold."""

        def encode(fold: int, members: Ints) -> tuple[Tensor, Tensor]:
            images = rows_of(self.vectors.images, image_of[members])
            captions = rows_of(self.vectors.captions, ids[members])
            with torch.no_grad():
                image_vectors = matchers[fold].encode_images(Items(torch.from_numpy(images))).vectors
                caption_vectors = matchers[fold].encode_texts(Items(torch.from_numpy(captions))).vectors
            return image_vectors, caption_vectors

        return encode
