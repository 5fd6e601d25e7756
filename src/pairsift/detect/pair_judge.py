"""A judge that learns from some pairs, and judges these and any number of others beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pairsift.arrays import Array, Bools, Floats, Ints, Reals
from pairsift.detect.calibration import calibrate_sides, quantile_among
from pairsift.detect.fitted import FittedDivision
from pairsift.detect.folds import NearRows, centred_rows, fingerprints
from pairsift.detect.judged_pairs import JudgedPairs, PairVectors, Reduction, with_finite_vectors
from pairsift.detect.judgement import (
    SHIPPED,
    Folding,
    Judgement,
    Progress,
    judge_divisions,
    judgement_of,
    mean_judgement,
    silent,
    with_few_threads,
)
from pairsift.detect.options import DetectOptions


@dataclass(frozen=True)
class PairEvidence:
    """What a judge finds of pairs that it did not learn from.

    Attributes:
        combined: Combined evidence by each division into folds, (divisions, n).
        placeholder: Number of each pair's placeholder in each division, -1 for none, (divisions, n).
        detectors: By kind of evidence, the share of decoys that have no more of it than each pair, (0, 1), (n,).
        fold: Fold of the first division that judges each pair, (n,).
        group: Group of near-duplicate images of each pair, numbered from 0, after those of the learned pairs where it
            is none of these, (n,).
        in_train: Whether each pair is a training pair, (n,).
        verified: Whether each pair is known to match, (n,).
    """

    combined: Reals
    placeholder: Ints
    detectors: Mapping[str, Floats]
    fold: Ints
    group: Ints
    in_train: Bools
    verified: Bools


@dataclass(frozen=True)
class LearnedPairs:
    """The pairs that a judge learned from, as far as it needs them to judge others.

    Attributes:
        images: Vectors of their images, (m, d).
        row_of: Row of each pair's image among the vectors, (n,).
        image_of: Number of each pair's image, (n,).
        group_of: Group of near-duplicate images of each pair, (n,).
        in_train: Whether each pair is a training pair, (n,).
        verified: Whether each pair is known to match, (n,).
    """

    images: Floats
    row_of: Ints
    image_of: Ints
    group_of: Ints
    in_train: Bools
    verified: Bools

    @cached_property
    def by_print(self) -> tuple[Array, Ints, Ints]:
        """The fingerprints of the images, ascending, their numbers, and the group of the image in each row."""
        number, group = np.zeros((2, len(self.images)), np.int64)
        number[self.row_of], group[self.row_of] = self.image_of, self.group_of
        prints, first = np.unique(fingerprints(self.images), return_index=True)
        return prints, number[first], group


@dataclass(frozen=True)
class PairJudge:
    """A judge that has learned from pairs, by models that saw neither them nor others when they judge them.

    Attributes:
        learned: The pairs that it learned from.
        reduction: The components.
        foldings: The divisions into folds.
        judgements: The judgement about these pairs by each division.
        divisions: What was learned by each division.
        options: The options of the detector.
    """

    learned: LearnedPairs
    reduction: Reduction
    foldings: Sequence[Folding]
    judgements: Sequence[Judgement]
    divisions: Sequence[FittedDivision]
    options: DetectOptions

    @staticmethod
    def fit(pairs: PairVectors, seed: int, options: DetectOptions = SHIPPED, progress: Progress = silent) -> PairJudge:
        """Learn from pairs as `judge_pairs` does.

        Args:
            pairs: The pairs.
            seed: Seed of folds, decoys and resampling.
            options: The options of the detector.
            progress: Progress of the judgement, as for `judge_pairs`.
        """
        reduction = Reduction.fit(pairs, options.linear)
        judged = with_finite_vectors(JudgedPairs.make(pairs, options, reduction))
        with with_few_threads(len(pairs)):
            foldings, fitted = judge_divisions(judged, seed, options=options, progress=progress)
        learned = LearnedPairs(
            pairs.images, pairs.image_of, judged.image_of, judged.group_of, pairs.in_train, pairs.known_verified()
        )
        judgements, divisions = zip(*fitted, strict=True)
        return PairJudge(learned, reduction, foldings, judgements, divisions, options)

    @cached_property
    def _near_rows(self) -> tuple[NearRows, Floats]:
        """The images that were learned from, among which near-duplicates are found, and their mean."""
        images = self.learned.images
        mean = images.mean(0)
        return NearRows(centred_rows(images, mean), len(images), self.options.folds.near_duplicate_cosine), mean

    def evidence(self, pairs: PairVectors) -> PairEvidence:
        """Return the evidence of pairs that were not learned from.

        An image that is a near-duplicate of a learned one is judged by the models that did not see that one.

        Args:
            pairs: The pairs; texts have the numbers that they have among the learned pairs, or others. All pairs of an
                image should be among them, since its other captions count.
        """
        judged = with_finite_vectors(self._beside(pairs))
        key = (fingerprints(pairs.images)[pairs.image_of] >> np.uint64(32)).astype(np.int64)  # low bits may be alike
        combined, placeholders, folds = [], [], []
        detectors: dict[str, list[Reals]] = {}
        with with_few_threads(len(pairs)):
            for division in self.divisions:
                folds.append(division.folds_of(judged.group_of, key))
                evidence, kinds = division.evidence_of(judged, folds[-1])
                combined.append(evidence)
                placeholders.append(division.placeholder_of(judged))
                for name, values in kinds.items():
                    quantile = quantile_among(values, np.sort(division.kinds[name].decoys))
                    detectors.setdefault(name, []).append(quantile)
        means = {name: np.mean(found, 0).astype(np.float32) for name, found in detectors.items()}
        return PairEvidence(
            np.stack(combined),
            np.stack(placeholders),
            means,
            folds[0],
            judged.group_of,
            pairs.in_train,
            pairs.known_verified(),
        )

    def _beside(self, pairs: PairVectors) -> JudgedPairs:
        """Return pairs with the components of the learned ones, and with their numbers for images that are there."""
        prints, number, group = self.learned.by_print
        place = np.searchsorted(prints, own := fingerprints(pairs.images))
        known = prints[np.minimum(place, len(prints) - 1)] == own
        new = np.arange(len(own))
        image_of = np.where(known, number[np.minimum(place, len(prints) - 1)], int(number.max()) + 1 + new)
        rows, mean = self._near_rows
        near, learned = rows.pairs(centred_rows(pairs.images, mean), len(own))
        group_of = int(group.max()) + 1 + new
        group_of[near] = group[learned]
        return JudgedPairs(
            *self.reduction.sides(pairs),
            pairs.text_of,
            image_of[pairs.image_of],
            group_of[pairs.image_of],
            pairs.in_train,
            pairs.aligned_sides(),
        )

    def judgement(self, others: Sequence[PairEvidence] = ()) -> Judgement:
        """Return the judgement about the learned pairs, followed by others.

        Rates and match probabilities are those of all these pairs together.

        Args:
            others: The evidence of the other pairs.
        """
        pairs = self.learned
        learned = mean_judgement(self.judgements, pairs.verified, pairs.group_of)
        if not others:
            return learned

        def joined(own: Array, of_others: Iterable[Array]) -> Array:
            return np.concatenate([own, *of_others])

        in_train = joined(pairs.in_train, (one.in_train for one in others))
        judgements = []
        for row, (folding, division) in enumerate(zip(self.foldings, self.divisions, strict=True)):
            own = division.evidence
            evidence = replace(
                own,
                pairs=joined(own.pairs, (one.combined[row] for one in others)),
                placeholder=joined(own.placeholder, (one.placeholder[row] for one in others)),
            )
            options = self.options.calibration
            calibration, group = calibrate_sides(evidence, in_train, folding.seed, folding.resamples, options)
            fold = joined(folding.fold, (one.fold for one in others))
            judgement = judgement_of(calibration, group, fold, {}, self.options.verdicts)
            near = self.judgements[row].near_auroc
            judgements.append(replace(judgement, near_auroc=near, placeholder=evidence.placeholder))
        verified = joined(pairs.verified, (one.verified for one in others))
        detectors = {
            name: joined(values, (one.detectors[name] for one in others)) for name, values in learned.detectors.items()
        }
        return replace(mean_judgement(judgements, verified, self._groups(others)), detectors=detectors)

    def _groups(self, others: Sequence[PairEvidence]) -> Ints:
        """Return the group of near-duplicate images of the learned pairs, followed by others, (n,)."""
        groups, learned = [self.learned.group_of], int(self.learned.group_of.max()) + 1
        after = learned
        for one in others:
            groups.append(np.where(one.group < learned, one.group, one.group + after - learned))
            after = max(after, int(groups[-1].max(initial=0)) + 1)
        return np.concatenate(groups)
