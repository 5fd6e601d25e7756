"""What a judge of pairs has learned, by which it finds the evidence of pairs that it has not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pairsift.arrays import Ints, Reals
from pairsift.detect.combination import Combination, SiblingRound
from pairsift.detect.evidence import (
    Evidence,
    Neighbours,
    PairEncoder,
    contrast_with,
    fit_neighbours,
    sibling_encoder,
)
from pairsift.detect.folds import Folds
from pairsift.detect.judged_pairs import JudgedPairs
from pairsift.detect.linear import Canonicals, fit_canonicals
from pairsift.detect.options import DetectOptions


@dataclass(frozen=True)
class Models:
    """The models of the kinds of evidence that need no networks.

    Attributes:
        linear: The canonical variates of each fold.
        by_images: Captions that are predicted from the nearest images.
        by_captions: Images that are predicted from the nearest captions.
    """

    linear: Canonicals
    by_images: Neighbours
    by_captions: Neighbours

    @staticmethod
    def fit(judged: JudgedPairs, folds: Folds, seed: int, options: DetectOptions, trust: Reals | None) -> Models:
        """Fit the models of each fold to the other folds; see `kinds_of`."""
        sides = judged.images, judged.captions
        return Models(
            fit_canonicals(folds, *sides, options.linear, trust),
            *fit_neighbours(folds, *sides, seed, options.neighbours, trust),
        )

    def shared(self, judged: JudgedPairs) -> dict[str, PairEncoder]:
        """Return the encoders of these pairs in the spaces that images and captions share, by the kind of evidence."""
        found = {"linear": self.linear.encoder(judged.images, judged.captions)}
        if judged.aligned is not None:
            images, captions = (torch.from_numpy(vectors) for vectors in judged.aligned)
            found["cosine"] = lambda fold, members: (images[members], captions[members])
        return found

    def predicted(self, judged: JudgedPairs) -> dict[str, PairEncoder]:
        """Return the encoders of these pairs with one side predicted by neighbours, by the kind of evidence."""
        sides = judged.images, judged.captions
        return {"near_images": self.by_images.encoder(*sides), "near_captions": self.by_captions.encoder(*sides)}


@dataclass(frozen=True)
class FittedDivision:
    """What is learned by one division of the pairs into folds.

    Attributes:
        fold_of_group: Fold of each group of near-duplicate images, (groups,).
        models: The models of the kinds of evidence.
        kinds: The kinds of evidence of the pairs that were learned from, in the order in which they are combined.
        first: The combination without siblings.
        rounds: The combinations with siblings.
        evidence: The combined evidence of the pairs that were learned from.
        images: Number of their images, with which the numbers of placeholder captions begin.
        options: The options of the detector.
    """

    fold_of_group: Ints
    models: Models
    kinds: Mapping[str, Evidence]
    first: Combination
    rounds: Sequence[SiblingRound]
    evidence: Evidence
    images: int
    options: DetectOptions

    def folds_of(self, group_of: Ints, key: Ints) -> Ints:
        """Return the fold that judges each pair: the one of its group where it is known, else one by its key, (n,)."""
        known = len(self.fold_of_group)
        count = int(self.fold_of_group.max(initial=0)) + 1
        return np.where(group_of < known, self.fold_of_group[np.minimum(group_of, known - 1)], key % count)

    def placeholder_of(self, judged: JudgedPairs) -> Ints:
        """Return the number of the placeholder that each pair has, -1 for none, (n,); empty where there are none."""
        found = np.unique(self.evidence.placeholder)
        if found.max(initial=-1) < 0:
            return np.zeros(0, np.int64)
        of_images, of_texts = found[(found >= 0) & (found < self.images)], found[found >= self.images] - self.images
        by_text = np.where(np.isin(judged.text_of, of_texts), judged.text_of + self.images, -1)
        return np.where(np.isin(judged.image_of, of_images), judged.image_of, by_text)

    def _probability(self, one: SiblingRound, combined: Reals, judged: JudgedPairs) -> Reals:
        """Return the match probability of each pair by a round's calibration, (n,).

        Pairs of a placeholder have the one of the pairs that were learned from (`with_placeholders`), so that it does
        not depend on what is judged beside them.
        """
        found = one.calibration.of_pairs(combined, judged.in_train.astype(np.int64) * one.separate)
        placeholder = self.placeholder_of(judged)
        if not len(placeholder):
            return found
        learned = np.bincount(self.evidence.placeholder + 1, minlength=int(placeholder.max()) + 2)
        return np.where(placeholder < 0, found, 1 / (learned[placeholder + 1] + 2))

    def evidence_of(self, judged: JudgedPairs, fold: Ints) -> tuple[Reals, dict[str, Reals]]:
        """Return the combined evidence of pairs, and that of each kind, (n,) each.

        Args:
            judged: Pairs with the components of the pairs that were learned from, and with the numbers of these for
                groups, images and texts that were there.
            fold: Fold that judges each pair, (n,).
        """
        scale, shared = self.options.contrast.scale, self.models.shared(judged)
        values = {
            name: contrast_with(self.kinds[name].references, encode, fold, judged.group_of, scale)
            for name, encode in (shared | self.models.predicted(judged)).items()
        }
        combined = self.first.combined(np.stack([*values.values()], 1), fold, judged.in_train)
        for one in self.rounds:
            probability = self._probability(one, combined, judged)
            for name, encode in shared.items():
                joined = sibling_encoder(encode, judged.image_of, probability, self.options.siblings.weight)
                beside = one.references[name]
                values[f"{name}_siblings"] = contrast_with(beside, joined, fold, judged.group_of, scale)
            combined = one.combination.combined(np.stack([*values.values()], 1), fold, judged.in_train)
        return combined, values
