"""A judge that learns from some pairs, and judges these and any number of others beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from pairsift.arrays import Array, Bools, Floats, Ints, Reals
from pairsift.detect.calibration import calibrate_sides, quantile_among
from pairsift.detect.fitted import FittedDivision
from pairsift.detect.folds import CentredRows, NearRows, fingerprints
from pairsift.detect.judged_pairs import JudgedPairs, PairVectors, Reduction, with_finite_vectors
from pairsift.detect.judgement import (
    SHIPPED,
    Folding,
    Judgement,
    Progress,
    judge_divisions,
    judgement_of,
    mean_judgement,
    no_progress,
    with_few_threads,
)
from pairsift.detect.options import DetectOptions

BLOCK = 8192  # pairs of near images whose cosines are computed at once


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

    def room_for(self, count: int) -> PairEvidence:
        """Return evidence of the same kinds for so many pairs, which is not set yet."""

        def room(values: Array) -> Array:
            return np.empty((*values.shape[:-1], count if values.shape[-1] else 0), values.dtype)

        arrays = {field.name: room(getattr(self, field.name)) for field in fields(self) if field.name != "detectors"}
        return PairEvidence(**arrays, detectors={name: room(values) for name, values in self.detectors.items()})

    def put(self, places: Ints, part: PairEvidence) -> None:
        """Set the evidence of the pairs at these places, (m,)."""
        theirs = part._arrays()
        for name, values in self._arrays().items():
            if values.shape[-1]:  # else no pair has a placeholder
                values[..., places] = theirs[name]

    def _arrays(self) -> dict[str, Array]:
        """Return the arrays by the names of fields and of kinds of evidence."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "detectors"} | {
            f"detector {name}": values for name, values in self.detectors.items()
        }


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
    def fit(
        pairs: PairVectors, seed: int, options: DetectOptions = SHIPPED, progress: Progress = no_progress
    ) -> PairJudge:
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
        return NearRows(CentredRows(images, mean), len(images), self.options.folds.near_duplicate_cosine), mean

    def evidence(self, pairs: PairVectors) -> PairEvidence:
        """Return the evidence of pairs that were not learned from.

        An image that is a near-duplicate of learned ones is judged by the models that did not see the nearest of these.

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
        unit = CentredRows(pairs.images, mean)
        near, learned = rows.pairs(unit, len(own))
        blocks = np.array_split(np.arange(len(near)), max(1, -(-len(near) // BLOCK)))
        cosine = [(unit(near[block]) * rows.unit(learned[block])).sum(1).numpy() for block in blocks]
        order = np.argsort(np.concatenate(cosine), kind="stable")  # the nearest learned image comes last, and stays
        group_of = int(group.max()) + 1 + new
        group_of[near[order]] = group[learned[order]]
        return JudgedPairs(
            *self.reduction.sides(pairs),
            pairs.text_of,
            image_of[pairs.image_of],
            group_of[pairs.image_of],
            pairs.in_train,
            pairs.aligned_sides(),
        )

    def judgement(self, others: Iterable[PairEvidence] = (), places: Ints | None = None) -> Judgement:
        """Return the judgement about the learned pairs and others.

        Rates and match probabilities are those of all these pairs together.

        Args:
            others: The evidence of the other pairs. One piece at a time is in memory.
            places: Place of each pair in the judgement, of the learned ones and then of the others, (n,); by default,
                the others follow the learned ones.
        """
        pairs = self.learned
        learned = mean_judgement(self.judgements, pairs.verified, pairs.group_of)
        if places is None:
            others = list(others)
            places = np.arange(len(pairs.group_of) + sum(len(one.fold) for one in others))
        if len(places) == len(pairs.group_of):
            return learned
        whole = self._joined(learned, others, places)
        judgements = []
        for row, (folding, division) in enumerate(zip(self.foldings, self.divisions, strict=True)):
            evidence = replace(division.evidence, pairs=whole.combined[row], placeholder=whole.placeholder[row])
            options = self.options.calibration
            calibration, group = calibrate_sides(evidence, whole.in_train, folding.seed, folding.resamples, options)
            judgement = judgement_of(calibration, group, whole.fold, {}, self.options.verdicts)
            near = self.judgements[row].near_auroc
            judgements.append(replace(judgement, near_auroc=near, placeholder=evidence.placeholder))
        return replace(mean_judgement(judgements, whole.verified, whole.group), detectors=whole.detectors)

    def _joined(self, learned: Judgement, others: Iterable[PairEvidence], places: Ints) -> PairEvidence:
        """Return the evidence of the learned pairs and of others at their places."""
        pairs, count = self.learned, len(self.learned.group_of)
        placeholder = np.stack([division.evidence.placeholder for division in self.divisions])
        own = PairEvidence(
            np.stack([division.evidence.pairs for division in self.divisions]),
            placeholder if placeholder.max(initial=-1) >= 0 else placeholder[:, :0],
            {name: values.astype(np.float32) for name, values in learned.detectors.items()},
            learned.fold,
            pairs.group_of,
            pairs.in_train,
            pairs.verified,
        )
        whole, start, known = own.room_for(len(places)), count, int(pairs.group_of.max()) + 1
        whole.put(places[:count], own)
        after = known
        for one in others:
            here = places[start : start + len(one.fold)]
            whole.put(here, one)
            whole.group[here] += np.where(one.group < known, 0, after - known)
            after = max(after, int(whole.group[here].max(initial=0)) + 1)
            start += len(here)
        return whole
